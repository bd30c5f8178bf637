//! Keeps the tables of one kind of one cluster up to date: a pure core and, beside it, the driver that does its I/O.
//! Must not know what rows are for.

pub mod core;
pub mod driver;
