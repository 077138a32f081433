//! Values as Python has them: its types that Jinja's values lack, and what kind of value each is.

mod access;
mod args;
mod arithmetic;
mod chars;
mod compare;
mod format;
mod number;
mod printf;
mod sequences;
mod text;
mod values;

pub(super) use access::{attribute, call_method, is_method, item, lookup_path, slice, static_attribute};
pub(super) use args::{Args, integer, text_of};
pub(super) use arithmetic::{
    add, divide, float as float_value, floor_divide, modulo, multiply, negate, power, subtract,
};
pub(super) use chars::{capitalized, is_lower, is_printable, is_space, is_upper, is_word};
pub(super) use compare::{contains, equal, is_hashable, less};
pub(super) use number::{float_text, parse_float, parse_integer, round_float};
pub(super) use printf::percent;
pub(super) use text::{centred, replace, split_lines};
pub(super) use values::{
    BoundMethod, Cycler, Iter, Joiner, Kind, Range, Tuple, View, entries, escape, held, iterator, length, text_like,
    tuple,
};
