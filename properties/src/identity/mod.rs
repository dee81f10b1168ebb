//! Who a caller is: tokens, JWTs of a provider and names in certificates, each beside a judge that knows the documents
//! and nothing of the code.

mod certificates;
mod der;
mod jwt;
mod naive;
mod tokens;

pub(super) use certificates::run as certificates;
pub(super) use jwt::run as jwt;
pub(super) use tokens::run as tokens;
