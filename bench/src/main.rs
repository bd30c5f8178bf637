//! Scenario programs.

fn main() {}
