//! The model's tokens, as a tree of their bytes.

use std::fmt;
use std::sync::Arc;

use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{ApproximateTokEnv, INVALID_TOKEN, TokEnv, TokRxInfo, TokTrie};

use crate::tokenizer::Tokenizer;

/// Bytes of the longest token in the tree, whose depth is limited. Longer tokens cannot be sampled with a grammar.
const LONGEST: usize = 512;

/// The tokens of a model, for all grammars of an engine.
pub(super) struct Vocabulary {
    env: TokEnv,
    slices: SlicedBiasComputer,
    /// The tokens that end a generation, in ascending order.
    ends: Vec<u32>,
    /// Words of a mask: one bit for each logit.
    words: usize,
}

impl fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Vocabulary({} tokens)", self.trie().vocab_size())
    }
}

impl Vocabulary {
    /// The tokens of a tokenizer, for a model with this number of logits.
    pub(super) fn new(tokenizer: &Tokenizer, logits: usize) -> Result<Vocabulary, String> {
        let count = u32::try_from(tokenizer.vocab_size().min(logits)).map_err(|error| error.to_string())?;
        let tokens: Vec<Vec<u8>> = (0..count).map(|id| bytes(tokenizer, id)).collect();
        let trie = TokTrie::from(&TokRxInfo::new(count, INVALID_TOKEN), &tokens);
        // Grammars force no tokens, so this environment tokenises nothing.
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let slices = SlicedBiasComputer::new(&env, &SlicedBiasComputer::general_slices());
        let slices = slices.map_err(|error| error.to_string())?;
        let ends = tokenizer.end_of_generation().iter().copied().filter(|&id| id < count).collect();
        Ok(Vocabulary { env, slices, ends, words: logits.div_ceil(32) })
    }

    pub(super) fn env(&self) -> TokEnv {
        self.env.clone()
    }

    pub(super) fn trie(&self) -> &TokTrie {
        self.env.tok_trie()
    }

    pub(super) fn slices(&self) -> &SlicedBiasComputer {
        &self.slices
    }

    /// The lexemes that every grammar's lexer has to know so that `slices` can be used.
    pub(super) fn lexemes(&self) -> Vec<String> {
        self.slices.extra_lexemes()
    }

    pub(super) fn ends(&self) -> &[u32] {
        &self.ends
    }

    pub(super) fn words(&self) -> usize {
        self.words
    }
}

/// The bytes of a token in the tree; empty for a token that no grammar allows. A control token has its name behind a
/// byte that is in no text, so that only a grammar that names the token can allow it.
fn bytes(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    let bytes = tokenizer.token_bytes(id).unwrap_or_default();
    if bytes.len() > LONGEST || bytes.contains(&TokTrie::SPECIAL_TOKEN_MARKER) {
        return Vec::new();
    }
    match tokenizer.is_special(id) {
        true => [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes].concat(),
        false => bytes.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::Vocabulary as Tokens;

    fn scored() -> Tokenizer {
        let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(String::from).to_vec();
        let mut types = vec![2, 3, 3];
        tokens.extend((0..=255u8).map(|byte| format!("<0x{byte:02X}>")));
        types.extend([6; 256]);
        let words = ["\u{2581}", "a", "\u{2581}the", "é", "中文", "{\""];
        tokens.extend(words.map(String::from));
        tokens.push("x".repeat(LONGEST + 1));
        types.extend([1; 7]);
        let scores = vec![0.0; tokens.len()];
        let (bos, eos) = (Some(1), Some(2));
        Tokenizer::new(Tokens { model: "llama".into(), tokens, types, scores, bos, eos, ..Tokens::default() }).unwrap()
    }

    fn byte_level() -> Tokenizer {
        let printable = |byte: &u8| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
        let mut others = 0x100..;
        let letter = |byte: u8| match printable(&byte) {
            true => char::from(byte),
            false => others.next().and_then(char::from_u32).unwrap_or_default(),
        };
        let mut tokens: Vec<String> = (0..=255).map(letter).map(String::from).collect();
        tokens.extend(["ab", "<tool_call>", "<|im_end|>"].map(String::from));
        let mut types = vec![1; 257];
        types.extend([4, 3]);
        let merges = vec!["a b".to_owned()];
        let pre = Some("default".into());
        let eos = Some(258);
        Tokenizer::new(Tokens { model: "gpt2".into(), pre, tokens, types, merges, eos, ..Tokens::default() }).unwrap()
    }

    #[test]
    fn each_token_has_its_bytes() {
        for (tokenizer, left_out) in [(scored(), 2), (byte_level(), 1)] {
            let vocabulary = Vocabulary::new(&tokenizer, tokenizer.vocab_size() + 5).unwrap();
            let trie = vocabulary.trie();
            let mut empty = 0;
            for id in 0..tokenizer.vocab_size() as u32 {
                let (found, expected) = (trie.token(id), tokenizer.token_bytes(id).unwrap());
                match found.strip_prefix(&[TokTrie::SPECIAL_TOKEN_MARKER]) {
                    Some(name) => assert!(tokenizer.is_special(id) && name == expected),
                    None if found.is_empty() => empty += 1,
                    None => assert!(!tokenizer.is_special(id) && found == expected, "{id}"),
                }
                // Tokens with the same bytes are neighbours in the tree, of which one is found.
                if !found.is_empty() {
                    let same = trie.token_id_at_bytes(found).unwrap();
                    assert_eq!(trie.token(same), found);
                }
            }
            // The byte 0xff, and what is too long.
            assert_eq!(empty, left_out);
            assert_eq!(vocabulary.ends(), tokenizer.end_of_generation());
            assert_eq!(vocabulary.words(), (tokenizer.vocab_size() + 5).div_ceil(32));
            assert_eq!(trie.get_special_token("<|im_end|>").is_some(), tokenizer.vocab_size() == 259);
        }
    }
}
