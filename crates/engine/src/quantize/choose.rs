//! Which format each tensor gets: the rules of a [`Mix`], the user's exceptions, and what fits the shape.

use gristmill_kernels::format::Format;

use super::error::QuantizeError;
use super::mix::{Mix, Part, When};
use crate::gguf::{FromValue, Metadata};

/// What the choice of formats depends on, of the whole model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// `general.architecture`.
    pub architecture: String,
    /// `block_count`.
    pub layers: u32,
    /// `attention.head_count`.
    pub heads: u32,
    /// `attention.head_count_kv`.
    pub kv_heads: u32,
    /// `expert_count`; 0 in a dense model.
    pub experts: u32,
}

impl Facts {
    /// Reads the facts. A key that is missing or of another type counts as 0: also models that do not run here can be
    /// quantised. Of numbers for each layer, the first counts.
    pub fn read(metadata: &Metadata) -> Facts {
        let architecture = metadata.get_str("general.architecture").unwrap_or_default().to_owned();
        let number = |key: &str| {
            let value = metadata.value(&format!("{architecture}.{key}"));
            let one = value.and_then(|v| u32::from_value(v).ok());
            one.or_else(|| Vec::<u32>::from_value(value?).ok()?.first().copied()).unwrap_or(0)
        };
        let [layers, heads, kv_heads, experts] =
            ["block_count", "attention.head_count", "attention.head_count_kv", "expert_count"].map(number);
        Facts { architecture, layers, heads, kv_heads, experts }
    }

    /// At least four query heads share a key and value head. Without a number of those, each query head has its own.
    fn shares_keys(&self) -> bool {
        self.kv_heads > 0 && self.heads / self.kv_heads >= 4
    }

    /// llama.cpp gives the value projections of what it takes for 70B models, 80 layers of few value heads, more bits.
    fn is_70b(&self) -> bool {
        self.layers == 80
            && (self.architecture == "qwen2" || self.architecture == "llama" && self.heads != self.kv_heads)
    }
}

/// An exception from the mix: tensors whose names match the pattern get this format.
///
/// In a pattern `*` stands for any characters, also none, and `?` for one; it must match the whole name. Of several
/// patterns that match, the last one counts. Only weights that a mix may quantise are matched: norms, biases and
/// routers stay as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keep {
    /// The pattern.
    pub pattern: String,
    /// The format.
    pub format: Format,
}

impl Keep {
    /// Parses `PATTERN=FORMAT`.
    ///
    /// # Errors
    /// If there is no `=`, the pattern is empty, or no format has that name.
    pub fn parse(text: &str) -> Result<Keep, QuantizeError> {
        let wrong = || QuantizeError::Keep { text: text.to_owned() };
        let (pattern, name) = text.rsplit_once('=').ok_or_else(wrong)?;
        if pattern.is_empty() {
            return Err(wrong());
        }
        let format = Format::named(name).ok_or_else(|| QuantizeError::Format { name: name.to_owned() })?;
        Ok(Keep { pattern: pattern.to_owned(), format })
    }

    /// Whether the pattern matches a whole name.
    pub fn matches(&self, name: &str) -> bool {
        glob(self.pattern.as_bytes(), name.as_bytes())
    }
}

/// Matches in at most pattern × name steps: only the last `*` is ever tried again.
fn glob(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    // After the last `*`: where the pattern goes on, and how much of the name it has taken.
    let mut star = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, n));
                p += 1;
            }
            Some(&c) if c == b'?' || c == name[n] => (p, n) = (p + 1, n + 1),
            _ => match &mut star {
                Some((after, taken)) => {
                    *taken += 1;
                    (p, n) = (*after, *taken);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

/// The format of one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The format that it gets. `None` for what is never quantised: anything of one dimension, norms, biases, routers
    /// and other small matrices. These stay as they are; a conversion writes them in F32.
    pub format: Option<Format>,
    /// The format that mix or exception asked for, if the rows of the tensor are not whole blocks of it.
    pub instead_of: Option<Format>,
}

/// Chooses a format for each tensor, of which `tensors` gives name and shape (innermost dimension first).
///
/// ```
/// use gristmill_engine::quantize::{Facts, Mix, choose};
/// use gristmill_kernels::format::Format;
///
/// let facts = Facts { architecture: "qwen3".into(), layers: 1, heads: 4, kv_heads: 2, experts: 0 };
/// let tensors: [(&str, &[u64]); 2] = [("blk.0.attn_q.weight", &[256, 256]), ("blk.0.attn_norm.weight", &[256])];
/// let choices = choose(&Mix::named("Q4_K_M").unwrap(), &[], &facts, &tensors)?;
/// assert_eq!(choices[0].format, Some(Format::Q4_K));
/// assert_eq!(choices[1].format, None);
/// # Ok::<(), gristmill_engine::quantize::QuantizeError>(())
/// ```
///
/// # Errors
/// [`QuantizeError::NoMatch`] if a pattern matches no tensor that may be quantised.
pub fn choose(
    mix: &Mix,
    keep: &[Keep],
    facts: &Facts,
    tensors: &[(&str, &[u64])],
) -> Result<Vec<Choice>, QuantizeError> {
    let quantised = |name: &str, shape: &[u64]| is_matrix(shape) && is_quantised(name);
    for exception in keep {
        if !tensors.iter().any(|(name, shape)| quantised(name, shape) && exception.matches(name)) {
            let small = tensors.iter().any(|(name, _)| exception.matches(name));
            return Err(QuantizeError::NoMatch { pattern: exception.pattern.clone(), small });
        }
    }
    let tied = tensors.iter().all(|(name, _)| *name != OUTPUT);
    let values = value_ranks(tensors);
    let of = |i: usize, name: &str, shape: &[u64]| {
        if !quantised(name, shape) {
            return Choice { format: None, instead_of: None };
        }
        let exception = keep.iter().rev().find(|keep| keep.matches(name)).map(|keep| keep.format);
        let wanted = exception.unwrap_or_else(|| by_rules(mix, facts, name, shape, tied, values[i]));
        let format = fitting(wanted, shape[0]);
        Choice { format: Some(format), instead_of: (format != wanted).then_some(wanted) }
    };
    Ok(tensors.iter().enumerate().map(|(i, (name, shape))| of(i, name, shape)).collect())
}

/// The format nearest to `wanted` for rows of this many columns: the one itself, one of blocks of 32 with as many bits
/// or more, or F16 (llama.cpp's choices).
fn fitting(wanted: Format, columns: u64) -> Format {
    let whole = |format: Format| columns.is_multiple_of(format.block_len() as u64);
    if whole(wanted) {
        return wanted;
    }
    let smaller = match wanted {
        Format::Q2_K | Format::Q3_K => Format::Q4_0,
        Format::IQ4_XS => Format::IQ4_NL,
        Format::Q4_K => Format::Q5_0,
        Format::Q5_K => Format::Q5_1,
        Format::Q6_K => Format::Q8_0,
        _ => Format::F16,
    };
    if whole(smaller) { smaller } else { Format::F16 }
}

fn by_rules(mix: &Mix, facts: &Facts, name: &str, shape: &[u64], tied: bool, values: Option<(u32, u32)>) -> Format {
    let part = match Part::of(name) {
        Part::Embedding if tied => Part::Output,
        part => part,
    };
    if part == Part::Output && !mix.base.is_float() {
        // Rows that the base format does not fit get Q8_0, although Q6_K might.
        let fits = shape[0].is_multiple_of(mix.base.block_len() as u64);
        return if fits { mix.output } else { Format::Q8_0 };
    }
    // The value projections are counted, since not every layer of every model has one.
    let (layer, layers) = values.unwrap_or_else(|| (layer(name).unwrap_or(0), facts.layers));
    let holds = |when| match when {
        When::Always => true,
        When::First(n) => layer < n,
        When::FirstShare(n) => layer < layers / n,
        When::MoreBits => more_bits(layer, layers),
        When::SharedKeys => facts.shares_keys(),
        When::EightExperts => facts.experts == 8,
        When::NotEightExperts => facts.experts != 8,
        When::Experts => shape.get(2).is_some_and(|&n| n > 1),
    };
    let rule = mix.rules.iter().find(|&&(of, when, _)| (of == part || of == Part::Any) && holds(when));
    let format = rule.map_or(mix.base, |rule| rule.2);
    match format {
        Format::Q3_K | Format::Q4_K if part == Part::Value && facts.is_70b() => Format::Q5_K,
        other => other,
    }
}

/// The first and the last eighth of the layers, and every third between.
fn more_bits(layer: u32, layers: u32) -> bool {
    let eighth = layers / 8;
    layer < eighth || u64::from(layer) >= 7 * u64::from(layers) / 8 || (layer - eighth) % 3 == 2
}

const OUTPUT: &str = "output.weight";

/// Parts by what their names contain; the first line that fits counts.
const PARTS: &[(&str, Part)] = &[
    ("attn_qkv.weight", Part::Value),
    ("attn_kv_b.weight", Part::Value),
    ("attn_v.weight", Part::Value),
    ("attn_k.weight", Part::Key),
    ("attn_output.weight", Part::AttentionOutput),
    ("ffn_down", Part::Down),
];

/// Matrices that are never quantised, by what their names contain: routers, and small ones that errors hurt.
const NEVER: &[&str] = &[
    "_norm.weight",
    "ffn_gate_inp.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "attn_rel_b.weight",
    "position_embd",
    "token_types.weight",
    "time_mix_first.weight",
    "time_mix_lerp_fused.weight",
    "time_mix_w",
    "time_mix_v",
    "time_mix_a",
    "time_mix_g",
    "time_mix_decay_w",
];

impl Part {
    fn of(name: &str) -> Part {
        match name {
            OUTPUT => Part::Output,
            "token_embd.weight" | "per_layer_token_embd.weight" => Part::Embedding,
            _ => PARTS.iter().find(|(text, _)| name.contains(text)).map_or(Part::Other, |(_, part)| *part),
        }
    }
}

/// More than one row.
fn is_matrix(shape: &[u64]) -> bool {
    shape.iter().skip(1).any(|&n| n > 1)
}

fn is_quantised(name: &str) -> bool {
    name.ends_with("weight") && !NEVER.iter().any(|text| name.contains(text))
}

/// The layer in `blk.LAYER.`.
fn layer(name: &str) -> Option<u32> {
    name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}

/// For each value projection its rank among them in the order of layers, and their number.
fn value_ranks(tensors: &[(&str, &[u64])]) -> Vec<Option<(u32, u32)>> {
    let mut values: Vec<usize> = (0..tensors.len()).filter(|&i| Part::of(tensors[i].0) == Part::Value).collect();
    values.sort_by_key(|&i| (layer(tensors[i].0), tensors[i].0));
    let mut ranks = vec![None; tensors.len()];
    for (rank, &i) in values.iter().enumerate() {
        ranks[i] = Some((rank as u32, values.len() as u32));
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let matches = |pattern: &str, name| Keep { pattern: pattern.to_owned(), format: Format::F16 }.matches(name);
        for (pattern, name) in [
            ("output.weight", "output.weight"),
            ("*", "anything"),
            ("*", ""),
            ("blk.*.ffn_down*", "blk.12.ffn_down_exps.weight"),
            ("blk.?.attn_v.weight", "blk.3.attn_v.weight"),
            ("*attn*weight", "blk.3.attn_attn.weightweight"),
            ("a*b*c", "axxbxbxc"),
            ("**x**", "x"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("output", "output.weight"),
            ("blk.?.attn_v.weight", "blk.13.attn_v.weight"),
            ("", "x"),
            ("?", ""),
            ("a*b", "abc"),
            ("*a", "b"),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
        // A pattern that makes a backtracking matcher take exponential time.
        assert!(!matches(&"*a".repeat(1000), &"a".repeat(999)));
    }

    #[test]
    fn exceptions_are_parsed() {
        assert_eq!(Keep::parse("a=b=q8_0").unwrap(), Keep { pattern: "a=b".into(), format: Format::Q8_0 });
        for text in ["", "x", "=Q8_0"] {
            assert!(matches!(Keep::parse(text), Err(QuantizeError::Keep { .. })), "{text}");
        }
        for text in ["x=", "x=Q4_K_M", "x=Q9"] {
            assert!(matches!(Keep::parse(text), Err(QuantizeError::Format { .. })), "{text}");
        }
    }

    const MATRIX: &[u64] = &[512, 512];

    fn one(mix: &str, keep: &[&str], name: &str, shape: &[u64]) -> Choice {
        let keep: Vec<Keep> = keep.iter().map(|text| Keep::parse(text).unwrap()).collect();
        let facts = Facts { architecture: "x".into(), layers: 16, heads: 8, kv_heads: 8, experts: 0 };
        choose(&Mix::named(mix).unwrap(), &keep, &facts, &[(name, shape), (OUTPUT, MATRIX)]).unwrap()[0]
    }

    #[test]
    fn the_last_exception_that_matches_counts() {
        let format = |keep: &[&str]| one("Q4_K_M", keep, "blk.7.ffn_up.weight", MATRIX).format.unwrap();
        assert_eq!(format(&[]), Format::Q4_K);
        assert_eq!(format(&["*=Q8_0", "*up*=F16"]), Format::F16);
        assert_eq!(format(&["*up*=F16", "*=Q8_0"]), Format::Q8_0);
    }

    #[test]
    fn rows_that_are_not_whole_blocks_get_another_format() {
        for (mix, columns, instead, format) in [
            ("Q2_K", 96, Format::Q2_K, Format::Q4_0),
            ("Q3_K_S", 96, Format::Q3_K, Format::Q4_0),
            ("Q4_K_S", 96, Format::Q4_K, Format::Q5_0),
            ("Q5_K_S", 96, Format::Q5_K, Format::Q5_1),
            ("Q6_K", 96, Format::Q6_K, Format::Q8_0),
            ("IQ4_XS", 96, Format::IQ4_XS, Format::IQ4_NL),
            ("Q4_K_S", 100, Format::Q4_K, Format::F16),
            ("Q8_0", 100, Format::Q8_0, Format::F16),
        ] {
            let choice = one(mix, &[], "blk.7.ffn_up.weight", &[columns, 4]);
            assert_eq!(choice, Choice { format: Some(format), instead_of: Some(instead) }, "{mix}");
        }
        let choice = one("Q4_K_M", &["*=Q6_K"], "blk.7.ffn_up.weight", &[96, 4]);
        assert_eq!(choice, Choice { format: Some(Format::Q8_0), instead_of: Some(Format::Q6_K) });
    }

    #[test]
    fn what_is_never_quantised() {
        for (name, shape) in [
            ("blk.0.attn_norm.weight", &[512][..]),
            ("blk.0.attn_q_norm.weight", &[128, 8]),
            ("blk.0.ffn_gate_inp.weight", &[512, 64]),
            ("blk.0.ffn_down_exps.bias", &[512, 64]),
            ("blk.0.attn_sinks.weight", &[64, 1, 1]),
            ("blk.0.ffn_gate_inp_shexp.weight", &[512, 1]),
        ] {
            assert_eq!(one("Q4_0", &[], name, shape).format, None, "{name}");
        }
    }

    #[test]
    fn more_bits_go_to_both_ends_of_any_number_of_layers() {
        assert_eq!((0..32).filter(|&layer| more_bits(layer, 32)).count(), 16);
        let all = u32::MAX;
        for layer in [0, all / 8 - 1, all / 8 + 2, all - all / 8, all - 1] {
            assert!(more_bits(layer, all), "{layer}");
        }
        assert!(!more_bits(all / 8, all) && !more_bits(all / 8 + 3, all));
    }

    #[test]
    fn a_pattern_without_a_match_is_refused() {
        let tensors: &[(&str, &[u64])] = &[("blk.0.attn_norm.weight", &[512]), ("output.weight", MATRIX)];
        let refused = |pattern: &str| {
            let keep = [Keep { pattern: pattern.to_owned(), format: Format::F16 }];
            match choose(&Mix::named("Q4_0").unwrap(), &keep, &Facts::default(), tensors).unwrap_err() {
                QuantizeError::NoMatch { pattern: found, small } if found == pattern => small,
                other => panic!("{other}"),
            }
        };
        assert!(refused("*norm*"));
        assert!(!refused("ouptut*"));
    }
}
