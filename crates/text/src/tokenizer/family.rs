//! The families of byte-level BPE: how each brings text into words, as `tokenizer.json` writes it and as it is done
//! here.

use super::error::TokenizerError;
use super::split::{Pattern, published};

/// The pre-tokenizer that a value of `tokenizer.ggml.pre` names.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    names: &'static [&'static str],
    /// The pre-tokenizer in `tokenizer.json`; empty if no such file has it.
    steps: &'static [Step<'static>],
    /// The pattern that cuts words as the steps do.
    pub(super) pattern: Pattern,
    /// A word that is a token is taken whole, whatever its merges would give (`ignore_merges`).
    pub(super) whole_words: bool,
    /// The text is brought into Unicode normal form C first.
    pub(super) nfc: bool,
    /// Whether a beginning-of-sequence token is added when the file does not say.
    pub(super) add_bos: bool,
}

/// One step of a pre-tokenizer in `tokenizer.json`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step<'a> {
    /// Matches of this expression are words, and what is between them.
    Split(&'a str),
    /// Every digit is a word.
    Digits,
    /// Bytes to the byte alphabet; cuts words by GPT-2's expression or not at all.
    ByteLevel {
        /// Whether it cuts words.
        words: bool,
    },
}

use Step::{ByteLevel, Digits, Split};

const WHOLE: Step = ByteLevel { words: false };
const WORDS: Step = ByteLevel { words: true };

const fn family(names: &'static [&'static str], steps: &'static [Step<'static>], pattern: Pattern) -> Family {
    Family { names, steps, pattern, whole_words: false, nfc: false, add_bos: false }
}

const LLAMA3: Family = family(
    &["llama-bpe", "llama3", "llama-v3", "lfm2", "falcon-h1"],
    &[Split(published::LLAMA3_REGEX), WHOLE],
    published::LLAMA3,
);
const TEKKEN: Family = family(&["tekken", "pixtral"], &[Split(published::TEKKEN_REGEX), WHOLE], published::TEKKEN);
const GPT4O: Family =
    family(&["gpt-4o", "llama4", "kanana2"], &[Split(published::GPT4O_REGEX), WHOLE], published::GPT4O);

const QWEN2: Family = family(&["qwen2"], &[Split(published::QWEN2_REGEX), WHOLE], published::QWEN2);

const AFMOE_STEPS: &[Step] = {
    let [chunks, first, triples, scripts, words] = published::AFMOE_REGEXES;
    &[Split(chunks), Split(first), Split(triples), Split(scripts), Split(words), WHOLE]
};

const DEEPSEEK_V3_STEPS: &[Step] = {
    let [numbers, characters, words] = published::DEEPSEEK_V3_REGEXES;
    &[Split(numbers), Split(characters), Split(words), WHOLE]
};

const DEEPSEEK_LLM_STEPS: &[Step] = {
    let [newlines, letters, punctuation, end, wide] = published::DEEPSEEK_LLM_REGEXES;
    &[Split(newlines), Split(letters), Split(punctuation), Split(end), Split(wide), Digits, WHOLE]
};

const YOUTU_STEPS: &[Step] = {
    let [classes, words] = published::YOUTU_REGEXES;
    &[Split(classes), Split(words), WHOLE]
};

const FAMILIES: &[Family] = &[
    family(&["default"], &[], published::DEFAULT),
    family(&["gpt-2", "exaone4"], &[WORDS], published::GPT2),
    Family { nfc: true, ..family(&["olmo"], &[WORDS], published::GPT2) },
    family(&["smollm", "exaone", "mellum2"], &[Digits, WORDS], published::SMOLLM),
    Family { nfc: true, ..family(&["command-r"], &[Digits, WORDS], published::SMOLLM) },
    Family { whole_words: true, add_bos: true, ..LLAMA3 },
    Family { nfc: true, ..QWEN2 },
    Family { nfc: true, ..family(&["qwen35"], &[Split(published::QWEN35_REGEX), WHOLE], published::QWEN35) },
    Family { names: &["deepseek-r1-qwen"], ..QWEN2 },
    Family { names: &["hunyuan", "bailingmoe2"], ..QWEN2 },
    Family { whole_words: true, add_bos: true, ..TEKKEN },
    Family { whole_words: true, ..GPT4O },
    Family { names: &["glm4"], whole_words: true, ..LLAMA3 },
    Family { names: &["dbrx"], ..LLAMA3 },
    Family { names: &["minimax-m2"], ..GPT4O },
    family(
        &["tiny_aya", "cohere2moe"],
        &[Split(published::LAST_TRIPLES_REGEX), Split(published::GPT4O_REGEX), WHOLE],
        published::TINY_AYA,
    ),
    family(&["exaone-moe"], &[Split(published::EXAONE_MOE_REGEX), WHOLE], published::EXAONE_MOE),
    family(&["afmoe"], AFMOE_STEPS, published::AFMOE),
    family(&["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"], DEEPSEEK_V3_STEPS, published::DEEPSEEK_V3),
    family(&["deepseek-llm"], DEEPSEEK_LLM_STEPS, published::DEEPSEEK_LLM),
    family(&["kimi-k2"], &[Split(published::KIMI_K2_REGEX), WHOLE], published::KIMI_K2),
    Family { whole_words: true, ..family(&["youtu"], YOUTU_STEPS, published::YOUTU) },
    family(&["laguna"], &[Split(published::LINES_REGEX), Split(published::QWEN2_REGEX), WHOLE], published::LAGUNA),
    family(&["seed-coder"], &[Split(published::SEED_REGEX), WHOLE], published::SEED),
];

impl Family {
    /// The family of a `tokenizer.ggml.pre`.
    pub(super) fn find(pre: Option<&str>) -> Result<Self, TokenizerError> {
        let name = pre.unwrap_or("default");
        let found = FAMILIES.iter().find(|family| family.names.contains(&name));
        found.copied().ok_or_else(|| TokenizerError::UnknownPreTokenizer {
            name: name.to_owned(),
            model: "gpt2".to_owned(),
            known: FAMILIES.iter().flat_map(|family| family.names).copied().collect::<Vec<_>>().join(", "),
        })
    }

    /// The name of the family with this normaliser, these steps and `ignore_merges` in `tokenizer.json`: of several,
    /// the one that is `usual` for the model, else the first.
    pub fn recognise(nfc: bool, steps: &[Step], whole_words: bool, usual: Option<&str>) -> Option<&'static str> {
        let same = |family: &&Family| family.nfc == nfc && family.steps == steps && family.whole_words == whole_words;
        let found = || FAMILIES.iter().filter(|family| !family.steps.is_empty()).filter(same);
        let mut names = found().flat_map(|family| family.names).copied();
        names.find(|&name| usual == Some(name)).or_else(|| Some(found().next()?.names[0]))
    }

    /// Whether this is the expression of a family, and every character of any text is in one of its matches.
    pub fn matches_all(regex: &str) -> bool {
        published::COMPLETE.contains(&regex)
    }

    /// The names of all families that [`Self::recognise`] knows.
    pub fn recognised() -> String {
        let families = FAMILIES.iter().filter(|family| !family.steps.is_empty());
        families.map(|family| family.names[0]).collect::<Vec<_>>().join(", ")
    }
}
