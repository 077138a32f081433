//! Every operation of every level against plain Rust.
