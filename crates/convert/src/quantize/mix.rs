//! The usual mixes, as data: which formats the tensors of a model get.
//!
//! Names, numbers and choices are those of llama.cpp's quantiser (`src/llama-quant.cpp` of the version that
//! llama-cpp-python 0.3.36 carries), without an importance matrix. `NVFP4` is gristmill's own: llama.cpp only converts
//! published NVFP4 weights, and leaves embeddings and output head as they are.

use gristmill_kernels::format::Format::{self, *};

use super::error::QuantizeError;
use super::role::Role;

/// In which models and layers a rule holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum When {
    Always,
    /// In the first layers, this many.
    First(u32),
    /// In the first ⌊layers / n⌋ layers.
    FirstShare(u32),
    /// In the first and the last eighth of the layers, and in every third between.
    MoreBits,
    /// Where at least four query heads share a key and value head: a value projection is small then.
    SharedKeys,
    /// Where value projections are a small share of the weights: see [`super::Facts::few_values`].
    FewValues,
    /// In models of exactly eight experts (Mixtral), and of any other number.
    EightExperts,
    NotEightExperts,
    /// In stacks of experts.
    Experts,
    /// Where the file can have a scale of the tensor: see [`super::outer`].
    Scaled,
}

/// A rule: the first that fits a tensor decides its format.
pub(super) type Rule = (Role, When, Format);

/// A mix: a format for most weights, and rules for those that get another.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    name: &'static str,
    file_type: u32,
    pub(super) base: Format,
    pub(super) output: Format,
    pub(super) rules: &'static [Rule],
}

/// Other names of mixes.
const ALIASES: &[(&str, &str)] = &[("Q3_K", "Q3_K_M"), ("Q4_K", "Q4_K_M"), ("Q5_K", "Q5_K_M"), ("MXFP4", "MXFP4_MOE")];

use Role::{AttentionOutput, Down, Key, Value};
use When::{
    Always, EightExperts, Experts, FewValues, First, FirstShare, MoreBits, NotEightExperts, Scaled, SharedKeys,
};

/// A row of the table.
const fn mix(name: &'static str, file_type: u32, base: Format, output: Format, rules: &'static [Rule]) -> Mix {
    Mix { name, file_type, base, output, rules }
}

/// Columns: name, number in `general.file_type`, format of most weights, of the output head, rules.
const MIXES: &[Mix] = &[
    mix("F32", 0, F32, F32, &[]),
    mix("BF16", 32, BF16, BF16, &[]),
    mix("F16", 1, F16, F16, &[]),
    mix("Q8_0", 7, Q8_0, Q8_0, EIGHT),
    mix("Q6_K", 18, Q6_K, Q6_K, EIGHT),
    mix("Q5_K_M", 17, Q5_K, Q6_K, Q5_K_M),
    mix("Q5_K_S", 16, Q5_K, Q6_K, EIGHT),
    mix("Q5_1", 9, Q5_1, Q6_K, EIGHT),
    mix("Q5_0", 8, Q5_0, Q6_K, EIGHT),
    mix("Q4_K_M", 15, Q4_K, Q6_K, Q4_K_M),
    mix("Q4_K_S", 14, Q4_K, Q6_K, Q4_K_S),
    mix("IQ4_NL", 25, IQ4_NL, Q6_K, IQ4),
    mix("IQ4_XS", 30, IQ4_XS, Q6_K, IQ4),
    mix("Q4_1", 3, Q4_1, Q6_K, EIGHT),
    mix("Q4_0", 2, Q4_0, Q6_K, EIGHT),
    mix("MXFP4_MOE", 38, Q8_0, Q8_0, MXFP4_MOE),
    mix("NVFP4", 39, Q8_0, Q8_0, NVFP4_SCALES),
    mix("Q3_K_L", 13, Q3_K, Q6_K, Q3_K_L),
    mix("Q3_K_M", 12, Q3_K, Q6_K, Q3_K_M),
    mix("Q3_K_S", 11, Q3_K, Q6_K, Q3_K_S),
    mix("Q2_K", 10, Q2_K, Q6_K, Q2_K_M),
];

/// The formats to which such a tensor is raised, from those that the rules have given it.
pub(super) const RAISED: &[(Role, When, Format, Format)] =
    &[(Value, FewValues, Q3_K, Q5_K), (Value, FewValues, Q4_K, Q5_K)];

/// Where rows are not whole blocks of the first format, they may be of the second, which has shorter blocks and at
/// least as many bits.
pub(super) const SHORTER_BLOCKS: &[(Format, Format)] =
    &[(Q2_K, Q4_0), (Q3_K, Q4_0), (Q4_K, Q5_0), (Q5_K, Q5_1), (Q6_K, Q8_0), (IQ4_XS, IQ4_NL), (NVFP4, IQ4_NL)];

/// The format of an output head whose rows are not whole blocks of the mix's base.
pub(super) const OUTPUT_OF_OTHER_ROWS: Format = Q8_0;

/// The format of the output head in a mix of a format that is the base of none.
const OUTPUT_OF_NO_BASE: Format = Q6_K;

/// In a model of eight experts attention is a small share of the weights.
const VALUE_OF_EIGHT: Rule = (Value, EightExperts, Q8_0);
const KEY_OF_EIGHT: Rule = (Key, EightExperts, Q8_0);
const MIXED_OF_EIGHT: Rule = (AttentionOutput, EightExperts, Q5_K);

const EIGHT: &[Rule] = &[VALUE_OF_EIGHT, KEY_OF_EIGHT];
const Q5_K_M: &[Rule] = &[VALUE_OF_EIGHT, KEY_OF_EIGHT, (Value, MoreBits, Q6_K), (Down, MoreBits, Q6_K)];
const Q4_K_M: &[Rule] =
    &[VALUE_OF_EIGHT, KEY_OF_EIGHT, MIXED_OF_EIGHT, (Value, MoreBits, Q6_K), (Down, MoreBits, Q6_K)];
const Q4_K_S: &[Rule] =
    &[VALUE_OF_EIGHT, KEY_OF_EIGHT, MIXED_OF_EIGHT, (Value, First(4), Q5_K), (Down, FirstShare(8), Q5_K)];
const IQ4: &[Rule] =
    &[VALUE_OF_EIGHT, KEY_OF_EIGHT, MIXED_OF_EIGHT, (Value, SharedKeys, Q5_K), (Down, FirstShare(8), Q5_K)];
const MXFP4_MOE: &[Rule] = &[(Role::Any, Experts, MXFP4)];
const NVFP4_SCALES: &[Rule] = &[(Role::Any, Scaled, NVFP4)];
const Q3_K_L: &[Rule] = &[
    VALUE_OF_EIGHT,
    KEY_OF_EIGHT,
    (Value, Always, Q5_K),
    (Down, Always, Q5_K),
    (AttentionOutput, NotEightExperts, Q5_K),
];
const Q3_K_M: &[Rule] = &[
    VALUE_OF_EIGHT,
    KEY_OF_EIGHT,
    MIXED_OF_EIGHT,
    (Value, First(2), Q5_K),
    (Value, Always, Q4_K),
    (Down, FirstShare(16), Q5_K),
    (Down, Always, Q4_K),
    (AttentionOutput, Always, Q4_K),
];
const Q3_K_S: &[Rule] = &[VALUE_OF_EIGHT, KEY_OF_EIGHT, MIXED_OF_EIGHT];
const Q2_K_M: &[Rule] = &[
    VALUE_OF_EIGHT,
    KEY_OF_EIGHT,
    MIXED_OF_EIGHT,
    (Value, SharedKeys, Q4_K),
    (Value, Always, Q3_K),
    (Down, Always, Q3_K),
    (AttentionOutput, Always, Q3_K),
];

/// The formats that tensors of a quantised model can have.
pub(super) fn quantised_to() -> impl Iterator<Item = Format> {
    Format::numbered().filter(|format| !format.is_read_only())
}

impl Mix {
    /// The mix that goes by this name, in any case. `Q3_K`, `Q4_K` and `Q5_K` are short for `Q3_K_M` and so on, and
    /// `MXFP4` for `MXFP4_MOE`: llama.cpp's names. Every format that is not only read is the name of a mix.
    ///
    /// ```
    /// use gristmill_convert::quantize::Mix;
    ///
    /// assert_eq!(Mix::named("q4_k").unwrap().name(), "Q4_K_M");
    /// assert!(Mix::named("Q4_X").is_none());
    /// ```
    pub fn named(name: &str) -> Option<Mix> {
        let alias = ALIASES.iter().find(|(alias, _)| alias.eq_ignore_ascii_case(name));
        let name = alias.map_or(name, |(_, name)| name);
        MIXES.iter().copied().find(|mix| mix.name.eq_ignore_ascii_case(name))
    }

    /// [`named`](Self::named), or an error that lists the names.
    ///
    /// # Errors
    /// [`QuantizeError::Mix`].
    pub fn parse(name: &str) -> Result<Mix, QuantizeError> {
        Self::named(name).ok_or_else(|| QuantizeError::Mix(name.to_owned()))
    }

    /// One format for all weights but the output head, which is `Q6_K` unless the format is a float or `Q8_0`.
    pub fn uniform(format: Format) -> Mix {
        let of_base = MIXES.iter().find(|mix| mix.base == format).map(|mix| (mix.file_type, mix.output));
        let of_rule = || MIXES.iter().find(|mix| mix.rules.iter().any(|rule| rule.2 == format));
        let (file_type, output) =
            of_base.unwrap_or_else(|| (of_rule().map_or(0, |mix| mix.file_type), OUTPUT_OF_NO_BASE));
        Mix { name: format.name(), file_type, base: format, output, rules: &[] }
    }

    /// All mixes that have a name of their own.
    pub fn all() -> &'static [Mix] {
        MIXES
    }

    /// The name, such as `Q4_K_M`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its number in `general.file_type`.
    pub fn file_type(&self) -> u32 {
        self.file_type
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_the_name_of_a_mix() {
        for format in &quantised_to().collect::<Vec<_>>() {
            let mix = Mix::named(format.name()).unwrap_or_else(|| panic!("{format}"));
            let has = mix.base == *format || mix.rules.iter().any(|rule| rule.2 == *format);
            assert!(has, "{} has no {format}", mix.name);
            assert_eq!(Mix::uniform(*format).name(), format.name());
        }
    }

    #[test]
    fn names_and_numbers_are_used_once() {
        for (i, mix) in MIXES.iter().enumerate() {
            assert!(MIXES[..i].iter().all(|other| other.name != mix.name && other.file_type != mix.file_type));
        }
        for (alias, name) in ALIASES {
            assert_eq!(Mix::named(alias).map(|mix| mix.name), Some(*name));
        }
    }
}
