//! The operations that all GPUs share, host side: shapes to launches. One file for each family. The sources in
//! `kernels/` declare the parameter structs too.

pub mod activations;
pub(crate) mod add_norm;
pub(crate) mod argmax;
pub mod elementwise;
pub(crate) mod embed;
mod grid;
pub mod group;
pub mod kv;
pub(crate) mod latent_write;
pub(crate) mod multiply_act;
pub(crate) mod norm;
pub mod norm_act;
pub mod qkv_write;
pub(crate) mod recurrent;
pub(crate) mod rope;
pub mod route;
mod row_alignment;
pub(crate) mod sample;

use crate::Unit;
use crate::activation::ActivationParams;
use crate::epilogue::EpilogueParams;
use crate::product::ProductParams;
use crate::shared_struct::{SharedStruct, StructLayout};
use crate::storage::Int8Block;
pub use row_alignment::{RowAlignment, aligned};

/// Every unit of these operations.
pub fn units() -> impl Iterator<Item = Unit> {
    let plain = ["activations.gpu", "causal_conv.gpu", "group.gpu", "rows.gpu", "sample.gpu"];
    let plain = plain.into_iter().map(|file| Unit::new(file, &[]));
    let of_cache = ["kv.gpu", "latent_write.gpu", "qkv_write.gpu"].into_iter().flat_map(kv::units_of);
    plain.chain(recurrent::units()).chain(route::units()).chain(Unit::by_format("embed.gpu")).chain(of_cache)
}

/// Structs that these units declare too.
pub(super) const SHARED_STRUCTS: &[StructLayout] = &[
    Int8Block::LAYOUT,
    ActivationParams::LAYOUT,
    EpilogueParams::LAYOUT,
    ProductParams::LAYOUT,
    activations::QuantiseParams::LAYOUT,
    argmax::ArgmaxParams::LAYOUT,
    elementwise::ElementsParams::LAYOUT,
    elementwise::CombineParams::LAYOUT,
    embed::EmbedParams::LAYOUT,
    group::GroupParams::LAYOUT,
    kv::WriteParams::LAYOUT,
    latent_write::LatentWriteParams::LAYOUT,
    multiply_act::MultiplyActParams::LAYOUT,
    norm::NormParams::LAYOUT,
    norm_act::NormActParams::LAYOUT,
    add_norm::AddNormParams::LAYOUT,
    add_norm::AddNormActParams::LAYOUT,
    add_norm::AddNormsParams::LAYOUT,
    qkv_write::QkvWriteParams::LAYOUT,
    recurrent::ConvParams::LAYOUT,
    recurrent::DeltaParams::LAYOUT,
    rope::RopeParams::LAYOUT,
    route::RouteParams::LAYOUT,
    route::RouteAndGroupParams::LAYOUT,
    sample::SampleRow::LAYOUT,
    sample::SampleEdit::LAYOUT,
    sample::SampleParams::LAYOUT,
];
