//! Pre-tokenizers: how byte-level BPE cuts a text into words before merging.
//!
//! Each model family publishes a regular expression. The expressions differ in a few rules, so each is data for one
//! scanner, which is linear in the length; a backtracking regex engine hits its limits on long runs of one character. The
//! expressions and their rules are in `published.rs`.
//!
//! # A word scanner instead of regular expressions
//!
//! Pre-tokenizers are published as regular expressions. A backtracking engine reaches its limit on long runs and then
//! splits them wrongly. The scanner is linear, with the families as data. The crate `tokenizers` is the oracle of its
//! tests.

mod classes;
mod pattern;
pub(super) mod published;
#[cfg(test)]
mod tests;

pub(super) use pattern::Pattern;
