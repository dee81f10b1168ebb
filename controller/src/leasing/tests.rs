//! Tests of leasing by the interfaces of its modules.

mod clients;
mod held;
mod others;
mod starts;
