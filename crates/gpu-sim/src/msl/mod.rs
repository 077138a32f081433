//! The Metal Shading Language: translates preprocessed source to C++ for the prelude, in one pass over its tokens. Line
//! numbers are preserved. The translator rejects what the language does not have, with its line. Errors that need types
//! are left to the second check (`opencl.rs`), in which a compiler checks address spaces.
//!
//! [`tokens`] reads and writes tokens. `scope` walks through namespaces and types to `function`, and `body` through
//! bodies. `kernel` and `parameters` create entry points. `pointers`, `words` and `recursion` reject invalid source.

mod attribute;
mod body;
mod function;
mod kernel;
mod opencl;
mod parameters;
mod pointers;
mod preprocess;
mod problem;
mod recursion;
mod scope;
mod tokens;
mod translate;
mod translator;
mod words;

pub(crate) use opencl::address_spaces;
pub(crate) use preprocess::preprocess;
pub(crate) use translate::{PASS, Translated, translate};
pub(crate) use translator::Dialect;

#[cfg(test)]
mod tests;
