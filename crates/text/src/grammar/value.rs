//! Numbers and formats in a schema: those that are enforced exactly.

use serde_json::Value;

/// From here on not every whole number is a double.
const EXACT: f64 = 9_007_199_254_740_992.0;
/// Digits of a number, its sign and its point.
const MAX_DIGITS: usize = 20;
/// The largest common multiple of all `multipleOf`, in units of the smallest digit: one state of the lexer for each.
const MAX_MULTIPLE: u64 = 65_535;

/// A number that is enforced as it stands.
pub(super) fn number(value: &Value) -> Result<f64, String> {
    let number = value.as_f64().ok_or("it must be a number")?;
    match number.abs() < EXACT && number.to_string().len() <= MAX_DIGITS {
        true => Ok(number),
        false => Err(format!("{value} has too many digits to be enforced exactly; at most {MAX_DIGITS}, below 2^53")),
    }
}

/// A number of items, characters or properties.
pub(super) fn count(value: &Value) -> Result<u64, String> {
    let whole = number(value)?;
    match whole.fract() == 0.0 && (0.0..=f64::from(i32::MAX)).contains(&whole) {
        true => Ok(whole as u64),
        false => Err("it must be a whole number from 0 to 2147483647".to_owned()),
    }
}

/// All `multipleOf` of a schema: two of them may apply to one number, which is then a multiple of both.
#[derive(Default)]
pub(super) struct Multiples {
    /// The common multiple without its point, and how many digits follow the point.
    common: Option<(u64, u32)>,
}

impl Multiples {
    /// Adds one. Fails if the common multiple is then too large.
    pub(super) fn add(&mut self, value: &Value) -> Result<(), String> {
        let text = number(value)?.to_string();
        let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
        let digits = format!("{whole}{fraction}").parse().ok().filter(|&digits: &u64| digits > 0);
        let added = (digits.ok_or("it must be greater than 0")?, fraction.len() as u32);
        let common = common_multiple(self.common.unwrap_or(added), added);
        self.common = common.filter(|&(digits, _)| digits <= MAX_MULTIPLE);
        let rule = "the common multiple of all `multipleOf` has to be at most";
        self.common.map(|_| ()).ok_or_else(|| format!("it is not enforced: {rule} {MAX_MULTIPLE} of its last digit"))
    }
}

fn common_multiple(a: (u64, u32), b: (u64, u32)) -> Option<(u64, u32)> {
    let places = a.1.max(b.1);
    let scaled = |(digits, own): (u64, u32)| 10_u64.checked_pow(places - own)?.checked_mul(digits);
    let (a, b) = (scaled(a)?, scaled(b)?);
    Some(((a / gcd(a, b)).checked_mul(b)?, places))
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

macro_rules! date {
    () => {
        concat!(
            "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)",
            "|02-(?:0[1-9]|1[0-9]|2[0-8]))",
            "|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
        )
    };
}

macro_rules! time {
    () => {
        concat!(
            r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?",
            "(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
        )
    };
}

/// The pattern of a format that llguidance allows too much of: the 29th of February of each year, and a leap second in
/// each minute.
pub(super) fn format_pattern(name: &str) -> Option<&'static str> {
    match name {
        "date" => Some(concat!("^", date!(), "$")),
        "time" => Some(concat!("^", time!(), "$")),
        "date-time" => Some(concat!("^", date!(), "[tT]", time!(), "$")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_that_are_exact() {
        for good in [json!(0), json!(-1.5), json!(9007199254740991_u64), json!(1e3), json!(0.000001)] {
            assert!(number(&good).is_ok(), "{good}");
        }
        for bad in [json!("1"), json!(null), json!(9007199254740992_u64), json!(u64::MAX), json!(1e300), json!(1e-30)] {
            assert!(number(&bad).is_err(), "{bad}");
        }
        for (value, n) in [(json!(0), Some(0)), (json!(3.0), Some(3)), (json!(-1), None), (json!(1.5), None)] {
            assert_eq!(count(&value).ok(), n, "{value}");
        }
    }

    #[test]
    fn multiples_have_a_small_common_multiple() {
        let check = |values: &[Value]| {
            let mut multiples = Multiples::default();
            values.iter().try_for_each(|value| multiples.add(value))
        };
        for good in [&[json!(3)][..], &[json!(0.01), json!(5)], &[json!(2), json!(3), json!(7.0)], &[json!(65535)], &[]]
        {
            assert_eq!(check(good), Ok(()), "{good:?}");
        }
        for bad in
            [&[json!(0)][..], &[json!(-2)], &[json!(65536)], &[json!(0.0001), json!(10)], &[json!(251), json!(263)]]
        {
            assert!(check(bad).is_err(), "{bad:?}");
        }
    }
}
