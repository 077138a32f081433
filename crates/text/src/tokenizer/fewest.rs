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
        Fewest { shares: std::array::from_fn(share) }
    }

    /// The same bound where each `character` is written as `stands_for` in the tokens, if it is a part of one at all.
    pub(super) fn with_substitute(mut self, character: u8, stands_for: &str) -> Fewest {
        let written: u64 = stands_for.bytes().map(|byte| self.shares[usize::from(byte)]).sum();
        let share = &mut self.shares[usize::from(character)];
        *share = written.min(*share);
        self
    }

    /// The fewest tokens that a text can have.
    pub(super) fn tokens(&self, text: &str) -> usize {
        // A text has fewer than 2³² bytes.
        let shares: u64 = text.bytes().map(|byte| self.shares[usize::from(byte)]).sum();
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
    }
}
