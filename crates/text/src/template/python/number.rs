//! Numbers as text, and text as numbers.

/// `repr` of a float: as few digits as tell it from all others.
pub(in super::super) fn float_text(float: f64) -> String {
    if float.is_nan() {
        return "nan".to_owned();
    }
    if float.is_infinite() {
        return if float > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let text = format!("{float:?}");
    match text.split_once('e') {
        Some((digits, exponent)) => format!("{digits}e{}", two_digits(exponent)),
        None => text,
    }
}

/// An exponent with a sign and at least two digits.
fn two_digits(exponent: &str) -> String {
    let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
    format!("{sign}{digits:0>2}")
}

/// `%.*e`.
pub(super) fn exponential(float: f64, precision: usize) -> String {
    let text = format!("{float:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    format!("{digits}e{}", two_digits(exponent))
}

/// `%.*g`; `alternate` keeps zeros at the end, `fraction` keeps one digit of a fraction, as `str` does.
pub(super) fn general(float: f64, precision: usize, alternate: bool, fraction: bool) -> String {
    let precision = precision.max(1);
    let text = exponential(float, precision - 1);
    let exponent: i64 = text.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    let limit = precision as i64 - i64::from(fraction);
    if exponent < -4 || exponent >= limit {
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "+00"));
        let digits = if alternate { digits.to_owned() } else { without_zeros(digits) };
        return format!("{digits}e{exponent}");
    }
    let places = (precision as i64 - 1 - exponent).max(0) as usize;
    let text = format!("{float:.places$}");
    match (alternate, fraction) {
        (true, _) if text.contains('.') => text,
        (true, _) => text + ".",
        (false, true) if without_zeros(&text).contains('.') => without_zeros(&text),
        (false, true) => without_zeros(&text) + ".0",
        (false, false) => without_zeros(&text),
    }
}

fn without_zeros(text: &str) -> String {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text.to_owned() }
}

/// `round(float, places)`: ties go to the even digit.
pub(in super::super) fn round_float(float: f64, places: i64) -> f64 {
    if !float.is_finite() || places > 330 {
        return float;
    }
    if let Ok(places) = usize::try_from(places) {
        return format!("{float:.places$}").parse().unwrap_or(float);
    }
    if places < -330 {
        return 0.0_f64.copysign(float);
    }
    let unit = 10.0_f64.powi(-places as i32);
    (float / unit).round_ties_even() * unit
}

/// Digits that may be separated by single underscores.
fn digits(text: &str, base: u32) -> Option<String> {
    let is_separated = text.split('_').all(|part| !part.is_empty() && part.chars().all(|c| c.is_digit(base)));
    is_separated.then(|| text.replace('_', ""))
}

/// `int(text, base)`; `None` if it is none. The inner option is `None` if it has more than 128 bits.
pub(in super::super) fn parse_integer(text: &str, base: u32) -> Option<Option<i128>> {
    let text = text.trim_matches(super::is_space);
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = text.to_ascii_lowercase();
    let prefixes = [("0x", 16), ("0o", 8), ("0b", 2)];
    let prefixed = prefixes.iter().find(|(prefix, of)| lower.starts_with(prefix) && (base == *of || base == 0));
    let (base, text) = match prefixed {
        // An underscore may follow the prefix.
        Some((_, of)) => (*of, lower[2..].strip_prefix('_').unwrap_or(&lower[2..])),
        None if base == 0 => (10, lower.as_str()),
        None => (base, lower.as_str()),
    };
    let digits = digits(text, base)?;
    let sign = if negative { "-" } else { "" };
    Some(i128::from_str_radix(&format!("{sign}{digits}"), base).ok())
}

/// `float(text)`.
pub(in super::super) fn parse_float(text: &str) -> Option<f64> {
    let text = text.trim_matches(super::is_space).to_ascii_lowercase();
    let bare = text.strip_prefix(['+', '-']).unwrap_or(&text);
    if ["inf", "infinity", "nan"].contains(&bare) {
        return text.parse().ok();
    }
    let (mantissa, exponent) = match bare.split_once('e') {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (bare, None),
    };
    let exponent_is_right = |text: &str| digits(text.strip_prefix(['+', '-']).unwrap_or(text), 10).is_some();
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let part_is_right = |text: &str| text.is_empty() || digits(text, 10).is_some();
    let is_right = part_is_right(whole)
        && part_is_right(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent.is_none_or(exponent_is_right);
    is_right.then(|| text.replace('_', "").parse().ok())?
}
