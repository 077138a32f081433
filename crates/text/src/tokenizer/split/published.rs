//! The expressions that model families publish, and the rules of each for the scanner.

use std::ops::RangeInclusive;
use std::sync::LazyLock;

use super::classes::CharClass;
use super::pattern::{Contractions, Isolate, Pattern, Words};

/// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
pub(in crate::tokenizer) const GPT2: Pattern = Pattern {
    isolate: &[],
    contractions: Contractions::Lowercase,
    words: Words::Spaced,
    digits: usize::MAX,
    spaced_digits: true,
    tail: (&[], 0),
    newlines: false,
    triples: false,
};

/// `\p{N}` apart, then [`GPT2`].
pub(in crate::tokenizer) const SMOLLM: Pattern = Pattern { isolate: &[Isolate::Numbers], ..GPT2 };

/// llama.cpp's rules for files that name no pre-tokenizer: `[\p{P}$+<=>^~|]+`, [`GPT2`], `\p{N}+`, `[0-9]{3}` in turn.
pub(in crate::tokenizer) const DEFAULT: Pattern = Pattern { isolate: &[Isolate::Punctuation], triples: true, ..GPT2 };

pub(in crate::tokenizer) const LLAMA3_REGEX: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
pub(in crate::tokenizer) const QWEN2_REGEX: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
pub(in crate::tokenizer) const SEED_REGEX: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";
pub(in crate::tokenizer) const QWEN35_REGEX: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
pub(in crate::tokenizer) const TEKKEN_REGEX: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
pub(in crate::tokenizer) const GPT4O_REGEX: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Expressions whose matches have every character of a text, so that there is nothing between matches.
pub(in crate::tokenizer) const COMPLETE: &[&str] =
    &[LLAMA3_REGEX, QWEN2_REGEX, SEED_REGEX, QWEN35_REGEX, TEKKEN_REGEX, GPT4O_REGEX, KIMI_K2_REGEX];

/// K-EXAONE.
pub(in crate::tokenizer) const EXAONE_MOE_REGEX: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+";
/// The pieces that Tiny Aya and North-Mini-Code isolate before [`GPT4O_REGEX`].
pub(in crate::tokenizer) const LAST_TRIPLES_REGEX: &str = r"\d{1,3}(?=(?:\d{3})*\b)";
/// Trinity's expressions, in turn.
pub(in crate::tokenizer) const AFMOE_REGEXES: [&str; 5] = [
    // Numbers of any length in parts of 510 digits, then in threes.
    r"\p{Nd}{1,510}(?=(?>\p{Nd}{510})*(?:\P{Nd}|$))|\G\p{Nd}{510}",
    r"\A\p{Nd}{1,2}(?=\p{Nd}{3}+\z)",
    r"\A\p{Nd}{3}|\G\p{Nd}{3}",
    r"(?:[\u4E00-\u9FFF\u3040-\u309F\u30A0-\u30FF\u3400-\u4DBF\uf900-\uFAFF\uFF65-\uFF9F\u2F00-\u2FDF]+|[\u0E00-\u0E7F]+|[\u0E80-\u0EFF]+|[\u1780-\u17FF]+|[\u1000-\u109F\uAA60-\uAA7F\uA9E0-\uA9FF]+|[\uAC00-\uD7AF\u1100-\u11FF]+)",
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
];

/// DeepSeek V3's expressions, in turn; the last is that of Trinity.
pub(in crate::tokenizer) const DEEPSEEK_V3_REGEXES: [&str; 3] = [
    r"\p{N}{1,3}",
    "[一-龥\u{3040}-ゟ゠-ヿ]+",
    // Line ends are not escaped in the published file.
    concat!(
        r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^"##,
        "\r\n",
        r"\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[",
        "\r\n",
        r"]*|\s*[",
        "\r\n",
        r"]+|\s+(?!\S)|\s+"
    ),
];

/// Kimi K2's expression, of its tokenizer in Python.
pub(in crate::tokenizer) const KIMI_K2_REGEX: &str = r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Youtu's expressions, in turn.
pub(in crate::tokenizer) const YOUTU_REGEXES: [&str; 2] = [
    "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥\u{3040}-ゟ゠-ヿ]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
];

/// The letters with case that DeepSeek LLM's expression lists.
macro_rules! deepseek_llm_letters {
    () => {
        "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
    };
}

/// The punctuation that DeepSeek LLM's expression lists; two of its ranges have letters.
macro_rules! deepseek_llm_punctuation {
    () => {
        "!-/:-~！-／：-～‘-‟\u{3000}-。"
    };
}

/// DeepSeek LLM's expressions, in turn. Digits are cut afterwards.
pub(in crate::tokenizer) const DEEPSEEK_LLM_REGEXES: [&str; 5] = [
    "[\r\n]",
    concat!(r"\s?[", deepseek_llm_letters!(), "]+"),
    concat!(r"\s?[", deepseek_llm_punctuation!(), "]+"),
    r"\s+$",
    "[一-龥\u{800}-一가-\u{d7ff}]+",
];

/// The ranges of the characters between brackets of an expression, in order.
fn ranges(class: &str) -> Vec<RangeInclusive<char>> {
    let mut ranges = Vec::new();
    let mut rest = class.chars().peekable();
    while let Some(first) = rest.next() {
        let last = rest.next_if_eq(&'-').and_then(|_| rest.next());
        ranges.push(first..=last.unwrap_or(first));
    }
    ranges.sort_by_key(|range| *range.start());
    ranges
}

fn deepseek_llm_letters() -> CharClass {
    static RANGES: LazyLock<Vec<RangeInclusive<char>>> = LazyLock::new(|| ranges(deepseek_llm_letters!()));
    &RANGES
}

fn deepseek_llm_punctuation() -> CharClass {
    static RANGES: LazyLock<Vec<RangeInclusive<char>>> = LazyLock::new(|| ranges(deepseek_llm_punctuation!()));
    &RANGES
}

pub(in crate::tokenizer) const LLAMA3: Pattern = Pattern {
    isolate: &[],
    contractions: Contractions::AnyCase,
    words: Words::Prefixed,
    digits: 3,
    spaced_digits: false,
    tail: (&['\r', '\n'], usize::MAX),
    newlines: true,
    triples: false,
};

pub(in crate::tokenizer) const QWEN2: Pattern = Pattern { digits: 1, ..LLAMA3 };

/// Runs of newlines and what is between them.
pub(in crate::tokenizer) const LINES_REGEX: &str = r"[^\n]+|[\n]+";

/// [`LINES_REGEX`], then [`QWEN2`].
pub(in crate::tokenizer) const LAGUNA: Pattern = Pattern { isolate: &[Isolate::Newlines], ..QWEN2 };

/// Seed.
pub(in crate::tokenizer) const SEED: Pattern = Pattern { tail: (&[], 0), ..QWEN2 };

/// Qwen 3.5.
pub(in crate::tokenizer) const QWEN35: Pattern = Pattern { words: Words::PrefixedWithMarks, ..QWEN2 };

pub(in crate::tokenizer) const TEKKEN: Pattern = Pattern {
    contractions: Contractions::No,
    words: Words::PrefixedByCase,
    digits: 1,
    tail: (&['\r', '\n', '/'], usize::MAX),
    ..LLAMA3
};

/// o200k.
pub(in crate::tokenizer) const GPT4O: Pattern = Pattern { contractions: Contractions::OfWords, digits: 3, ..TEKKEN };

/// Tiny Aya, North-Mini-Code.
pub(in crate::tokenizer) const TINY_AYA: Pattern = Pattern { isolate: &[Isolate::LastTriples], ..GPT4O };

/// K-EXAONE.
pub(in crate::tokenizer) const EXAONE_MOE: Pattern =
    Pattern { words: Words::Phrases, digits: 1, tail: (&['\r', '\n', '/'], 1), ..LLAMA3 };

/// Trinity.
pub(in crate::tokenizer) const AFMOE: Pattern = Pattern {
    isolate: &[Isolate::Triples, Isolate::Runs(SCRIPTS)],
    contractions: Contractions::No,
    words: Words::OrPunctuation,
    digits: 0,
    ..LLAMA3
};

/// DeepSeek V3.
pub(in crate::tokenizer) const DEEPSEEK_V3: Pattern =
    Pattern { isolate: &[Isolate::FirstTriples, Isolate::Runs(&[HAN_AND_KANA])], ..AFMOE };

/// Kimi K2.
pub(in crate::tokenizer) const KIMI_K2: Pattern =
    Pattern { words: Words::HanOrByCase, tail: (&['\r', '\n'], usize::MAX), ..GPT4O };

/// Youtu.
pub(in crate::tokenizer) const YOUTU: Pattern =
    Pattern { isolate: &[Isolate::Runs(YOUTU_CLASSES)], digits: 1, ..GPT4O };

/// DeepSeek LLM and V2.
pub(in crate::tokenizer) const DEEPSEEK_LLM: Pattern = Pattern {
    isolate: &[
        Isolate::EachNewline,
        Isolate::Spaced(deepseek_llm_letters),
        Isolate::Spaced(deepseek_llm_punctuation),
        Isolate::SpaceAtEnd,
        Isolate::Runs(&[DEEPSEEK_LLM_WIDE]),
        Isolate::Numbers,
    ],
    words: Words::Whole,
    ..GPT2
};

/// Characters of scripts without spaces between words: Han and kana, Thai, Lao, Khmer, Myanmar, Hangul.
const SCRIPTS: &[CharClass] = &[
    &[
        '\u{4e00}'..='\u{9fff}',
        '\u{3040}'..='\u{30ff}',
        '\u{3400}'..='\u{4dbf}',
        '\u{f900}'..='\u{faff}',
        '\u{ff65}'..='\u{ff9f}',
        '\u{2f00}'..='\u{2fdf}',
    ],
    &['\u{0e00}'..='\u{0e7f}'],
    &['\u{0e80}'..='\u{0eff}'],
    &['\u{1780}'..='\u{17ff}'],
    &['\u{1000}'..='\u{109f}', '\u{aa60}'..='\u{aa7f}', '\u{a9e0}'..='\u{a9ff}'],
    &['\u{ac00}'..='\u{d7af}', '\u{1100}'..='\u{11ff}'],
];

/// `[一-龥぀-ゟ゠-ヿ]`
const HAN_AND_KANA: CharClass = &['一'..='龥', '\u{3040}'..='ヿ'];

/// Youtu's classes: Hangul, punctuation of Chinese texts, Bopomofo, Han with kana.
const YOUTU_CLASSES: &[CharClass] = &[
    &['가'..='힣', 'ㄱ'..='ㆎ'],
    &['！'..='！', '…'..='…', '“'..='”', '‘'..='’', '—'..='—', '：'..='；', '，'..='，', '、'..='〿', '︰'..='﹏'],
    &['ㄅ'..='ㄯ'],
    HAN_AND_KANA,
];

/// `[一-龥ࠀ-一가-퟿]`
const DEEPSEEK_LLM_WIDE: CharClass = &['\u{800}'..='龥', '가'..='\u{d7ff}'];
