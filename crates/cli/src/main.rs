//! The `gristmill` command line.
mod synthetic;

fn main() {}
