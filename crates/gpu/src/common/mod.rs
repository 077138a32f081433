//! The operations that all GPUs share, host side: shapes to launches. One file for each family. The sources in
//! `kernels/` declare the parameter structs too.

pub mod activations;
pub(crate) mod add_norm;
pub(crate) mod argmax;
pub mod elementwise;
pub(crate) mod embed;
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
pub(crate) mod sample;

use crate::Unit;
use crate::activation::ActivationParams;
use crate::device_api::region_of_view;
use crate::epilogue::EpilogueParams;
use crate::product::ProductParams;
use crate::shared_struct::{SharedStruct, StructLayout};
use crate::storage::Int8Block;
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::tensor::{RowLayout, View, ViewMut};

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

/// Most blocks in x of a grid; in y and z there may be 65,535.
const MOST_BLOCKS: usize = i32::MAX as usize;
const MOST_BLOCKS_Y: usize = 65_535;

/// A number that a launch can count to.
fn count(op: &'static str, what: &'static str, found: usize, most: usize) -> Result<u32> {
    let rule = "more than one launch can hold; use smaller batches";
    let number = u32::try_from(found).ok().filter(|_| found <= most);
    number.ok_or_else(|| Error::Range { op, what, found: found.to_string(), rule })
}

/// The alignment of rows: the address of the first, and where the others lie.
pub struct RowAlignment {
    address: u64,
    layout: RowLayout,
}

impl RowAlignment {
    /// The alignment of the rows of a view on a GPU.
    pub fn of<T: Copy>(view: &View<T>) -> Option<Self> {
        let (region, layout) = region_of_view(view)?;
        Some(Self { address: region.address() + (layout.span().start * size_of::<T>()) as u64, layout })
    }

    /// The same of a view that is written.
    pub fn of_mut<T: Copy>(view: &ViewMut<T>) -> Option<Self> {
        Self::of(&view.as_view())
    }

    /// Whether chunks of `width` 32-bit elements, side by side in each row, are whole 16-byte words.
    fn allows(&self, width: usize) -> bool {
        let rows = self.layout.rows() <= 1 || self.layout.stride().is_multiple_of(4);
        self.address.is_multiple_of(16) && rows && width.is_multiple_of(4)
    }
}

/// 1 if all rows allow accesses of 16 bytes, else 0.
pub fn aligned<const N: usize>(width: usize, rows: [Option<RowAlignment>; N]) -> u32 {
    rows.iter().all(|rows| rows.as_ref().is_some_and(|rows| rows.allows(width))).into()
}
