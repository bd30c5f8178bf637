//! (see docs/ARCHITECTURE.md)
pub mod demo;
