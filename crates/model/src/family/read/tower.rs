//! Keys of vision towers, `clip.vision.*`, as llama.cpp's converter writes them.

use gristmill_kernels::ops::GateKind;

use super::keys::{KeyReader, MAX_WIDTH};
use super::source::Source;
use crate::error::{Error, Result};
use crate::spec::NormKind;
use crate::tower::spec::{Positions, TABLE, TowerSpec};

/// The largest side of a patch, of a block of patches and of a table of positions.
const MAX_SIDE: usize = 1024;

/// `clip.projector_type`. A file with a tower for audio too has it by kind.
pub(in crate::family) fn projector(source: &Source) -> Result<String> {
    match source.optional::<&str>("clip.projector_type")? {
        Some(name) => Ok(name.to_owned()),
        None => Ok(source.required::<&str>("clip.vision.projector_type")?.to_owned()),
    }
}

impl KeyReader<'_> {
    /// The projector of the file.
    pub(in crate::family) fn projector(&self) -> Result<String> {
        projector(self.source)
    }

    /// What all towers have in common. Positions, steps and the width of the output are the family's.
    pub(in crate::family) fn tower(&self) -> Result<TowerSpec> {
        self.tower_with(self.tower_activation()?)
    }

    /// The same of a family that has one activation, whatever its files say.
    pub(in crate::family) fn tower_with(&self, activation: GateKind) -> Result<TowerSpec> {
        let (width, heads) =
            (self.count("vision.embedding_length", MAX_WIDTH)?, self.count("vision.attention.head_count", MAX_WIDTH)?);
        if !width.is_multiple_of(heads) {
            return self.wrong("vision.attention.head_count", heads, format!("does not divide the width of {width}"));
        }
        let tensors = self.source.file.tensors().len();
        let rule = || format!("layers need at least as many tensors, but the file has {tensors}");
        Ok(TowerSpec {
            patch: self.count("vision.patch_size", MAX_SIDE)?,
            layers: self.count_within("vision.block_count", tensors, rule)?,
            biases: self.tensor("v.blk.0.attn_out.bias"),
            qkv_biases: ["attn_qkv", "attn_q"].iter().any(|name| self.tensor(&format!("v.blk.0.{name}.bias"))),
            is_gated: self.tensor("v.blk.0.ffn_gate.weight"),
            is_swapped: self.is_swapped(width)?,
            is_fused: self.tensor("v.blk.0.attn_qkv.weight"),
            heads,
            inner: self.count("vision.feed_forward_length", MAX_WIDTH)?,
            norm: if self.tensor("v.blk.0.ln1.bias") { NormKind::Layer } else { NormKind::Rms },
            has_qk_norms: self.tensor("v.blk.0.attn_q_norm.weight"),
            has_post_norms: self.tensor("v.blk.0.attn_post_norm.weight"),
            is_clamped: self.tensor("v.blk.0.attn_q.input_max"),
            scale: (heads as f32 / width as f32).sqrt(),
            activation,
            ..self.tower_without_layers(width)?
        })
    }

    /// A tower of this width that has no layers; the side of a patch is the family's.
    pub(in crate::family) fn tower_without_layers(&self, width: usize) -> Result<TowerSpec> {
        Ok(TowerSpec {
            projector: projector(self.source)?,
            patch: 0,
            merge: 1,
            width,
            layers: 0,
            patch_bias: self.tensor("v.patch_embd.bias"),
            patch_norms: None,
            biases: false,
            qkv_biases: false,
            row_norm: None,
            pre_norm: None,
            is_gated: false,
            is_swapped: false,
            kernels: if self.tensor("v.patch_embd.weight.1") { 2 } else { 1 },
            is_fused: false,
            heads: 1,
            inner: 0,
            norm: NormKind::Layer,
            norm_eps: self.source.required::<f32>("clip.vision.attention.layer_norm_epsilon")?,
            has_qk_norms: false,
            has_post_norms: false,
            is_clamped: false,
            scale: 1.0,
            is_centred: false,
            activation: GateKind::Linear,
            positions: Positions::None,
            rope: None,
            deepstack: Vec::new(),
            steps: Vec::new(),
            out: 0,
            has_audio: self.source.optional::<bool>("clip.has_audio_encoder")?.unwrap_or(false),
        })
    }

    /// The side of a patch, by the columns of a matrix whose columns are its numbers.
    pub(in crate::family) fn patch_side_of(&self, name: &str) -> Result<usize> {
        let columns = self.columns_of(name)?;
        let side = (columns / 3).isqrt();
        match 3 * side * side == columns && (1..=MAX_SIDE).contains(&side) {
            true => Ok(side),
            false => Err(Error::Value {
                key: name.to_owned(),
                found: format!("{columns} columns"),
                rule: format!("must be those of a square of three colours, of a side of at most {MAX_SIDE}"),
            }),
        }
    }

    /// Whether the matrices of an MLP without a gate have each other's names: llama.cpp's converter named them so for some
    /// projectors until 2025.
    fn is_swapped(&self, width: usize) -> Result<bool> {
        let [up, down] = ["v.blk.0.ffn_up.weight", "v.blk.0.ffn_down.weight"];
        let both = [up, down].iter().all(|name| self.tensor(name));
        Ok(both
            && !self.tensor("v.blk.0.ffn_gate.weight")
            && self.columns_of(down)? == width
            && self.columns_of(up)? != width)
    }

    /// The activation of an MLP without a gate.
    fn tower_activation(&self) -> Result<GateKind> {
        let flag = |name: &str| Ok::<_, Error>(self.source.optional::<bool>(&self.key(name))?.unwrap_or(false));
        match (flag("use_gelu")?, flag("use_silu")?) {
            (true, false) => Ok(GateKind::NormalTanh),
            (false, true) => Ok(GateKind::Sigmoid),
            (gelu, silu) => {
                let rule = "is not supported; known: exactly one of use_gelu and use_silu";
                self.wrong("use_gelu", format!("{gelu} with use_silu {silu}"), rule)
            }
        }
    }

    /// Patches of a side of the block that becomes one token.
    pub(in crate::family) fn merge(&self, suffix: &str) -> Result<usize> {
        let suffix = format!("vision.{suffix}");
        self.count(&suffix, MAX_SIDE)
    }

    /// The same of a key that files can lack.
    pub(in crate::family) fn optional_merge(&self, suffix: &str) -> Result<Option<usize>> {
        self.optional_count(&format!("vision.{suffix}"), MAX_SIDE)
    }

    /// Rows, and columns, of the table of positions.
    pub(in crate::family) fn table_side(&self) -> Result<usize> {
        let rows = self.rows_of(TABLE)?;
        let side = rows.isqrt();
        match side * side == rows && side <= MAX_SIDE {
            true => Ok(side),
            false => Err(Error::Value {
                key: TABLE.to_owned(),
                found: format!("{rows} rows"),
                rule: format!("must be a square of at most {MAX_SIDE}"),
            }),
        }
    }

    /// Rows of a matrix of the file.
    pub(in crate::family) fn rows_of(&self, name: &str) -> Result<usize> {
        self.side_of(name, 1)
    }

    /// The shape of a tensor of the file.
    pub(in crate::family) fn shape_of(&self, name: &str) -> Option<Vec<u64>> {
        Some(self.source.file.tensor(name)?.shape.clone())
    }

    /// Columns of a matrix of the file.
    pub(in crate::family) fn columns_of(&self, name: &str) -> Result<usize> {
        self.side_of(name, 0)
    }

    fn side_of(&self, name: &str, dimension: usize) -> Result<usize> {
        let rows =
            |shape: &[u64]| usize::try_from(*shape.get(dimension)?).ok().filter(|rows| (1..=MAX_WIDTH).contains(rows));
        let tensor = self.source.file.tensor(name);
        tensor.and_then(|tensor| rows(&tensor.shape)).ok_or_else(|| Error::MissingTensor {
            name: name.to_owned(),
            shape: tensor.map_or_else(Vec::new, |tensor| tensor.shape.clone()),
        })
    }
}
