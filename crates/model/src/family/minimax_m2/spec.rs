//! `minimax-m2`: MiniMax M2. Every layer has experts, chosen by sigmoid with a bias; one norm covers all query heads,
//! one all key heads, and a part of each head is rotated.

use gristmill_kernels::ops::RopeStyle;

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::{AttentionSpec, ModelSpec, QkNorm};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let attention = AttentionSpec { qk_norm: Some(QkNorm::WholeRow), ..file.attention(RopeStyle::Halves)? };
    file.uniform(attention, file.sigmoid_moe(true, None)?)
}
