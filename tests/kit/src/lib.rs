//! The simulated world and its checkers.
