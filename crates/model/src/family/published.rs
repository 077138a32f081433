//! How a family is published, as data: which setting of `config.json` becomes which key, and which tensor which. The
//! crate `convert` follows these tables and names no family.

use super::FAMILIES;
pub use super::parts::{EXPERT_COUNT, LAYER_TYPES, NULLS};

/// A family of models.
pub struct Family {
    /// `model_type` in `config.json`.
    pub model_types: &'static [&'static str],
    /// `general.architecture`, which begins the names of its keys.
    pub architecture: &'static str,
    pub mlx: Mlx,
    pub keys: &'static [&'static [Key]],
    /// Settings that are read although the family's class in transformers has no such field: its constructor or its
    /// model takes them all the same, or the code of the model's authors does.
    pub beyond: &'static [&'static str],
    /// Settings that authors call by another name: that name, and the one that is read. For families that transformers
    /// lacks; of the others its classes say the names.
    pub names: &'static [(&'static str, &'static str)],
    /// Settings whose `null` means that they are not set, besides [`NULLS`]: those that transformers declares as
    /// optional in this family.
    pub nulls: &'static [&'static str],
    /// Settings of layers with full attention which are also written for each of those layers: their names for all of
    /// them, and for one.
    pub full_layers: &'static [(&'static str, &'static str)],
    /// What `rope_scaling` does beside `rope_parameters` for each kind of layer.
    pub older_scaling: OlderScaling,
    /// The names of LongRoPE.
    pub longrope: &'static [&'static str],
    /// LongRoPE's magnitude is `short_mscale`, or `long_mscale`.
    pub magnitudes: bool,
    /// A dynamic scaling with `alpha` raises the base of RoPE, whatever the length of a sequence.
    pub alpha: bool,
    /// Whether YaRN's ramp begins and ends at whole pairs: a property of the architecture, for which there is no key.
    pub yarn_truncates: bool,
    /// YaRN's magnitude is the ratio of two (`mscale`, `mscale_all_dim`), which is 1, and among its settings is the
    /// temperature of attention (`llama_4_scaling_beta`).
    pub yarn_ratio: bool,
    /// YaRN's `mscale_all_dim` is a factor of attention's logits: a tenth of it is the key `yarn_log_multiplier`.
    pub yarn_scores: bool,
    /// The part of a head that is rotated.
    pub rotated: Rotated,
    /// Pairs of a head that turn by each of three positions of a token, if the settings have none: positions that are
    /// the same for a text.
    pub sections: Option<[u32; 3]>,
    /// `tokenizer.ggml.pre`, where other families' pre-tokenizers have the same rules.
    pub pre: Option<&'static str>,
    /// The tokenizer model of files that keep the merges of a SentencePiece tokenizer instead of scores.
    pub merges: Option<Merges>,
    /// Special tokens that settings do not name: the role (`tokenizer.ggml.{role}_token_id`) and the text.
    pub special_tokens: &'static [(&'static str, &'static str)],
    /// How names of tensors begin that predict further tokens and are left out, besides whole layers after the others.
    pub prediction: &'static [&'static str],
    /// The text model within a larger one, if this family is published so.
    pub within: Option<Within>,
    pub expects: &'static [Expect],
    /// Tensors outside the layers.
    pub globals: &'static [&'static [Rule]],
    /// Tensors of every layer.
    pub layer: &'static [&'static [Rule]],
    /// Vectors of every layer that the folder lacks.
    pub filled: &'static [Filled],
    /// Every layer also has the tensors of one of these, known by its first.
    pub mixers: &'static [&'static [Rule]],
    /// Every layer also has the tensors of one of these, known by its first.
    pub mlps: &'static [&'static [Rule]],
}

/// The `model_type`s whose folders are read as mlx-lm 0.32.2 writes them.
#[derive(Clone, Copy)]
pub enum Mlx {
    /// None.
    No,
    /// These, which MLX changes only by codes and by stacks of experts. `convert` also writes such folders.
    Yes(&'static [&'static str]),
    /// These, whose tensors MLX also renames, splits or reorders, as their rules say.
    Changed(&'static [&'static str]),
}

/// How a text model lies within a model that also sees or hears.
pub struct Within {
    /// The settings of the text model, which come before those around them.
    pub settings: &'static str,
    /// Beginnings of its tensors' names; the first of these that the folder has.
    pub tensors: &'static [Prefix],
    /// What the names of the other tensors begin with, which are left out.
    pub towers: &'static [&'static str],
    /// The other tensors, as the note about them says it.
    pub named: &'static str,
}

/// A tokenizer of SentencePiece's characters with a list of merges.
pub struct Merges {
    /// `tokenizer.ggml.model`.
    pub model: &'static str,
    /// Special tokens that are text of a reply all the same: the marks of reasoning and of calls.
    pub shown: &'static [&'static str],
}

/// Beginnings of the names of a text model's tensors, where it lies within another.
pub struct Prefix {
    /// Instead of `model.`.
    pub model: &'static str,
    /// Before the names that do not begin with `model.`.
    pub others: &'static str,
}

/// What `rope_scaling` does beside `rope_parameters`.
#[derive(Clone, Copy)]
pub enum OlderScaling {
    /// It is read in their place.
    Replaces,
    /// Its settings come before those of layers with full attention, and only settings for each kind of layer are read.
    Updates,
    /// It is not read.
    Unread,
}

/// The part of a head that is rotated.
#[derive(Clone, Copy)]
pub enum Rotated {
    /// All of it: settings that say otherwise are refused.
    Whole,
    /// The width that the settings say: elements in `rotary_dim`, a share in `partial_rotary_factor`, or without both
    /// this share.
    Part(f64),
    /// A share of the pairs of a head with full attention, whose width is this setting: the others are in a tensor of
    /// factors that no angle survives.
    Pairs(&'static str),
}

/// A metadata key and the setting that it comes from.
pub struct Key {
    /// The key after `{architecture}.`.
    pub ours: &'static str,
    /// The setting in `config.json`; the first of these that is there.
    pub theirs: &'static [&'static str],
    pub kind: Kind,
    /// The value without such a setting.
    pub or: Or,
}

/// The type of a key's value.
#[derive(Clone, Copy)]
pub enum Kind {
    /// A whole number.
    Count,
    /// A whole number, or one for each layer, all alike.
    CountOfLayers,
    /// A float.
    Number,
    /// A float that is not 0, which stands in files for none.
    Factor,
    /// A whole number that is not 0, which stands in files for none.
    Positive,
    /// A boolean.
    Flag,
    /// A boolean, written only if it differs from this default of the architecture.
    Unless(bool),
    /// Whether each layer has a window, written only if it differs from the architecture's default: of every `period`
    /// layers all but the last.
    WindowsUnless { period: usize },
    /// Nothing is written, because all layers but the last of every `period` must see chunks.
    Chunks { period: usize },
    /// The same where the first of every `period` layers sees everything, not the last.
    WindowsAfterFirstUnless { period: usize },
    /// A whole number for each layer: those of this list if it is set, else the same for all.
    CountsOr(&'static str),
    /// Whether each layer has a window.
    Windows,
    /// The same, or two periods: that of the dense layers before all others, and that of the others.
    WindowsAfterDense,
    /// Nothing is written, because the type of every layer must be full attention.
    FullAttention,
    /// 1 / √ of a number, written only if the number differs from this setting.
    InverseRootUnless(&'static str),
    /// A float, written only if it differs from this default of the architecture.
    NumberUnless(f64),
    /// A whole number for each layer: 0 for layers of this type, the setting for the others.
    CountUnlessLayer(&'static str),
    /// A whole number; one for each layer where this setting is another for layers with full attention.
    CountUnlessFull(&'static str),
    /// The width of an MLP; one for each layer where those that read the caches of others have twice the width.
    WidthUnlessShared,
    /// A whole number, or a list of kinds of layers, of which so many are of this kind before all others.
    CountOrFirst(&'static str),
    /// Whether each layer has a state of fixed size: those of this type.
    FlagOfLayer(&'static str),
    /// The width of an MLP of which, where a setting says so, two thirds are taken and rounded up.
    AdjustedWidth,
    /// A text, written as its number.
    Named(&'static [(&'static str, u32)]),
    /// A float, divided by the root of this setting, a count.
    OverRootOf(&'static str),
    /// A count that divides this setting: the quotient, a float.
    DivisorOf(&'static str),
}

/// The default of a missing setting, as in transformers.
#[derive(Clone, Copy)]
pub enum Or {
    /// The key is left out.
    Skip,
    /// The setting must be there.
    Refuse,
    Count(u32),
    Number(f64),
    Flag(bool),
    /// A text, whatever the kind.
    Text(&'static str),
    /// Another setting.
    Same(&'static str),
    /// The sum of two settings.
    Sum(&'static str, &'static str),
    /// One setting times another.
    Product(&'static str, &'static str),
    /// One setting divided by another.
    Quotient(&'static str, &'static str),
}

/// A setting that must be missing or have this value, the only one that the family's maths supports.
pub struct Expect {
    pub setting: &'static str,
    pub value: Expected,
}

pub enum Expected {
    Text(&'static str),
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// One of these texts, or `plain` if the count is at most 1: `plain` ignores groups.
    Grouped {
        count: &'static str,
        texts: &'static [&'static str],
        plain: &'static str,
    },
    Flag(bool),
    /// True, or a number that is not 0.
    True,
    Number(f64),
    /// A list with 0 for the last of so many layers, and 1 for the others; or an empty one, which stands for it.
    LastOf(usize),
    /// True unless a count has this value, then false.
    FlagUnless(&'static str, u32),
}

/// A tensor's name there and here. In both, `{layer}` stands for the layer's number; in theirs `{expert}` stands for
/// the number of an expert, and the tensors of all experts are stacked.
pub struct Rule {
    pub ours: &'static str,
    pub theirs: &'static str,
    pub stored: Layout,
    pub how: How,
    pub change: Change,
    pub need: Need,
}

/// How a tensor's matrices lie in the checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Row after row.
    Rows,
    /// A stack of matrices, each column after column: `[experts, inputs, outputs]`.
    Columns,
    /// A stack of matrices in MXFP4, row after row: bytes `{theirs}_blocks` with two codes each, `[experts, outputs,
    /// inputs / 32, 16]`, and bytes `{theirs}_scales`, `[experts, outputs, inputs / 32]`.
    Mxfp4,
    /// The taps of a convolution, `[channels, 1, taps]`, by MLX `[channels, taps, 1]`: row after row, a row for each
    /// channel.
    Taps,
}

/// The change of a vector's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Unchanged.
    None,
    /// 1 is added to each. MLX has added it in models with a convolution.
    PlusOne,
    /// Each is the logarithm of a decay; the file has minus the decay.
    MinusExp,
}

/// Which rows of a tensor are written, and in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// All, as they are.
    Same,
    /// RoPE rotates pairs of values. transformers keeps the first values of all pairs of a head before the second ones,
    /// llama's files keep pairs together; so the rows of each head are reordered. The first of these settings that is
    /// set is the number of heads.
    PairRows(&'static [&'static str]),
    /// Two tensors are one there, halves along this axis (outermost 0, where each matrix is row after row); the first
    /// (0) or the second (1) is taken.
    Half { axis: usize, which: usize },
    /// One of two halves as in [`How::Half`], which alternate along the axis.
    Interleaved { axis: usize, which: usize },
    /// The value heads of a delta rule go round the key heads: head `i` uses key head `i mod keys`. transformers keeps
    /// those of a key head together.
    ValueHeads(ValueHeads),
    /// Rows of each head of latent attention are two parts there: those that make its key, `qk_nope_head_dim`, then those
    /// that make its value, `v_head_dim`. The first part is taken, its rows as columns.
    LatentKeys,
    /// The second part of [`How::LatentKeys`] is taken as it is.
    LatentValues,
    /// The rows of each key head of a delta rule are together there: queries, keys, values, gates. These are taken,
    /// those of all heads one after the other.
    KeyHeads(&'static [DeltaInput]),
    /// For each key and value head, the rows of its queries, key and value are together there: one part of all is taken.
    /// Those of queries and keys are reordered as by [`How::PairRows`].
    Group(GroupPart),
}

/// A part of the rows of a key and value head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupPart {
    Queries,
    Keys,
    Values,
}

/// Where the value heads of a tensor are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueHeads {
    /// Each row is one.
    Single,
    /// Some rows are one, and there are no others.
    Rows,
    /// The same behind the rows of queries and keys.
    RowsAfterKeys,
    /// Some columns are one.
    Columns,
}

/// An input of a delta rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeltaInput {
    Queries,
    Keys,
    Values,
    Gates,
}

/// A vector whose elements are all alike.
pub struct Filled {
    pub ours: &'static str,
    /// The setting that is each element; `None` for 1.
    pub value: Option<&'static str>,
    /// The setting with the number of elements.
    pub width: &'static str,
}

/// Whether a tensor must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    Always,
    /// Only some variants of the model have the tensor.
    IfThere,
    /// Unless the output head is the embedding table.
    UnlessTied,
    /// If this setting is true; if it is false, the tensor is not read.
    IfSet(&'static str),
    /// Only some variants of the model have the tensor; if this setting is false, it is not read.
    UnlessUnset(&'static str),
    /// Only some layers have the tensor; if this setting is true, it is not read in layers with full attention.
    UnlessFull(&'static str),
}

/// The matrices of an expert in some families, and MLX's names for them.
const MATRICES: &[(&str, &str)] = &[("w1", "gate_proj"), ("w2", "down_proj"), ("w3", "up_proj")];

/// The names under which MLX stacks the matrices of all experts, of which this is one, that of most families first; and
/// the number of the expert.
pub fn stacked_names(name: &str) -> Option<([String; 2], usize)> {
    let (module, rest) = name.split_once(".experts.")?;
    let (expert, rest) = rest.split_once('.')?;
    let (matrix, rest) = rest.split_once('.')?;
    let matrix = MATRICES.iter().find(|(theirs, _)| *theirs == matrix).map_or(matrix, |(_, mlx)| mlx);
    let names = ["switch_mlp", "experts"].map(|stack| format!("{module}.{stack}.{matrix}.{rest}"));
    Some((names, expert.parse().ok()?))
}

impl Family {
    /// Whether a tensor of a folder is the weight of a router.
    pub fn is_router(&self, theirs: &str) -> bool {
        let rules = [self.globals, self.layer, self.mixers, self.mlps].into_iter().flatten().copied().flatten();
        let mut routers = rules.filter(|rule| rule.ours.ends_with("ffn_gate_inp.weight"));
        routers.any(|rule| rule.theirs.split("{layer}").last().is_some_and(|end| theirs.ends_with(end)))
    }

    /// The family of a `model_type`.
    pub fn find(model_type: &str) -> Option<&'static Family> {
        FAMILIES.iter().copied().find(|family| family.model_types.contains(&model_type))
    }

    /// The `model_type`s whose folders are read as MLX writes them.
    pub fn read_of_mlx() -> impl Iterator<Item = &'static str> {
        FAMILIES
            .iter()
            .flat_map(|family| match family.mlx {
                Mlx::No => &[],
                Mlx::Yes(types) | Mlx::Changed(types) => types,
            })
            .copied()
    }

    /// The `model_type`s whose folders are written as MLX writes them.
    pub fn written_as_mlx() -> impl Iterator<Item = &'static str> {
        FAMILIES
            .iter()
            .flat_map(|family| match family.mlx {
                Mlx::No | Mlx::Changed(_) => &[],
                Mlx::Yes(types) => types,
            })
            .copied()
    }

    /// The `model_type`s of all families.
    pub fn known() -> String {
        FAMILIES.iter().flat_map(|family| family.model_types).copied().collect::<Vec<_>>().join(", ")
    }
}
