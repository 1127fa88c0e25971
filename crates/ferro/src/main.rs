//! The one binary: command line, wiring of roles, demo.

fn main() {}
