//! The web console's pages: messages of the admin API in, HTML out.
//!
//! Nothing here reads a clock, a socket or a lock: the controller's room `web` gathers what a page shows and who looks
//! at it, and a page is a function of that. So every page can be made, and tested, without a controller. All markup
//! comes from `maud`, which escapes every text; charts are SVG. Scripts and styles are files of their own
//! ([`assets`]), since the policy of the pages forbids others.
//!
//! A page that follows the present has a live part, [`frame::live`]: the controller sends it again and the script puts
//! it in the place of the former one.

pub mod assets;
pub mod audit;
pub mod chart;
pub mod command;
pub mod csv;
pub mod form;
pub mod frame;
pub mod group;
pub mod groups;
pub mod history;
pub mod link;
pub mod login;
pub mod nodes;
pub mod overview;
pub mod paging;
pub mod present;
pub mod prices;
pub mod proposal;
pub mod quantity;
pub mod removal;
pub mod samples;
pub mod statement;
pub mod statements;
pub mod viewer;
pub mod what_if;
pub mod why;

pub use maud::Markup;
