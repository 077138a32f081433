//! Settings to metadata keys, as the tables of [`family`](super::family) say.

use std::mem::discriminant;

use gristmill_files::gguf::{Array, Value};
use serde_json::Value as Json;

use super::config::Config;
use super::error::ConvertError;
use super::family::{Expect, Expected, Family, Key, Kind, LAYER_TYPES, Or};

/// Keys, without the architecture before them, and their values.
pub(super) type Pairs = Vec<(String, Value)>;

/// Checks what the family expects, and reads its keys.
pub(super) fn read(family: &Family, config: &Config) -> Result<Pairs, ConvertError> {
    let refused = |setting, found: &Json, value: &Json, known: &str| {
        let known = format!("{known}, nothing else is supported");
        match discriminant(found) == discriminant(value) {
            true => config.wrong(setting, found, known),
            false => config.wrong_type(setting, found, known),
        }
    };
    for Expect { setting, value } in family.expects {
        let Some(found) = config.value(setting) else { continue };
        let value: Json = match *value {
            Expected::Text(text) => text.into(),
            Expected::OneOf(texts) if texts.iter().any(|text| found == text) => continue,
            Expected::Grouped { texts, .. } if texts.iter().any(|text| found == text) => continue,
            Expected::Grouped { count, plain, .. } if found == plain && config.count(count)?.unwrap_or(1) <= 1 => {
                continue;
            }
            Expected::OneOf(texts) | Expected::Grouped { texts, .. } => {
                let known: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
                return Err(refused(setting, found, &"".into(), &known.join(" or ")));
            }
            Expected::Flag(flag) => flag.into(),
            Expected::Same(other) => match config.value(other) {
                Some(value) if value.is_number() => value.clone(),
                _ => continue,
            },
            Expected::True if found.as_f64().is_some_and(|x| x != 0.0) => found.clone(),
            Expected::True => true.into(),
            Expected::Zeros => {
                let is_zero = |x: &Json| x.is_null() || x.as_f64() == Some(0.0);
                match found.as_array().is_some_and(|list| list.iter().all(is_zero)) {
                    true => continue,
                    false => return Err(config.wrong(setting, found, "a list of zeros, nothing else is supported")),
                }
            }
            Expected::Unlimited => match (found, found.as_array().map(Vec::as_slice)) {
                (_, Some([low, high])) if low.as_f64() == Some(0.0) && is_infinite(high) => continue,
                (found, Some(_)) => {
                    return Err(config.wrong(setting, found, "[0, Infinity], nothing else is supported"));
                }
                _ => return Err(config.wrong_type(setting, found, "a list of two numbers")),
            },
            Expected::Number(x) => x.into(),
            Expected::LastOf(period) => {
                // The list found bounds the one expected, whatever the number of layers.
                let most = found.as_array().map_or(1, |list| if list.is_empty() { 0 } else { list.len() + 1 });
                let layers = most.min(needed(config, "num_hidden_layers")? as usize);
                (0..layers).map(|layer| i32::from(!(layer + 1).is_multiple_of(period))).collect()
            }
            Expected::FalseIf(other) if config.flag(other)? != Some(true) => continue,
            Expected::FalseIf(_) => false.into(),
            Expected::FlagUnless(count, number) => (config.count(count)? != Some(number)).into(),
        };
        let (same, known) = match value.as_f64() {
            Some(x) => (found.as_f64() == Some(x), x.to_string()),
            None => (*found == value, value.to_string()),
        };
        if !same {
            return Err(refused(setting, found, &value, &known));
        }
    }
    let mut pairs = Pairs::new();
    for key in family.keys.iter().copied().flatten() {
        if let Some(value) = value(key, config)? {
            pairs.push((key.ours.to_owned(), value));
        }
    }
    Ok(pairs)
}

/// Whether a value is Python's `Infinity`, which was read as `null`, or what transformers saves for it.
fn is_infinite(value: &Json) -> bool {
    value.is_null() || value.get("__float__").is_some_and(|x| x == "Infinity")
}

pub(super) fn value(key: &Key, config: &Config) -> Result<Option<Value>, ConvertError> {
    if let Kind::FlagOfLayer(kind) = key.kind {
        return Ok(Some(Value::Array(Array::Bool(layers_of(config, kind)?))));
    }
    let setting = key.theirs.iter().copied().find(|setting| config.value(setting).is_some());
    let default = match (setting, key.or) {
        (Some(setting), _) => {
            return Ok(match key.kind {
                Kind::Count => config.count(setting)?.map(Value::U32),
                Kind::CountOfLayers => Some(Value::U32(count_of_layers(config, setting)?)),
                Kind::Number => config.number(setting)?.map(|x| Value::F32(x as f32)),
                Kind::Factor => config.factor(setting)?.map(|x| Value::F32(x as f32)),
                Kind::Positive => match config.count(setting)? {
                    Some(0) => return Err(config.wrong(setting, &0.into(), "at least 1")),
                    count => count.map(Value::U32),
                },
                Kind::NumberUnless(usual) => {
                    config.factor(setting)?.filter(|&x| x != usual).map(|x| Value::F32(x as f32))
                }
                Kind::CountUnlessLayer(kind) => {
                    Some(count_unless_layer(config, signed(config, setting, needed(config, setting)?)?, kind)?)
                }
                Kind::CountOfLayer(types) => Some(count_of_layer(config, setting, types)?),
                Kind::CountInPeriod { period, offset } => Some(count_in_period(config, setting, period, offset)?),
                Kind::CountAt(list) => Some(count_at(config, setting, list)?),
                Kind::CountOrSixteenth(of) => Some(Value::U32(match config.text(setting) {
                    Ok(Some("auto")) => needed(config, of)?.div_ceil(16),
                    _ => needed(config, setting)?,
                })),
                Kind::IsText(text) => Some(Value::Bool(config.text(setting)? == Some(text))),
                Kind::OneUnlessLayer(kind) => Some(count_unless_layer(config, 1, kind)?),
                Kind::CountOrFirst(kind) => Some(Value::U32(count_or_first(config, setting, kind)?)),
                Kind::CountUnlessFull(full) => Some(count_unless_full(config, setting, full)?),
                Kind::WidthUnlessShared => Some(width_unless_shared(config, setting)?),
                Kind::AdjustedWidth => Some(Value::U32(adjusted_width(config, setting)?)),
                Kind::FlagOfLayer(_) => None,
                Kind::Flag => config.flag(setting)?.map(Value::Bool),
                Kind::Unless(usual) => config.flag(setting)?.filter(|&flag| flag != usual).map(Value::Bool),
                Kind::InverseRootUnless(usual) => {
                    let x = config.number(setting)?.filter(|_| config.value(setting) != config.value(usual));
                    if let Some(found) = config.value(setting).filter(|_| x.is_some_and(|x| x <= 0.0)) {
                        return Err(config.wrong(setting, found, "a number above 0"));
                    }
                    x.map(|x| Value::F32((1.0 / x.sqrt()) as f32))
                }
                Kind::Named(names) => {
                    let text = config.text(setting)?.unwrap_or_default();
                    let known = || names.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
                    let found = names.iter().find(|(name, _)| *name == text);
                    Some(Value::U32(found.ok_or_else(|| config.wrong(setting, &text.into(), known()))?.1))
                }
                Kind::OverRootOf(count) => {
                    let layers = needed(config, count)?;
                    let quotient = config.number(setting)?.map(|x| x / f64::from(layers).sqrt());
                    let wrong = || config.wrong(count, &layers.into(), "at least 1");
                    Some(Value::F32(quotient.filter(|x| x.is_finite()).ok_or_else(wrong)? as f32))
                }
                Kind::DivisorOf(other) => {
                    let divisor = needed(config, setting)?;
                    let quotient = f64::from(needed(config, other)?) / f64::from(divisor);
                    let wrong = || config.wrong(setting, &divisor.into(), "at least 1");
                    Some(Value::F32(Some(quotient).filter(|x| x.is_finite()).ok_or_else(wrong)? as f32))
                }
                Kind::FullAttention => match windows(config, setting)?.contains(&true) {
                    true => {
                        let found = Json::from("sliding_attention");
                        return Err(config.wrong(setting, &found, "\"full_attention\" for every layer"));
                    }
                    false => None,
                },
                Kind::WindowsAfterDense => Some(Value::Array(Array::Bool(windows_after_dense(config, setting)?))),
                Kind::Windows => Some(Value::Array(Array::Bool(windows(config, setting)?))),
                Kind::WindowsUnless { period } => {
                    let found = windows(config, setting)?;
                    (found != pattern(period, found.len())).then_some(Value::Array(Array::Bool(found)))
                }
                Kind::WindowsAfterFirstUnless { period } => {
                    let found = windows(config, setting)?;
                    let usual: Vec<bool> = (0..found.len()).map(|layer| layer % period != 0).collect();
                    (found != usual).then_some(Value::Array(Array::Bool(found)))
                }
                Kind::CountsOfWindows { object, windowed } => {
                    Some(counts_of_windows(config, setting, object, windowed)?)
                }
                Kind::LeadingZeros => {
                    let flags = window_numbers(config, setting)?;
                    let zeros = flags.iter().take_while(|&&flag| flag == 0).count();
                    let list = || config.value(setting).cloned().unwrap_or_default();
                    if flags[zeros..].contains(&0) {
                        return Err(config.wrong(setting, &list(), "0 for the first layers and 1 for all others"));
                    }
                    Some(Value::U32(u32::try_from(zeros).unwrap_or(u32::MAX)))
                }
                Kind::WindowNumbers => Some(Value::Array(Array::I32(window_numbers(config, setting)?))),
                Kind::CountsOfFlags { flags, windowed } => {
                    let full = needed(config, setting)?;
                    let windowed = config.count(windowed)?.unwrap_or(full.saturating_mul(2));
                    let (full, windowed) = (signed(config, setting, full)?, signed(config, setting, windowed)?);
                    let count = |flag: i32| if flag == 1 { windowed } else { full };
                    let flags = if config.value(flags).is_some() { flags } else { LAYER_TYPES };
                    Some(Value::Array(Array::I32(window_numbers(config, flags)?.into_iter().map(count).collect())))
                }
                Kind::NumbersOfLayers => Some(numbers_of_layers(config, setting)?),
                Kind::LayersBefore => Some(Value::U32(layers_before(config, setting)?)),
                Kind::CountsOr(list) => Some(counts_or(config, setting, list)?),
                Kind::Chunks { period } => {
                    let found = types(config, needed(config, "num_hidden_layers")? as usize, "chunked_attention")?;
                    match found == pattern(period, found.len()) {
                        true => None,
                        false => {
                            let list = config.value(setting).unwrap_or(&Json::Null);
                            let known = format!("\"full_attention\" for the last of every {period} layers alone");
                            return Err(config.wrong(setting, list, known));
                        }
                    }
                }
            });
        }
        (None, Or::Skip) => None,
        (None, Or::Refuse) => return Err(config.missing(key.theirs.first().copied().unwrap_or(key.ours))),
        (None, Or::Count(n)) => Some(Value::U32(n)),
        (None, Or::Number(x)) => Some(Value::F32(x as f32)),
        (None, Or::Flag(flag)) => match key.kind {
            Kind::Unless(usual) if usual == flag => None,
            _ => Some(Value::Bool(flag)),
        },
        (None, Or::Text(text)) => Some(Value::String(text.to_owned())),
        (None, Or::Same(other)) => Some(Value::U32(needed(config, other)?)),
        (None, Or::Sum(one, other)) => {
            let (one, added) = (needed(config, one)?, needed(config, other)?);
            let wrong = || config.wrong(other, &added.into(), "a number whose sum is below 2^32");
            Some(Value::U32(one.checked_add(added).ok_or_else(wrong)?))
        }
        (None, Or::Product(one, other)) => {
            let (one, count) = (needed(config, one)?, needed(config, other)?);
            let wrong = || config.wrong(other, &count.into(), "a number whose product is below 2^32");
            Some(Value::U32(one.checked_mul(count).ok_or_else(wrong)?))
        }
        (None, Or::Quotient(over, under)) => {
            let (over, count) = (needed(config, over)?, needed(config, under)?);
            let whole = over.checked_div(count).filter(|_| over.is_multiple_of(count));
            let wrong = || config.wrong(under, &count.into(), format!("a divisor of {over}"));
            Some(Value::U32(whole.ok_or_else(wrong)?))
        }
    };
    Ok(default)
}

/// A count, or the count of which a list has only copies.
fn count_of_layers(config: &Config, setting: &str) -> Result<u32, ConvertError> {
    let expected = "a whole number, or a list with one for each layer, all alike";
    let found = config.value(setting).unwrap_or(&Json::Null);
    let count = |value: &Json| value.as_u64().and_then(|n| u32::try_from(n).ok());
    let one = match found {
        Json::Array(all) => all.first().filter(|first| all.iter().all(|other| other == *first)).and_then(count),
        value => count(value),
    };
    one.ok_or_else(|| match found {
        Json::Array(_) | Json::Number(_) => config.wrong(setting, found, expected),
        _ => config.wrong_type(setting, found, expected),
    })
}

/// All but the last of every `period` layers.
fn pattern(period: usize, layers: usize) -> Vec<bool> {
    (0..layers).map(|layer| layer % period != period - 1).collect()
}

/// Whether each layer has a window: from [`LAYER_TYPES`], or from a period as in [`pattern`].
fn windows(config: &Config, setting: &str) -> Result<Vec<bool>, ConvertError> {
    let layers = needed(config, "num_hidden_layers")? as usize;
    if setting != LAYER_TYPES {
        let period = config.count(setting)?.unwrap_or_default();
        return match period {
            0 => Err(config.wrong(setting, &period.into(), "at least 1")),
            period => Ok(pattern(period as usize, layers)),
        };
    }
    types(config, layers, "sliding_attention")
}

/// Whether each layer has a window: from [`LAYER_TYPES`], or from the periods of the first layers and of the others.
fn windows_after_dense(config: &Config, setting: &str) -> Result<Vec<bool>, ConvertError> {
    if setting == LAYER_TYPES {
        return windows(config, setting);
    }
    let period = |setting| match config.count(setting)? {
        None | Some(0) => Err(config.wrong(setting, &0.into(), "at least 1")),
        Some(period) => Ok(period as usize),
    };
    let layers = needed(config, "num_hidden_layers")? as usize;
    let dense = (config.count("first_k_dense_replace")?.unwrap_or(0) as usize).min(layers);
    let first = pattern(period("prefix_dense_sliding_window_pattern")?, dense);
    Ok([first, pattern(period(setting)?, layers - dense)].concat())
}

/// Whether each layer is of this type, or else has full attention.
fn types(config: &Config, layers: usize, named: &str) -> Result<Vec<bool>, ConvertError> {
    let types = config.list(LAYER_TYPES)?.map(Vec::as_slice).unwrap_or_default();
    if types.len() != layers {
        return Err(config.wrong(LAYER_TYPES, &types.len().into(), format!("a type for each of the {layers} layers")));
    }
    let is_named = |kind: &Json| match kind.as_str() {
        Some(kind) if kind == named => Ok(true),
        Some("full_attention") => Ok(false),
        _ => Err(config.wrong(LAYER_TYPES, kind, format!("\"{named}\" or \"full_attention\""))),
    };
    types.iter().map(is_named).collect()
}

/// Whether each layer is of this type, which is not full attention: by [`LAYER_TYPES`], by a list of the others from 0 or
/// from 1, by groups whose last layer is another, as are all after the last whole group, or all but the last of this
/// number of layers.
fn layers_of(config: &Config, kind: &str) -> Result<Vec<bool>, ConvertError> {
    const OTHERS: &str = "full_attn_idxs";
    const OTHERS_FROM_ONE: &str = "full_attn_layers";
    const GROUP: &str = "layer_group_size";
    const PERIOD: &str = "full_attention_interval";
    let layers = needed(config, "num_hidden_layers")? as usize;
    if config.value(LAYER_TYPES).is_some() {
        return types(config, layers, kind);
    }
    for (setting, first) in [(OTHERS, 0), (OTHERS_FROM_ONE, 1)] {
        let Some(others) = config.list(setting)? else { continue };
        let mut flags = vec![true; layers];
        for other in others {
            let layer = other.as_u64().and_then(|layer| usize::try_from(layer).ok()?.checked_sub(first));
            let flag = layer.and_then(|layer| flags.get_mut(layer));
            let known = || format!("numbers of layers, from {first} to {}", (layers + first).saturating_sub(1));
            *flag.ok_or_else(|| config.wrong(setting, other, known()))? = false;
        }
        return Ok(flags);
    }
    if let Some(size) = config.count(GROUP)? {
        let size = size as usize;
        return match size {
            0 => Err(config.wrong(GROUP, &0.into(), "at least 1")),
            size => Ok((0..layers).map(|i| !(i + 1).is_multiple_of(size) && i < layers / size * size).collect()),
        };
    }
    match config.count(PERIOD)?.unwrap_or(4) {
        0 => Err(config.wrong(PERIOD, &0.into(), "at least 1")),
        period => Ok(pattern(period as usize, layers)),
    }
}

/// A count for each layer: the setting for those of a list.
fn count_at(config: &Config, setting: &str, list: &str) -> Result<Value, ConvertError> {
    let count = signed(config, setting, needed(config, setting)?)?;
    let mut counts = vec![0; needed(config, "num_hidden_layers")? as usize];
    for found in config.list(list)?.into_iter().flatten() {
        let layer = found.as_u64().and_then(|layer| counts.get_mut(usize::try_from(layer).ok()?));
        *layer.ok_or_else(|| config.wrong(list, found, "numbers of layers, from 0"))? = count;
    }
    Ok(Value::Array(Array::I32(counts)))
}

/// A count for each layer: the setting for one layer of each period.
fn count_in_period(config: &Config, setting: &str, period: &str, offset: &str) -> Result<Value, ConvertError> {
    let count = signed(config, setting, needed(config, setting)?)?;
    let (length, first) = (needed(config, period)?, needed(config, offset)?);
    if first >= length {
        return Err(config.wrong(offset, &first.into(), format!("below `{period}`, {length}")));
    }
    let of_layer = |layer: u32| if layer % length == first { count } else { 0 };
    Ok(Value::Array(Array::I32((0..needed(config, "num_hidden_layers")?).map(of_layer).collect())))
}

/// A count for each layer: the setting for those of the first type.
fn count_of_layer(config: &Config, setting: &str, known: &[&str]) -> Result<Value, ConvertError> {
    let count = signed(config, setting, needed(config, setting)?)?;
    let layers = needed(config, "num_hidden_layers")? as usize;
    let types = config.list(LAYER_TYPES)?.map(Vec::as_slice).unwrap_or_default();
    if types.len() != layers {
        return Err(config.wrong(LAYER_TYPES, &types.len().into(), format!("a type for each of the {layers} layers")));
    }
    let of_layer = |kind: &Json| match known.iter().position(|name| kind == name) {
        Some(at) => Ok(if at == 0 { count } else { 0 }),
        None => Err(config.wrong(LAYER_TYPES, kind, format!("one of {}", known.join(", ")))),
    };
    Ok(Value::Array(Array::I32(types.iter().map(of_layer).collect::<Result<_, _>>()?)))
}

/// A count for each layer: 0 for those of this type.
fn count_unless_layer(config: &Config, count: i32, kind: &str) -> Result<Value, ConvertError> {
    let count = |lacks: bool| if lacks { 0 } else { count };
    Ok(Value::Array(Array::I32(layers_of(config, kind)?.into_iter().map(count).collect())))
}

/// A count, or the number of layers of this kind in a list of kinds, which come before all others.
fn count_or_first(config: &Config, setting: &str, kind: &str) -> Result<u32, ConvertError> {
    if !config.value(setting).is_some_and(Json::is_array) {
        return needed(config, setting);
    }
    let kinds = config.list(setting)?.map(Vec::as_slice).unwrap_or_default();
    let first = kinds.iter().take_while(|found| *found == kind).count();
    match kinds[first..].iter().find(|found| *found == kind || !found.is_string()) {
        Some(found) => Err(config.wrong(setting, found, format!("kinds of layers, {kind:?} before all others"))),
        None => Ok(u32::try_from(first).unwrap_or(u32::MAX)),
    }
}

/// A count, or the counts of all layers: the setting where they have a window, `full` where they see everything.
fn count_unless_full(config: &Config, setting: &str, full: &str) -> Result<Value, ConvertError> {
    let count = needed(config, setting)?;
    let Some(of_full) = config.count(full)? else { return Ok(Value::U32(count)) };
    let (count, of_full) = (signed(config, setting, count)?, signed(config, full, of_full)?);
    let count = |windowed: bool| if windowed { count } else { of_full };
    Ok(Value::Array(Array::I32(windows(config, LAYER_TYPES)?.into_iter().map(count).collect())))
}

/// A width, or the widths of all layers: twice the setting for the last ones, which read the caches of others.
fn width_unless_shared(config: &Config, setting: &str) -> Result<Value, ConvertError> {
    let width = needed(config, setting)?;
    if !config.flag("use_double_wide_mlp")?.unwrap_or(false) {
        return Ok(Value::U32(width));
    }
    let double = signed(config, setting, width.saturating_mul(2))?;
    let layers = needed(config, "num_hidden_layers")?;
    let own = layers.saturating_sub(config.count("num_kv_shared_layers")?.unwrap_or(0));
    let width = |layer| if layer < own { double / 2 } else { double };
    Ok(Value::Array(Array::I32((0..layers).map(width).collect())))
}

/// A number of a list of them.
fn signed(config: &Config, setting: &str, n: u32) -> Result<i32, ConvertError> {
    i32::try_from(n).map_err(|_| config.wrong(setting, &n.into(), "a number below 2^31"))
}

/// A count for each layer: a list, or one count for all layers.
fn counts_or(config: &Config, setting: &str, list: &str) -> Result<Value, ConvertError> {
    let layers = needed(config, "num_hidden_layers")? as usize;
    let count = |value: &Json| value.as_u64().and_then(|n| i32::try_from(n).ok());
    let all = signed(config, setting, needed(config, setting)?)?;
    let counts = match config.list(list)? {
        Some(counts) if counts.len() != layers => {
            return Err(config.wrong(list, &counts.len().into(), format!("a number for each of the {layers} layers")));
        }
        Some(counts) => {
            let of_layer = |found: &Json| count(found).ok_or_else(|| config.wrong(list, found, "whole numbers"));
            counts.iter().map(of_layer).collect::<Result<_, _>>()?
        }
        None => vec![all; layers],
    };
    Ok(Value::Array(Array::I32(counts)))
}

/// A count for each layer: the setting, or in layers with a window that of an object, if there is one.
fn counts_of_windows(config: &Config, setting: &str, object: &str, windowed: &str) -> Result<Value, ConvertError> {
    let full = signed(config, setting, needed(config, setting)?)?;
    let other = match config.object(object)? {
        Some(of_windows) => {
            of_windows.count(windowed)?.map(|count| signed(&of_windows, windowed, count)).transpose()?
        }
        None => None,
    };
    let count = |has_window: bool| if has_window { other.unwrap_or(full) } else { full };
    Ok(Value::Array(Array::I32(windows(config, LAYER_TYPES)?.into_iter().map(count).collect())))
}

/// 0 or 1 for each layer.
fn window_numbers(config: &Config, setting: &str) -> Result<Vec<i32>, ConvertError> {
    let layers = needed(config, "num_hidden_layers")? as usize;
    if setting == LAYER_TYPES {
        return Ok(windows(config, setting)?.into_iter().map(i32::from).collect());
    }
    let list = config.list(setting)?.map(Vec::as_slice).unwrap_or_default();
    if list.len() != layers {
        return Err(config.wrong(setting, &list.len().into(), format!("a number for each of the {layers} layers")));
    }
    let number = |value: &Json| match value.as_u64() {
        Some(0) => Ok(0),
        Some(1) => Ok(1),
        _ => Err(config.wrong(setting, value, "0 or 1 for each layer")),
    };
    list.iter().map(number).collect()
}

/// A number for each layer, of which `null` is 0.
fn numbers_of_layers(config: &Config, setting: &str) -> Result<Value, ConvertError> {
    let layers = needed(config, "num_hidden_layers")? as usize;
    let list = config.list(setting)?.map(Vec::as_slice).unwrap_or_default();
    if list.len() != layers {
        return Err(config.wrong(setting, &list.len().into(), format!("a number for each of the {layers} layers")));
    }
    let number = |value: &Json| match value {
        Json::Null => Ok(0.0),
        value => {
            let number = value.as_f64().map(|x| x as f32).filter(|x| x.is_finite());
            number.ok_or_else(|| config.wrong(setting, value, "numbers that 32 bits hold, or null"))
        }
    };
    Ok(Value::Array(Array::F32(list.iter().map(number).collect::<Result<_, _>>()?)))
}

/// The number of layers before those whose numbers the setting has.
fn layers_before(config: &Config, setting: &str) -> Result<u32, ConvertError> {
    let layers = needed(config, "num_hidden_layers")? as usize;
    let found = config.value(setting).unwrap_or(&Json::Null);
    let numbers: Option<Vec<usize>> = match found {
        Json::String(text) => text.split(',').map(|number| number.trim().parse().ok()).collect(),
        Json::Array(list) => list.iter().map(|number| usize::try_from(number.as_u64()?).ok()).collect(),
        _ => None,
    };
    let expected = format!("the numbers of all layers from one on, the last {}", layers.saturating_sub(1));
    let Some(mut numbers) = numbers.filter(|numbers| !numbers.is_empty()) else {
        return Err(match found {
            Json::String(_) | Json::Array(_) => config.wrong(setting, found, expected),
            _ => config.wrong_type(setting, found, expected),
        });
    };
    numbers.sort_unstable();
    let first = numbers.first().copied().unwrap_or(layers);
    // Prediction layers can be among them.
    let own = numbers.iter().take_while(|&&number| number < layers);
    match own.eq(&(first..layers).collect::<Vec<_>>()) {
        true => Ok(u32::try_from(first).unwrap_or(u32::MAX)),
        false => Err(config.wrong(setting, found, expected)),
    }
}

/// LFM2's width of a dense MLP, of which files have what is left of it.
fn adjusted_width(config: &Config, setting: &str) -> Result<u32, ConvertError> {
    const FACTOR: &str = "block_ffn_dim_multiplier";
    const MULTIPLE: &str = "block_multiple_of";
    let width = needed(config, setting)?;
    let factor = config.positive(FACTOR)?.unwrap_or(1.0);
    let multiple = config.count(MULTIPLE)?.unwrap_or(256);
    if !config.flag("block_auto_adjust_ff_dim")?.unwrap_or(true) {
        return Ok(width);
    }
    // Both products are cut to whole numbers, as transformers does.
    let adjusted = (f64::from(width) * 2.0 / 3.0).trunc() * factor;
    let adjusted = (multiple > 0 && adjusted < f64::from(1 << 24)).then_some(adjusted as u32);
    let wrong = || config.wrong(setting, &width.into(), format!("a width that {FACTOR} and {MULTIPLE} adjust"));
    Ok(adjusted.ok_or_else(wrong)?.next_multiple_of(multiple))
}

/// A count that must be there.
pub(super) fn needed(config: &Config, setting: &str) -> Result<u32, ConvertError> {
    config.count(setting)?.ok_or_else(|| config.missing(setting))
}
