//! Units and structs of the common operations.

use super::{
    activations, add_norm, argmax, elementwise, embed, group, kv, latent_write, multiply_act, norm, norm_act,
    qkv_write, recurrent, rope, route, sample, scan,
};
use crate::Unit;
use crate::activation::ActivationParams;
use crate::epilogue::EpilogueParams;
use crate::product::ProductParams;
use crate::shared_struct::{SharedStruct, StructLayout};
use crate::storage::Int8Block;

/// Every unit of these operations.
pub fn units() -> impl Iterator<Item = Unit> {
    let plain = ["activations.gpu", "causal_conv.gpu", "group.gpu", "rows.gpu", "sample.gpu"];
    let plain = plain.into_iter().map(|file| Unit::new(file, &[]));
    let of_cache = ["kv.gpu", "latent_write.gpu", "qkv_write.gpu"].into_iter().flat_map(kv::units_of);
    plain
        .chain(recurrent::units())
        .chain(scan::units())
        .chain(route::units())
        .chain(Unit::by_format("embed.gpu"))
        .chain(of_cache)
}

/// Structs that these units declare too.
pub(crate) const SHARED_STRUCTS: &[StructLayout] = &[
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
    norm::GatedNormParams::LAYOUT,
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
    scan::ScanParams::LAYOUT,
];
