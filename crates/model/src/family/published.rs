//! The published form of a family, as data: which settings of `config.json` become which keys, and which tensors become
//! which tensors. The crate `convert` applies these tables and has no code for single families.

use super::FAMILIES;
pub use super::parts::{EXPERT_COUNT, LAYER_TYPES, NULLS};

/// A model family.
pub struct Family {
    /// `model_type` in `config.json`.
    pub model_types: &'static [&'static str],
    /// `general.architecture`, also the prefix of its keys.
    pub architecture: &'static str,
    pub mlx: Mlx,
    /// The end of a tensor's name that only folders of MLX have, which have 1 added to norms already ([`Change::PlusOne`]).
    pub mlx_adds_one: Option<&'static str>,
    /// Settings that mlx-lm needs: `null` in a written folder if the published folder lacks them.
    pub mlx_settings: &'static [&'static str],
    /// Whether mlx-lm reads `sliding_window_pattern` as a letter for each layer.
    pub mlx_letters: bool,
    pub keys: &'static [&'static [Key]],
    /// Settings that are read although the family's class in transformers has no such field. The class's constructor,
    /// its model or the authors' code reads them.
    pub beyond: &'static [&'static str],
    /// Settings with another name in published folders: the published name, and the name that is read. Only for
    /// families that transformers lacks, or whose class does not read the setting; classes declare their names. With
    /// [`Family::inner`], only for the settings of that object.
    pub names: &'static [(&'static str, &'static str)],
    /// Settings whose `null` means that they are not set, in addition to [`NULLS`]: transformers declares them as
    /// optional in this family.
    pub nulls: &'static [&'static str],
    /// Settings of layers with full attention that are also written per layer: the name for all layers, and the name
    /// for one.
    pub full_layers: &'static [(&'static str, &'static str)],
    /// Settings with a value for each layer, which may have values for prediction layers after them.
    pub of_layers: &'static [OfLayers],
    /// The base of RoPE of a folder that states none.
    pub base: f64,
    /// How `rope_scaling` combines with `rope_parameters` per layer type.
    pub older_scaling: OlderScaling,
    /// The names of LongRoPE in this family.
    pub longrope: &'static [&'static str],
    /// Whether LongRoPE's magnitude is `short_mscale` or `long_mscale`.
    pub magnitudes: bool,
    /// Whether a dynamic scaling with `alpha` raises the RoPE base for any sequence length.
    pub alpha: bool,
    /// Whether YaRN's ramp is rounded to whole pairs: a property of the architecture, for which there is no key.
    pub yarn_truncates: bool,
    /// Whether YaRN's magnitude is the ratio of `mscale` and `mscale_all_dim`, which must be 1. Its settings then can
    /// include the query temperature (`llama_4_scaling_beta`), as those of [`Family::yarn_scores`].
    pub yarn_ratio: bool,
    /// Whether YaRN's `mscale_all_dim` is a factor of attention logits. A tenth of it is the key `yarn_log_multiplier`.
    pub yarn_scores: bool,
    /// The part of a head that RoPE rotates.
    pub rotated: Rotated,
    /// Multimodal RoPE: the number of pairs for each of a token's three positions, if the settings have none. The
    /// positions are equal for text.
    pub sections: Option<[u32; 3]>,
    /// `tokenizer.ggml.pre`, if pre-tokenizers of other families have the same rules.
    pub pre: Option<&'static str>,
    /// The tokenizer model of files that store the merges of a SentencePiece tokenizer instead of scores.
    pub merges: Option<Merges>,
    /// Special tokens without a setting: the role (`tokenizer.ggml.{role}_token_id`) and the text.
    pub special_tokens: &'static [(&'static str, &'static str)],
    /// Name prefixes of multi-token prediction (MTP) tensors, which are left out unless they are those of `heads`. So are
    /// tensors of layers after the last layer.
    pub prediction: &'static [&'static str],
    /// The tensors of a prediction head apart from its layer, whose tensors are those of the other layers. Each head is
    /// a layer after the last one. Without rules, heads are left out.
    pub heads: &'static [Rule],
    /// Parts of names of a layer's tensors, and what stands for them in the names of a head's tensors; `{head}` is the number
    /// of the head.
    pub head_names: &'static [(&'static str, &'static str)],
    /// Whether [`Family::heads`] has all tensors of a head, also those of its layer. There is at most one such head.
    pub whole_heads: bool,
    /// Whether the layers of heads have a window.
    pub windowed_heads: bool,
    /// An object of settings, which take precedence over the outer settings.
    pub inner: Option<&'static str>,
    /// Where the types of layers are, if not only in [`LAYER_TYPES`].
    pub layer_types: Option<TypesOfLayers>,
    /// Other families, for some of the models of the same `model_type`: the first that applies.
    pub variants: &'static [(When, &'static Family)],
    /// Prefixes of tensor names, and what stands for them in the rules.
    pub renamed: &'static [(&'static str, &'static str)],
    /// The text model within a multimodal model, if the family is published so.
    pub within: Option<Within>,
    pub expects: &'static [Expect],
    /// Tensors outside the layers.
    pub globals: &'static [&'static [Rule]],
    /// Tensors of every layer.
    pub layer: &'static [&'static [Rule]],
    /// Vectors of every layer that published folders lack.
    pub filled: &'static [Filled],
    /// Every layer also has the tensors of exactly one of these lists, identified by its first tensor.
    pub mixers: &'static [&'static [Rule]],
    /// Every layer also has the tensors of exactly one of these lists, identified by its first tensor.
    pub mlps: &'static [&'static [Rule]],
}

/// The `model_type`s that are read from folders of mlx-lm 0.32.2.
#[derive(Clone, Copy)]
pub enum Mlx {
    /// None.
    No,
    /// These types. MLX only quantises and stacks experts. `convert` also writes such folders.
    Yes(&'static [&'static str]),
    /// These types. MLX also renames, splits or reorders tensors, as the rules state, or no test writes such folders.
    Changed(&'static [&'static str]),
}

/// Where the types of layers are.
pub struct TypesOfLayers {
    /// A string with a letter for each layer.
    pub letters: &'static str,
    /// The types that letters stand for.
    pub types: &'static [(char, &'static str)],
    /// A list of types.
    pub list: &'static str,
}

/// Which models of a `model_type` are of another family.
pub enum When {
    /// One layer is of this type.
    Has(&'static str),
    /// No layer is of this type.
    Lacks(&'static str),
    /// This count is 0.
    Zero(&'static str),
}

/// The text model within a multimodal model.
pub struct Within {
    /// The object with the text model's settings, which take precedence over the outer settings.
    pub settings: &'static str,
    /// Name prefixes of the text model's tensors; the folder's prefix is the first of these that occurs.
    pub tensors: &'static [Prefix],
    /// Name prefixes of the other tensors, which are left out.
    pub towers: &'static [&'static str],
    /// Description of the other tensors in the converter's note.
    pub named: &'static str,
}

/// The vision tower of a multimodal model, as it is published.
pub struct TowerFamily {
    /// `model_type` in `config.json`.
    pub model_types: &'static [&'static str],
    /// `clip.projector_type`.
    pub projector: &'static str,
    /// Keys `clip.{ours}` of the settings in `vision_config`.
    pub keys: &'static [Key],
    /// Keys of the settings around it.
    pub outer_keys: &'static [Key],
    /// Settings in `vision_config` with the only supported value.
    pub expects: &'static [(&'static str, &'static str)],
    /// The setting with the number of layers; `None` for a tower without layers.
    pub layers: Option<&'static str>,
    /// The setting with the layers whose output is added to layers of the text model.
    pub deepstack: Option<&'static str>,
    /// Name prefixes of the tensors, by the release of transformers: pairs of what a rule says and what a folder has.
    pub prefixes: &'static [(&'static str, &'static str)],
    pub globals: &'static [TowerRule],
    /// Tensors of each layer, with `{layer}`.
    pub layer: &'static [TowerRule],
    /// Tensors of each of these layers, with `{layer}`, in the folder with `{index}`.
    pub deepstack_layer: &'static [TowerRule],
}

/// A tensor of a tower, without `.weight` and `.bias` for [`TowerHow::Linear`].
pub struct TowerRule {
    pub ours: &'static str,
    pub theirs: &'static str,
    pub how: TowerHow,
}

/// A rule of a tower for a weight and, if it is there, a bias.
pub(crate) const fn linear(ours: &'static str, theirs: &'static str) -> TowerRule {
    TowerRule { ours, theirs, how: TowerHow::Linear }
}

/// Another rule of a tower.
pub(crate) const fn one(ours: &'static str, theirs: &'static str, how: TowerHow) -> TowerRule {
    TowerRule { ours, theirs, how }
}

/// How a tensor of a tower is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TowerHow {
    /// A weight and, if it is there, a bias.
    Linear,
    /// One tensor.
    Same,
    /// One tensor, if it is there.
    Optional,
    /// A weight in a module `linear` without bias, and next to that the ends of the ranges of its inputs and outputs, if they
    /// are there.
    Clamped,
    /// One tensor, to which 1 is added.
    PlusOne,
    /// Weights of patches whose columns are (row, column, channel).
    ChannelsLast,
    /// The same as a matrix, or a vector of such columns.
    FlatChannelsLast,
    /// Weights of patches whose columns are (channel, row, column).
    ChannelsFirst,
    /// The table of each row's columns and the one of its rows; the folder has both of one position next to each other.
    Tables,
    /// The weights of patches for one of two frames.
    Frame(usize),
    /// The weights of a convolution of squares of patches' rows, (output, channel, row, column).
    Convolution,
    /// One matrix whose rows in each head are pairs of halves; the file has neighbours.
    PairRows,
}

impl TowerFamily {
    /// The tower of a `model_type`.
    pub fn find(model_type: &str) -> Option<&'static TowerFamily> {
        super::TOWER_FAMILIES.iter().copied().find(|family| family.model_types.contains(&model_type))
    }
}

/// A SentencePiece tokenizer with a list of merges.
pub struct Merges {
    /// `tokenizer.ggml.model`.
    pub model: &'static str,
    /// Special tokens that are still part of a completion's text: markers of reasoning and of tool calls.
    pub shown: &'static [&'static str],
}

/// Name prefixes of a text model's tensors within a multimodal model.
pub struct Prefix {
    /// Instead of `model.`.
    pub model: &'static str,
    /// The prefix of names that do not begin with `model.`.
    pub others: &'static str,
}

/// A setting with a value for each layer.
pub enum OfLayers {
    /// A list of any values.
    List(&'static str),
    /// A list of numbers, one for each layer. The numbers of prediction layers are 0 or null.
    Limits(&'static str),
    /// A list of one value for all layers with full attention, and of one for all layers with a window.
    Two {
        list: &'static str,
        /// The name that the value of layers with full attention gets.
        full: &'static str,
        /// The name that the value of layers with a window gets.
        windowed: &'static str,
    },
}

/// How `rope_scaling` combines with `rope_parameters`.
#[derive(Clone, Copy)]
pub enum OlderScaling {
    /// It replaces `rope_parameters`.
    Replaces,
    /// Its settings take precedence for layers with full attention, and only settings per layer type are read.
    Updates,
    /// It is ignored.
    Unread,
}

/// The part of a head that RoPE rotates.
#[derive(Clone, Copy)]
pub enum Rotated {
    /// The whole head: settings that state a part are rejected, if a scaling makes transformers read them.
    Whole,
    /// The same, and transformers always reads them.
    AlwaysWhole,
    /// The width in the settings: `rotary_dim` elements, or the share `partial_rotary_factor`. Without both, this
    /// share.
    Part(f64),
    /// Half of the head in layers with full attention, the whole head in layers with a window.
    HalfUnlessWindowed,
    /// The `qk_rope_head_dim` of `qk_nope_head_dim` more elements. The settings can repeat this share.
    Latent,
    /// A share of the pairs in heads of full attention, whose width is this setting. A tensor of frequency factors sets
    /// the angles of all other pairs to 0.
    Pairs(&'static str),
}

/// A metadata key and the setting that it comes from.
pub struct Key {
    /// The key after `{architecture}.`.
    pub ours: &'static str,
    /// Names of the setting in `config.json`; the first one that is set is used.
    pub theirs: &'static [&'static str],
    pub kind: Kind,
    /// The value if the setting is missing.
    pub or: Or,
}

/// How a setting becomes a key's value.
#[derive(Clone, Copy)]
pub enum Kind {
    /// A whole number.
    Count,
    /// A whole number, or an array with one equal value per layer.
    CountOfLayers,
    /// A float.
    Number,
    /// A float that is not 0; 0 means none and is not written.
    Factor,
    /// A whole number that is not 0; 0 means none and is not written.
    Positive,
    /// A boolean.
    Flag,
    /// A boolean, written only if it differs from this default of the architecture.
    Unless(bool),
    /// Whether each layer has a sliding window. Written only if it differs from the default, in which the last layer of
    /// each `period` has none.
    WindowsUnless { period: usize },
    /// Writes nothing: all layers but the last of every `period` must have chunked attention.
    Chunks { period: usize },
    /// Like the preceding kind, but the first layer of every `period` has full attention.
    WindowsAfterFirstUnless { period: usize },
    /// One whole number per layer: this list if it is set, else one value for all layers.
    CountsOr(&'static str),
    /// One whole number per layer: the setting, or in layers with a window the setting `windowed` of this object.
    CountsOfWindows { object: &'static str, windowed: &'static str },
    /// A list of 0 for the leading layers and 1 for all others. The value is the number of leading ones.
    LeadingZeros,
    /// A list of 0 or 1 per layer, written as numbers: 1 for layers with a window. Also a list of layer types.
    WindowNumbers,
    /// One whole number per layer: the setting, or `windowed` where the list `flags` has 1. Without them, the list of layer
    /// types, and twice the setting.
    CountsOfFlags { flags: &'static str, windowed: &'static str },
    /// One float per layer; `null` is written as 0.
    NumbersOfLayers,
    /// The numbers of the last layers, as a list or as text with commas. The value is the number of layers before them.
    LayersBefore,
    /// Whether each layer has a sliding window.
    Windows,
    /// Whether each layer has a sliding window, or two periods: of the leading dense layers, and of the others.
    WindowsAfterDense,
    /// Writes nothing: every layer must have full attention.
    FullAttention,
    /// 1 / √ of a number; written only if the number differs from this setting.
    InverseRootUnless(&'static str),
    /// A float; written only if it differs from this default of the architecture.
    NumberUnless(f64),
    /// One whole number per layer: 0 for layers of this type, the setting for the others.
    CountUnlessLayer(&'static str),
    /// One whole number per layer: 0 for layers of this type, 1 for the others.
    OneUnlessLayer(&'static str),
    /// One whole number per layer: the setting for layers of the first of these types, 0 for the others, which are of the
    /// other types.
    CountOfLayer(&'static [&'static str]),
    /// One whole number per layer: the setting for layer `offset` of each `period` of layers, 0 for the others.
    CountInPeriod { period: &'static str, offset: &'static str },
    /// One whole number per layer: the setting for layers whose numbers this list has, 0 for the others.
    CountAt(&'static str),
    /// A whole number, or "auto" for a sixteenth of this setting, rounded up.
    CountOrSixteenth(&'static str),
    /// Whether the setting is this string; `null` and "nope" are others.
    IsText(&'static str),
    /// A whole number, or one per layer if this setting differs for layers with full attention.
    CountUnlessFull(&'static str),
    /// The width of an MLP, or one per layer if layers that share KV caches have twice the width.
    WidthUnlessShared,
    /// A whole number, or a list of layer types; the value is then the number of leading layers of this type.
    CountOrFirst(&'static str),
    /// Whether each layer has a state of fixed size; layers of this type do.
    FlagOfLayer(&'static str),
    /// The width of an MLP. If a setting requires it, two thirds of the width, rounded up.
    AdjustedWidth,
    /// A string, written as its number.
    Named(&'static [(&'static str, u32)]),
    /// A float, divided by the square root of this setting (a count).
    OverRootOf(&'static str),
    /// A count that divides this setting; the quotient is written as a float.
    DivisorOf(&'static str),
}

/// The default of a missing setting, as in transformers.
#[derive(Clone, Copy)]
pub enum Or {
    /// The key is left out.
    Skip,
    /// Error: the setting is required.
    Refuse,
    Count(u32),
    Number(f64),
    Flag(bool),
    /// A string, for any kind.
    Text(&'static str),
    /// The value of another setting.
    Same(&'static str),
    /// The sum of two settings.
    Sum(&'static str, &'static str),
    /// One setting times another.
    Product(&'static str, &'static str),
    /// One setting divided by another.
    Quotient(&'static str, &'static str),
}

/// A setting that must be missing or have this value: the only value that the implementation supports.
pub struct Expect {
    pub setting: &'static str,
    pub value: Expected,
}

pub enum Expected {
    Text(&'static str),
    /// One of these strings.
    OneOf(&'static [&'static str]),
    /// One of these texts, or `plain` if the count is at most 1: `plain` ignores groups.
    Grouped {
        count: &'static str,
        texts: &'static [&'static str],
        plain: &'static str,
    },
    Flag(bool),
    /// The value of another setting.
    Same(&'static str),
    /// True, or a number that is not 0.
    True,
    /// A list of which each element is 0 or `null`.
    Zeros,
    /// Two limits, 0 and infinity.
    Unlimited,
    Number(f64),
    /// A list with 0 for the last of each period of this length, and 1 for the others; or an empty list with the same
    /// meaning.
    LastOf(usize),
    /// False, if this flag is true.
    FalseIf(&'static str),
    /// True, or false if a count has this value.
    FlagUnless(&'static str, u32),
}

/// A tensor's name in GGUF (`ours`) and in the folder (`theirs`). In both, `{layer}` is the layer number. In `theirs`,
/// `{expert}` is the expert number, and the tensors of all experts are stacked.
pub struct Rule {
    pub ours: &'static str,
    pub theirs: &'static str,
    pub stored: Layout,
    pub how: How,
    pub change: Change,
    pub need: Need,
}

/// The memory order of a tensor's matrices in the checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Row by row.
    Rows,
    /// A stack of matrices stored column by column: `[experts, inputs, outputs]`.
    Columns,
    /// A stack of MXFP4 matrices stored row by row. `{theirs}_blocks` has bytes of two codes each, `[experts, outputs,
    /// inputs / 32, 16]`; `{theirs}_scales` has one byte per block, `[experts, outputs, inputs / 32]`.
    Mxfp4,
    /// Convolution taps, `[channels, 1, taps]`, in MLX `[channels, taps, 1]`: stored row by row, one row per channel.
    Taps,
    /// The same, or `[channels, taps]`. In GGUF, a channel has a dimension for its one input.
    TapsOfChannels,
}

/// How a vector's values change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Unchanged.
    None,
    /// Adds 1 to each value. MLX has already added it in models with a convolution, and where the folder has the tensor
    /// [`Family::mlx_adds_one`].
    PlusOne,
    /// Each value is the logarithm of a decay; the file stores the negative decay.
    MinusExp,
    /// Each value is the logarithm of a decay; the file stores the decay, as a matrix of one column.
    Exp,
    /// Each value is multiplied by all of these factors. For matrices.
    Times(&'static [Factor]),
}

/// A factor of a tensor, in the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Factor {
    /// A number.
    One(&'static str),
    /// An element of a list.
    Of(&'static str, usize),
    /// A list with a factor for the rows of each input of a selective scan: its gate, values, B, C and Δ.
    ScanInputs(&'static str),
}

/// Which rows of a tensor are written, in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// All rows, unchanged.
    Same,
    /// RoPE rotates pairs of values. transformers stores the first values of a head's pairs before the second values;
    /// llama files store interleaved pairs. So the rows of each head are reordered. The number of heads is the first of
    /// these settings that is set.
    PairRows(&'static [&'static str]),
    /// The reverse of [`How::PairRows`], of the rows that RoPE rotates: transformers stores interleaved pairs, and files of models
    /// with multimodal RoPE have the first values of a head's pairs before the second values.
    HalfRows {
        /// The number of heads: the first of these settings that is set.
        heads: &'static [&'static str],
        /// The part of a head that is rotated, if no setting states it.
        rotated: Share,
    },
    /// The checkpoint's tensor consists of two halves along this axis (0 is outermost, and matrices are row-major).
    /// Takes the first half (0) or the second (1).
    Half { axis: usize, which: usize },
    /// Like [`How::Half`], but the two tensors alternate along the axis.
    Interleaved { axis: usize, which: usize },
    /// The value heads of a delta rule are interleaved over the key heads: head `i` uses key head `i mod keys`.
    /// transformers stores the value heads of a key head together.
    ValueHeads(ValueHeads),
    /// The rows of each head of latent attention are `qk_nope_head_dim` rows for its key, followed by `v_head_dim` rows
    /// for its value. Takes the first part, transposed.
    LatentKeys,
    /// A vector as a matrix of one column.
    Column,
    /// A vector as a matrix with so many rows as this setting says.
    Groups(&'static str),
    /// Takes the second part of [`How::LatentKeys`], unchanged.
    LatentValues,
    /// The checkpoint stores the rows of each key head of a delta rule together: queries, keys, values, gates. Takes
    /// these rows of all heads.
    KeyHeads(&'static [DeltaInput]),
    /// The checkpoint stores the queries, key and value of each KV head together. Takes one of these parts of all
    /// heads. Rows of queries and keys are reordered as by [`How::PairRows`].
    Group(GroupPart),
    /// The checkpoint stores queries, keys and values in one matrix, laid out for tensor parallelism: the queries, keys and
    /// values of the first rank's heads, then those of the second's, and so on. Takes one of these parts of all ranks.
    Ranked(GroupPart),
}

/// A part of a whole, as numerator and denominator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(pub u32, pub u32);

/// A part of the rows of a KV head, or of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupPart {
    Queries,
    Keys,
    Values,
}

/// The axis and position of a tensor's value heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueHeads {
    /// Each row is a head.
    Single,
    /// Each head is a group of rows; there are no other rows.
    Rows,
    /// Each head is a group of rows; the rows of queries and keys precede them.
    RowsAfterKeys,
    /// Each head is a group of columns.
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

/// A vector with equal elements.
pub struct Filled {
    pub ours: &'static str,
    /// The setting with the value; `None` for 1.
    pub value: Option<&'static str>,
    /// The setting with the number of elements.
    pub width: &'static str,
}

/// Whether a tensor is required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    Always,
    /// Optional: only some model variants have the tensor.
    IfThere,
    /// Required unless the output head is the embedding table.
    UnlessTied,
    /// Required if this setting is true; ignored if it is false.
    IfSet(&'static str),
    /// Optional; ignored if this setting is false.
    UnlessUnset(&'static str),
    /// Optional per layer. If this setting is true, it is ignored in layers with full attention.
    UnlessFull(&'static str),
}

/// The matrices of an expert in some families, and MLX's names for them.
const MATRICES: &[(&str, &str)] = &[("w1", "gate_proj"), ("w2", "down_proj"), ("w3", "up_proj")];

/// MLX's names of the stack that contains this expert matrix, the most common name first, and the expert number.
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

    /// The `model_type`s that are read from MLX folders.
    pub fn read_of_mlx() -> impl Iterator<Item = &'static str> {
        FAMILIES
            .iter()
            .flat_map(|family| match family.mlx {
                Mlx::No => &[],
                Mlx::Yes(types) | Mlx::Changed(types) => types,
            })
            .copied()
    }

    /// The `model_type`s that are written as MLX folders.
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
