//! Parsers of numbers on the command line, whose errors state the valid range. An option with such a parser also needs
//! `allow_negative_numbers` or `allow_hyphen_values`; clap otherwise reads `-1` as an option.

use std::num::IntErrorKind;

/// Reads whole numbers of at least `least` that fit into `T`.
pub(crate) fn at_least<T: TryFrom<i128>>(least: u32) -> impl Fn(&str) -> Result<T, String> + Clone {
    let rule = if least == 0 { "0 or greater".to_owned() } else { format!("at least {least}") };
    move |text| match parse(text) {
        Some(n) if n >= i128::from(least) => n.try_into().map_err(|_| "it is too large".to_owned()),
        _ => Err(format!("it must be a whole number, {rule}")),
    }
}

/// Reads whole numbers between `least` and `most`.
pub(crate) fn between(least: usize, most: usize) -> impl Fn(&str) -> Result<usize, String> + Clone {
    move |text| {
        let number = parse(text).and_then(|n| usize::try_from(n).ok());
        let rule = || format!("it must be a whole number between {least} and {most}");
        number.filter(|n| (least..=most).contains(n)).ok_or_else(rule)
    }
}

/// Reads whole numbers; the caller checks the range.
pub(crate) fn whole(text: &str) -> Result<i64, String> {
    let clamp = |n: i128| n.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
    parse(text).map(clamp).ok_or_else(|| "it must be a whole number".to_owned())
}

/// A number of tokens, or no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MaxTokens(pub(crate) Option<usize>);

/// Reads a number of tokens, or -1 for no limit.
pub(crate) fn max_tokens(text: &str) -> Result<MaxTokens, String> {
    match parse(text) {
        Some(-1) => Ok(MaxTokens(None)),
        Some(n) if n >= 1 => Ok(MaxTokens(Some(usize::try_from(n).unwrap_or(usize::MAX)))),
        _ => Err("it must be a whole number, at least 1, or -1 for no limit".to_owned()),
    }
}

/// Reads a number of tokens to keep; 0 and -1 keep all.
pub(crate) fn count_or_all(text: &str) -> Result<u32, String> {
    match parse(text) {
        Some(-1) => Ok(0),
        Some(n) if n >= 0 => n.try_into().map_err(|_| "it is too large".to_owned()),
        _ => Err("it must be a whole number, 0 or greater, or -1 for all".to_owned()),
    }
}

/// Reads sizes of memory: a number with the unit MB, GB, MiB or GiB.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let units = [("MB", 1e6), ("GB", 1e9), ("MiB", f64::from(1 << 20)), ("GiB", f64::from(1 << 30))];
    let bytes = units.into_iter().find_map(|(unit, bytes)| {
        let number: f64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
        (number.is_finite() && number > 0.0).then_some((number * bytes) as u64)
    });
    bytes.ok_or_else(|| "it must be a number above 0 with a unit: MB, GB, MiB or GiB".to_owned())
}

/// Reads numbers with a fraction; the caller checks the range.
pub(crate) fn number(text: &str) -> Result<f32, String> {
    text.parse().map_err(|_| "it must be a number".to_owned())
}

/// Reads probabilities.
pub(crate) fn probability(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|n: &f64| (0.0..=1.0).contains(n));
    number.ok_or_else(|| "it must be a number between 0 and 1".to_owned())
}

/// The whole number, saturated to the range of `i128`.
fn parse(text: &str) -> Option<i128> {
    match text.parse::<i128>().map_err(|error| *error.kind()) {
        Ok(n) => Some(n),
        Err(IntErrorKind::PosOverflow) => Some(i128::MAX),
        Err(IntErrorKind::NegOverflow) => Some(i128::MIN),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_is_told() {
        let huge = "9".repeat(50);
        for text in ["-1", "0", "x", "", "1.5", "-9999999999999999999999999999999999999999999"] {
            assert_eq!(at_least::<usize>(1)(text), Err("it must be a whole number, at least 1".to_owned()), "{text}");
            assert!(between(1, 64)(text).unwrap_err().ends_with("between 1 and 64"), "{text}");
        }
        assert_eq!(at_least::<u32>(0)("0"), Ok(0));
        assert_eq!((count_or_all("-1"), count_or_all("7")), (Ok(0), Ok(7)));
        for text in ["-2", "4294967296", "x", "1.5"] {
            assert!(count_or_all(text).is_err(), "{text}");
        }
        assert_eq!(at_least::<u64>(0)("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(at_least::<u64>(0)(&huge), Err("it is too large".to_owned()));
        assert_eq!(
            (between(1, 64)("64"), between(1, 64)("65").is_err(), between(1, 64)(&huge).is_err()),
            (Ok(64), true, true)
        );
        assert_eq!((whole("-7"), whole(&huge), whole("x").is_err()), (Ok(-7), Ok(i64::MAX), true));
        assert_eq!(["-1", "5"].map(max_tokens), [Ok(MaxTokens(None)), Ok(MaxTokens(Some(5)))]);
        assert!(["0", "-2", "all"].into_iter().all(|text| max_tokens(text).unwrap_err().contains("-1 for no limit")));
        assert_eq!((number("-0.5"), number("warm").is_err()), (Ok(-0.5), true));
    }
}
