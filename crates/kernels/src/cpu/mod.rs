//! The CPU backend.

pub mod layout;
