//! `minimax-m2`: MiniMax M2. Every layer has experts routed by sigmoid with a selection bias. One norm covers all query
//! heads, and one all key heads. RoPE rotates a part of each head.

use gristmill_kernels::ops::RopeStyle;

use crate::error::Result;
use crate::family::read::KeyReader;
use crate::spec::{AttentionSpec, ModelSpec, QkNorm};

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    let attention = AttentionSpec { qk_norm: Some(QkNorm::WholeRow), ..file.attention(RopeStyle::Halves)? };
    file.uniform(attention, file.sigmoid_moe(true, None)?)
}
