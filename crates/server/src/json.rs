//! JSON as clients write it.

/// The escape of U+FFFD, which stands for half of a surrogate pair.
const REPLACEMENT: &[u8; 6] = b"\\ufffd";

/// Replaces the escapes of surrogates without their other half by U+FFFD, as Python's and JavaScript's readers let them
/// pass. Programs cut texts at 16-bit units, through the middle of an emoji. Takes linear time.
pub(crate) fn mend_surrogates(json: &mut [u8]) {
    let mut at = 0;
    while let Some(found) = json.get(at..).and_then(|rest| rest.iter().position(|&byte| byte == b'\\')) {
        at += found;
        at += match (escaped(json, at), escaped(json, at + REPLACEMENT.len())) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 2 * REPLACEMENT.len(),
            (Some(0xd800..=0xdfff), _) => {
                json[at..at + REPLACEMENT.len()].copy_from_slice(REPLACEMENT);
                REPLACEMENT.len()
            }
            // Another escape, of which the second character may be a backslash.
            _ => 2,
        };
    }
}

/// The code unit of an escape `\uXXXX` at a place.
fn escaped(json: &[u8], at: usize) -> Option<u16> {
    let digits = json.get(at..at + REPLACEMENT.len())?.strip_prefix(b"\\u")?;
    // The number would also be read with a sign.
    let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surrogates_without_their_half_are_replaced() {
        for (json, mended) in [
            (r#""a \ud83d b""#, r#""a \ufffd b""#),
            (r#""\uDE00""#, r#""\ufffd""#),
            (r#""\ud83d\ude00""#, r#""\ud83d\ude00""#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\ud83d\u0041""#, r#""\ufffd\u0041""#),
            (r#""\ude00\ud83d""#, r#""\ufffd\ufffd""#),
            (r#""\\ud83d""#, r#""\\ud83d""#),
            (r#""\\\ud83d""#, r#""\\\ufffd""#),
            (r#""\ud83"#, r#""\ud83"#),
            (r#""\u+83d""#, r#""\u+83d""#),
            ("\\", "\\"),
            ("", ""),
            ("\"é\"", "\"é\""),
        ] {
            let mut bytes = json.as_bytes().to_vec();
            mend_surrogates(&mut bytes);
            assert_eq!(String::from_utf8_lossy(&bytes), mended, "{json}");
        }
    }
}
