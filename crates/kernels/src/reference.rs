//! Every operation in plain scalar Rust with f64 sums: the oracle.
