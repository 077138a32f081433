//! `exaone`: EXAONE 3 and 3.5. As `llama`; the first and the second half of a head are rotated together.

use gristmill_kernels::ops::{Activation, RopeStyle};

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::ModelSpec;

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    file.uniform(file.attention(RopeStyle::Halves)?, file.dense(Activation::SwiGlu)?)
}
