//! A lower bound of the number of tokens in a text, from its bytes alone.

/// One token, in the unit of [`Fewest::shares`].
const TOKEN: u64 = 1 << 32;

/// How few tokens a text can have. A token of `n` bytes covers bytes whose longest tokens have `n` bytes or more, so
/// the reciprocals of these lengths sum to at most 1 for each token.
#[derive(Debug)]
pub(super) struct Fewest {
    /// For each byte, one token divided by the length of the longest token with that byte; 0 for a byte that may be
    /// dropped.
    shares: [u64; 256],
    /// Any white space can belong to a token.
    are_spaces_free: bool,
}

impl Fewest {
    /// The bound for a vocabulary of these tokens. `is_kept`: the byte always becomes a token or a part of one.
    pub(super) fn new<'t>(tokens: impl Iterator<Item = &'t [u8]>, is_kept: impl Fn(u8) -> bool) -> Fewest {
        let mut longest = [1; 256];
        for token in tokens {
            for &byte in token {
                longest[usize::from(byte)] = token.len().max(longest[usize::from(byte)]);
            }
        }
        let share = |byte: usize| if is_kept(byte as u8) { TOKEN / longest[byte] as u64 } else { 0 };
        Fewest { shares: std::array::from_fn(share), are_spaces_free: false }
    }

    /// The same bound where each `character` is written as `stands_for` in the tokens, if it is a part of one at all.
    pub(super) fn with_substitute(mut self, character: u8, stands_for: &str) -> Fewest {
        let written: u64 = stands_for.bytes().map(|byte| self.shares[usize::from(byte)]).sum();
        let share = &mut self.shares[usize::from(character)];
        *share = written.min(*share);
        self
    }

    /// The same bound where tokens may include any white space around them.
    pub(super) fn with_free_spaces(self, are_spaces_free: bool) -> Fewest {
        Fewest { are_spaces_free, ..self }
    }

    /// The fewest tokens that a text can have.
    pub(super) fn tokens(&self, text: &str) -> usize {
        // A text has fewer than 2³² bytes.
        let of = |text: &str| text.bytes().map(|byte| self.shares[usize::from(byte)]).sum::<u64>();
        let shares = if self.are_spaces_free { text.split_whitespace().map(of).sum() } else { of(text) };
        shares.div_ceil(TOKEN) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_from_the_longest_tokens() {
        let tokens: [&[u8]; 4] = [b"a", b"b", b"aaaa", b"ab"];
        let fewest = Fewest::new(tokens.into_iter(), |byte| byte != b'z');
        assert_eq!(
            ["", "a", "aaaa", "aaaaa", "bbbb", "zz", "cc"].map(|text| fewest.tokens(text)),
            [0, 1, 1, 2, 2, 0, 2]
        );
        let fewest = fewest.with_substitute(b'c', "aa");
        assert_eq!(fewest.tokens("cccc"), 2);
        let fewest = Fewest::new([b" " as &[u8], b"a"].into_iter(), |_| true);
        assert_eq!(["a a", "  ", "a\u{3000}a"].map(|text| fewest.tokens(text)), [3, 2, 5]);
        let fewest = fewest.with_free_spaces(true);
        assert_eq!(["a a", "  ", "a\u{3000}a"].map(|text| fewest.tokens(text)), [2, 0, 2]);
    }
}
