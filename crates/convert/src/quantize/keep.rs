//! Exceptions from a mix: patterns of tensor names, and the formats that these tensors get.

use gristmill_kernels::format::Format;

use super::error::QuantizeError;
use super::mix::quantised_to;

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
    /// If there is no `=`, the pattern is empty, or no format that models are quantised to has that name.
    pub fn parse(text: &str) -> Result<Keep, QuantizeError> {
        let wrong = || QuantizeError::Keep(text.to_owned());
        let (pattern, name) = text.rsplit_once('=').ok_or_else(wrong)?;
        if pattern.is_empty() {
            return Err(wrong());
        }
        let named = quantised_to().find(|format| format.name().eq_ignore_ascii_case(name));
        let format = named.ok_or_else(|| QuantizeError::Format(name.to_owned()))?;
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
    // After the last `*`: where the pattern continues, and how much of the name it has taken.
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
            assert!(matches!(Keep::parse(text), Err(QuantizeError::Keep(_))), "{text}");
        }
        for text in ["x=", "x=Q4_K_M", "x=Q9"] {
            assert!(matches!(Keep::parse(text), Err(QuantizeError::Format(_))), "{text}");
        }
    }
}
