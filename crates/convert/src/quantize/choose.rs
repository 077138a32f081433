//! Which format each tensor gets: the rules of a [`Mix`], the user's exceptions, and what fits the shape.

use std::collections::HashSet;

use gristmill_kernels::format::Format;

use super::error::QuantizeError;
use super::facts::Facts;
use super::keep::Keep;
use super::mix::{Mix, OUTPUT_OF_OTHER_ROWS, RAISED, SHORTER_BLOCKS, When};
use super::outer::scale_name;
use super::role::{OUTPUT, Role, is_converted, is_quantised};

/// The format of one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The format that the tensor gets. `None` for tensors that are never quantised: vectors, norms, biases, routers
    /// and other small matrices. They keep their format; a conversion writes nearly all of them in F32.
    pub format: Option<Format>,
    /// The format of mix or exception, if the rows of the tensor are not whole blocks of it.
    pub instead_of: Option<Format>,
}

/// Chooses a format for each tensor, of which `tensors` gives name and shape (innermost dimension first).
///
/// ```
/// use gristmill_convert::quantize::{Facts, Mix, choose};
/// use gristmill_kernels::format::Format;
///
/// let facts = Facts { layers: 1, heads: 4, kv_heads: 2, ..Facts::default() }.of("qwen3");
/// let tensors: [(&str, &[u64]); 2] = [("blk.0.attn_q.weight", &[256, 256]), ("blk.0.attn_norm.weight", &[256])];
/// let choices = choose(&Mix::named("Q4_K_M").unwrap(), &[], &facts, &tensors)?;
/// assert_eq!(choices[0].format, Some(Format::Q4_K));
/// assert_eq!(choices[1].format, None);
/// # Ok::<(), gristmill_convert::quantize::QuantizeError>(())
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
    let names: HashSet<&str> = tensors.iter().map(|(name, _)| *name).collect();
    let of = |i: usize, name: &str, shape: &[u64]| {
        if !quantised(name, shape) {
            return Choice { format: None, instead_of: None };
        }
        let exception = keep.iter().rev().find(|keep| keep.matches(name)).map(|keep| keep.format);
        let wanted = exception.unwrap_or_else(|| by_rules(mix, facts, (name, shape), tied, values[i], &names));
        let format = fitting(wanted, shape[0]);
        Choice { format: Some(format), instead_of: (format != wanted).then_some(wanted) }
    };
    Ok(tensors.iter().enumerate().map(|(i, (name, shape))| of(i, name, shape)).collect())
}

/// The format in which a conversion writes a tensor of format `from` that is never quantised: F32, but for matrices that
/// llama.cpp's converter writes in each type that it knows, as all others. Its quantiser then keeps their format.
pub fn unquantised(mix: &Mix, name: &str, shape: &[u64], from: Format) -> Format {
    if !is_matrix(shape) || !is_converted(name) {
        return Format::F32;
    }
    let known = mix.base.is_float() || mix.name() == Format::Q8_0.name();
    if known { fitting(mix.base, shape[0]) } else { from }
}

/// The format nearest to `wanted` for rows of this many columns: `wanted`, its substitute with shorter blocks, or F16,
/// whose blocks are single elements.
fn fitting(wanted: Format, columns: u64) -> Format {
    let whole = |format: &Format| columns.is_multiple_of(format.block_len() as u64);
    let shorter = SHORTER_BLOCKS.iter().find(|(long, _)| *long == wanted).map(|&(_, short)| short);
    [Some(wanted), shorter].into_iter().flatten().find(whole).unwrap_or(Format::F16)
}

fn by_rules(
    mix: &Mix,
    facts: &Facts,
    (name, shape): (&str, &[u64]),
    tied: bool,
    values: Option<(u32, u32)>,
    names: &HashSet<&str>,
) -> Format {
    let role = match Role::of(name) {
        Role::Embedding if tied => Role::Output,
        role => role,
    };
    if role == Role::Output && !mix.base.is_float() {
        let fits = shape[0].is_multiple_of(mix.base.block_len() as u64);
        return if fits { mix.output } else { OUTPUT_OF_OTHER_ROWS };
    }
    // The value projections are counted, since not every layer of every model has one.
    let (layer, layers) = values.unwrap_or_else(|| (layer(name).unwrap_or(0), facts.layers));
    let holds = |when| match when {
        When::Always => true,
        When::First(n) => layer < n,
        When::FirstShare(n) => layer < layers / n,
        When::MoreBits => more_bits(layer, layers),
        When::SharedKeys => facts.shares_keys(),
        When::FewValues => facts.few_values,
        When::EightExperts => facts.experts == 8,
        When::NotEightExperts => facts.experts != 8,
        When::Scaled => scale_name(name, names).is_some(),
        When::Experts => shape.get(2).is_some_and(|&n| n > 1),
    };
    let rule = mix.rules.iter().find(|&&(of, when, _)| (of == role || of == Role::Any) && holds(when));
    let format = rule.map_or(mix.base, |rule| rule.2);
    let raised = RAISED.iter().find(|&&(of, when, from, _)| of == role && from == format && holds(when));
    raised.map_or(format, |raise| raise.3)
}

/// The first and the last eighth of the layers, and every third between.
fn more_bits(layer: u32, layers: u32) -> bool {
    let eighth = layers / 8;
    layer < eighth || u64::from(layer) >= 7 * u64::from(layers) / 8 || (layer - eighth) % 3 == 2
}

/// More than one row.
fn is_matrix(shape: &[u64]) -> bool {
    shape.iter().skip(1).any(|&n| n > 1)
}

/// The layer in `blk.LAYER.`.
fn layer(name: &str) -> Option<u32> {
    name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}

/// For each value projection its rank among them in the order of layers, and their number.
fn value_ranks(tensors: &[(&str, &[u64])]) -> Vec<Option<(u32, u32)>> {
    let mut values: Vec<usize> = (0..tensors.len()).filter(|&i| Role::of(tensors[i].0) == Role::Value).collect();
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

    const MATRIX: &[u64] = &[512, 512];

    fn one(mix: &str, keep: &[&str], name: &str, shape: &[u64]) -> Choice {
        let keep: Vec<Keep> = keep.iter().map(|text| Keep::parse(text).unwrap()).collect();
        let facts = Facts { layers: 16, heads: 8, kv_heads: 8, ..Facts::default() };
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
            ("NVFP4", 96, Format::NVFP4, Format::IQ4_NL),
            ("Q4_K_S", 100, Format::Q4_K, Format::F16),
            ("Q8_0", 100, Format::Q8_0, Format::F16),
        ] {
            let choice = one(mix, &[], "blk.7.ffn_up.weight", &[columns, 4]);
            assert_eq!(choice, Choice { format: Some(format), instead_of: Some(instead) }, "{mix}");
        }
        let choice = one("Q4_K_M", &["*=Q6_K"], "blk.7.ffn_up.weight", &[96, 4]);
        assert_eq!(choice, Choice { format: Some(Format::Q8_0), instead_of: Some(Format::Q6_K) });
    }

    /// Value projections of Q3_K and Q4_K become Q5_K in models of 80 layers with few value heads, by any rule or none.
    #[test]
    fn few_values_get_more_bits() {
        let format = |mix: Mix, architecture: &str, layers: u32, kv_heads: u32, name: &str| {
            let facts = Facts { layers, heads: 64, kv_heads, ..Facts::default() }.of(architecture);
            let tensors: Vec<String> = (0..layers).map(|layer| format!("blk.{layer}.{name}")).collect();
            let tensors: Vec<(&str, &[u64])> = tensors.iter().map(|name| (name.as_str(), MATRIX)).collect();
            // Layer 13 gets no more bits by its place.
            choose(&mix, &[], &facts, &tensors).unwrap()[13].format.unwrap()
        };
        let named = |name| Mix::named(name).unwrap();
        let (value, key) = ("attn_v.weight", "attn_k.weight");
        for (architecture, layers, kv_heads, few) in [
            ("llama", 80, 8, true),
            ("llama", 80, 64, false),
            ("llama", 79, 8, false),
            ("qwen2", 80, 8, true),
            ("qwen2", 80, 64, true),
            ("qwen3", 80, 8, false),
        ] {
            let found = |mix, name| format(mix, architecture, layers, kv_heads, name);
            for (mix, otherwise) in [
                (named("Q4_K_M"), Format::Q4_K),
                (named("Q4_K_S"), Format::Q4_K),
                (named("Q3_K_M"), Format::Q4_K),
                (named("Q3_K_S"), Format::Q3_K),
                (named("Q2_K"), if kv_heads == 8 { Format::Q4_K } else { Format::Q3_K }),
                (Mix::uniform(Format::Q3_K), Format::Q3_K),
                (Mix::uniform(Format::Q4_K), Format::Q4_K),
            ] {
                let expected = if few { Format::Q5_K } else { otherwise };
                assert_eq!(found(mix, value), expected, "{} {architecture} {layers} {kv_heads}", mix.name());
            }
            assert_eq!(found(named("Q4_K_M"), key), Format::Q4_K);
            assert_eq!(found(named("Q6_K"), value), Format::Q6_K);
            assert_eq!(found(named("Q4_0"), value), Format::Q4_0);
        }
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
