//! Measures tidegate beside other allocators: the same operations, delays and seed, and one record each from which all
//! measures are computed by the same code.

pub mod caps;
pub mod figure;
pub mod marks;
pub mod measures;
pub mod page;
pub mod recovery;
pub mod scenario;
pub mod scenarios;
pub mod system;
pub mod table;
