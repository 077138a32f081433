//! The parts of a vision tower, as data: `family` reads it from a file, and [`build`](super::build) computes with it.

use gristmill_files::gguf::{GgufFile, TensorInfo};
use gristmill_kernels::format::Format;
use gristmill_kernels::kv::{KvFormat, KvSpec};
use gristmill_kernels::ops::GateKind;

use crate::spec::NormKind;

/// The tensor with the table of positions.
pub(crate) const TABLE: &str = "v.position_embd.weight";

/// The tensors of [`Step::Standardise`].
pub(crate) const STANDARD: [&str; 2] = ["v.std_bias", "v.std_scale"];

/// Width of keys that no layer has.
const NO_WIDTH: usize = 32;

/// A tower with its projector. With x the patches' rows, a layer is
///
/// ```text
/// x += attention(norm(x))
/// x += down · activation(up · norm(x))
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TowerSpec {
    /// `clip.projector_type`.
    pub projector: String,
    /// Pixels of a patch's side.
    pub patch: usize,
    /// Patches of a side of the block that becomes one token.
    pub merge: usize,
    /// Width of a patch's row.
    pub width: usize,
    /// Layers.
    pub layers: usize,
    /// Kernels of the patches, whose sum is used: 2 if the tower reads videos too.
    pub kernels: usize,
    /// The product of patches has a bias.
    pub patch_bias: bool,
    /// The products of layers have biases, but for queries, keys and values.
    pub biases: bool,
    /// The products that make queries, keys and values have biases.
    pub qkv_biases: bool,
    /// Layer norms with this number added to the variance: `v.patch_norm.1` of the patches' numbers, `v.patch_norm.2` of their
    /// rows, and `v.patch_norm.3` of rows with positions.
    pub patch_norms: Option<f32>,
    /// The root-mean-square norm of the patches' rows before positions are added.
    pub row_norm: Option<String>,
    /// The norm of patches before the first layer.
    pub pre_norm: Option<String>,
    /// Queries, keys and values have one matrix.
    pub is_fused: bool,
    /// Heads of attention.
    pub heads: usize,
    /// Width of the MLP.
    pub inner: usize,
    /// The kind of the layers' norms.
    pub norm: NormKind,
    /// Added to the variance in these norms.
    pub norm_eps: f32,
    /// Norms of queries and keys, for each head, and of values without weights.
    pub has_qk_norms: bool,
    /// Norms of what attention and the MLP add.
    pub has_post_norms: bool,
    /// Inputs and outputs of the layers' products are clamped, each to a range of its own.
    pub is_clamped: bool,
    /// Multiplies q · k.
    pub scale: f32,
    /// Pixels v from 0 to 1 become 2v − 1 before the first product.
    pub is_centred: bool,
    /// The activation of the MLP: x · activation(x).
    pub activation: GateKind,
    /// The MLP has a gate, to which the activation is applied.
    pub is_gated: bool,
    /// The first matrix of the MLP is named `ffn_down`, and the second `ffn_up`, as in older files.
    pub is_swapped: bool,
    /// What is added to the patches.
    pub positions: Positions,
    /// How queries and keys are rotated.
    pub rope: Option<PatchRope>,
    /// Layers whose output, through these steps, is added to the output of the first layers of the text model, in order.
    pub deepstack: Vec<(usize, Vec<Step>)>,
    /// From the rows of the last layer to the rows of tokens.
    pub steps: Vec<Step>,
    /// Width of a token's row.
    pub out: usize,
    /// Whether the file has a tower for audio too, whose tensors are not loaded.
    pub has_audio: bool,
}

/// The positions of patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Positions {
    /// Nothing.
    None,
    /// A square table, resized to the picture: bilinear between the centres of its cells, and averaged where the picture
    /// has fewer patches.
    Antialiased {
        /// Rows, and columns, of the table.
        side: usize,
    },
    /// A square table, resized to the picture: bicubic between the centres of its cells (a = −0.75), whose outermost ones are
    /// repeated beyond its edges, and without averaging.
    Bicubic {
        /// Rows, and columns, of the table.
        side: usize,
    },
    /// A table for columns and one for rows, each with this many rows; what they have of a patch is added.
    ColumnsAndRows {
        /// The rows of each.
        len: usize,
    },
    /// A square table, resized to the picture: bilinear, so that the first and the last patch of a side are those of the
    /// table.
    Aligned {
        /// Rows, and columns, of the table.
        side: usize,
    },
}

/// RoPE of patches, by their rows and columns.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum PatchRope {
    /// Of d / 2 pairs in halves of a head of d elements, the first half rotates by rows and the others by columns, pair i of
    /// each by base^(−4i / d).
    RowsThenColumns {
        /// The base.
        base: f32,
    },
    /// Of a head of d elements, the first half rotates by columns and the other by rows, each as d / 4 pairs in halves, pair i
    /// of each by base^(−4i / d).
    ColumnsThenRows {
        /// The base.
        base: f32,
    },
    /// Of d / 2 pairs of neighbours in a head of d elements, the first half rotates by rows and the others by columns, pair i
    /// of rows by base^(−4i / d), of columns by base^(−(4i + 2) / d).
    EvenRowsOddColumns {
        /// The base.
        base: f32,
    },
}

/// A step of a projector.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Step {
    /// A norm whose tensors start with this name.
    Norm {
        /// The name.
        name: String,
        /// Its kind.
        kind: NormKind,
        /// Added to the variance.
        eps: f32,
    },
    /// A norm by the root of the mean square, without weights.
    PlainNorm,
    /// (x − `v.std_bias`) · `v.std_scale`.
    Standardise,
    /// The rows of a block become one row.
    Join,
    /// A product with the matrix of this name.
    Linear {
        /// The name.
        name: String,
        /// Rows of the matrix.
        out: usize,
        /// Whether it has a bias.
        bias: bool,
    },
    /// A product of joined rows with a matrix whose columns are (channel, row, column).
    JoinedByChannel {
        /// The name of the matrix.
        name: String,
        /// Its rows.
        out: usize,
        /// Whether it has a bias.
        bias: bool,
        /// Whether the file has it as a tensor of (column, row, channel, output).
        is_convolution: bool,
    },
    /// down · (silu(gate · x) · (up · x)).
    SwiGlu {
        /// The names of gate, up and down.
        names: [String; 3],
        /// Rows of gate and up.
        inner: usize,
        /// Rows of down.
        out: usize,
    },
    /// A product with a matrix that the file has transposed.
    Transposed {
        /// The name of the matrix.
        name: String,
        /// Its columns in the file.
        out: usize,
    },
    /// Of joined rows, their average times a factor.
    Pool {
        /// The factor.
        scale: f32,
    },
    /// x · kind(x).
    Activation(GateKind),
}

impl TowerSpec {
    /// Rows of the text model's width for each token: its embedding, and what is added in layers.
    pub fn levels(&self) -> usize {
        1 + self.deepstack.len()
    }

    /// The shape of the table of positions, if there is one.
    pub(crate) fn table_shape(&self) -> Option<Vec<usize>> {
        match self.positions {
            Positions::None => None,
            Positions::Antialiased { side } | Positions::Bicubic { side } | Positions::Aligned { side } => {
                Some(vec![self.width, side * side])
            }
            Positions::ColumnsAndRows { len } => Some(vec![self.width, len, 2]),
        }
    }

    /// Whether all products are exact: then attention rounds nothing either.
    pub(crate) fn is_exact(&self, file: &GgufFile) -> bool {
        let rounds = |tensor: &TensorInfo| tensor.shape.len() > 1 && tensor.format != Format::F32;
        !file.tensors().iter().any(rounds)
    }

    /// The keys and values of a picture in a layer.
    pub(crate) fn cache(&self) -> KvSpec {
        // A tower without layers has none, but no cache can be so narrow.
        let width = if self.layers == 0 { NO_WIDTH } else { self.width / self.heads.max(1) };
        KvSpec { heads: self.heads, key_width: width, value_width: width, format: KvFormat::F16, values_in_keys: false }
    }

    /// Whether a tensor is not loaded.
    pub(crate) fn leaves_out(&self, tensor: &str) -> bool {
        // The mark between rows of patches is a token of the text model.
        tensor == "v.token_embd.img_break"
            || self.has_audio && ["a.", "mm.a."].iter().any(|start| tensor.starts_with(start))
    }
}
