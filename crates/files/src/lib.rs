//! Model files: reading and writing GGUF, reading safetensors, and files that appear whole or not at all.
//!
//! Files are untrusted. Reading maps them and copies no tensor data; every error says what is wrong and where.

#![deny(unsafe_code)]

pub mod gguf;
pub mod json;
pub mod safetensors;
