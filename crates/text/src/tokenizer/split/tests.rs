use super::Pattern;
use super::published::*;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, SplitDelimiterBehavior};

const GPT2_REGEX: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

fn compile(regexes: &[&str]) -> Vec<Split> {
    regexes.iter().map(|regex| split(regex, SplitDelimiterBehavior::Isolated, false)).collect()
}

fn split(regex: &str, behavior: SplitDelimiterBehavior, invert: bool) -> Split {
    Split::new(SplitPattern::Regex(regex.to_owned()), behavior, invert).unwrap()
}

/// Each published expression is applied to the pieces of the one before.
fn by_regex(splits: &[Split], text: &str) -> Vec<String> {
    let mut pieces = PreTokenizedString::from(text);
    for split in splits {
        split.pre_tokenize(&mut pieces).unwrap();
    }
    let pieces = pieces.get_splits(OffsetReferential::Original, OffsetType::Byte);
    pieces.into_iter().map(|(piece, _, _)| piece.to_owned()).filter(|piece| !piece.is_empty()).collect()
}

fn by_scanner(pattern: &Pattern, text: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    pattern.split(text, |piece| pieces.push(piece.to_owned()));
    pieces
}

// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[test]
fn the_scanner_gives_the_pieces_of_the_published_expressions() {
    // Ling 2's expression cuts as that of Qwen 2: white space before its last newline has the other newlines.
    const LING: &str =
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
    // As `LAST_TRIPLES_REGEX`: what follows digits starts a word for Oniguruma, of which `regex` has another idea.
    const LAST_TRIPLES: &str = r"\d{1,3}(?=(?:\d{3})*(?![\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}²³¹¼-¾Ⓐ-ⓩ🄰-🅉🅐-🅩🅰-🆉]))";
    // As the first three of `AFMOE_REGEXES`, of which the second means another thing to `regex`.
    const TRIPLES: &str = r"\p{Nd}{1,3}(?=(?:\p{Nd}{3})*(?!\p{Nd}))";
    let families: [(&str, Pattern, &[&str]); 17] = [
        ("gpt-2", GPT2, &[GPT2_REGEX]),
        ("smollm", SMOLLM, &[r"\p{N}", GPT2_REGEX]),
        ("default", DEFAULT, &[r"[\p{P}$+<=>^~|]+", GPT2_REGEX, r"\p{N}+", "[0-9][0-9][0-9]"]),
        ("llama-bpe", LLAMA3, &[LLAMA3_REGEX]),
        ("qwen2", QWEN2, &[QWEN2_REGEX]),
        ("bailingmoe2", QWEN2, &[LING]),
        ("qwen35", QWEN35, &[QWEN35_REGEX]),
        ("laguna", LAGUNA, &[LINES_REGEX, QWEN2_REGEX]),
        ("tekken", TEKKEN, &[TEKKEN_REGEX]),
        ("gpt-4o", GPT4O, &[GPT4O_REGEX]),
        ("tiny_aya", TINY_AYA, &[LAST_TRIPLES, GPT4O_REGEX]),
        ("exaone-moe", EXAONE_MOE, &[EXAONE_MOE_REGEX]),
        ("afmoe", AFMOE, &[TRIPLES, AFMOE_REGEXES[3], AFMOE_REGEXES[4]]),
        ("deepseek-v3", DEEPSEEK_V3, &DEEPSEEK_V3_REGEXES),
        ("deepseek-llm", DEEPSEEK_LLM, &[&DEEPSEEK_LLM_REGEXES[..], &[r"\p{N}"]].concat()),
        ("kimi-k2", KIMI_K2, &[KIMI_K2_REGEX]),
        ("youtu", YOUTU, &YOUTU_REGEXES),
    ];
    let families = families.map(|(name, pattern, regexes)| (name, pattern, compile(regexes)));
    let complete: Vec<_> = COMPLETE
        .iter()
        .map(|regex| (regex, compile(&[regex]), [split(regex, SplitDelimiterBehavior::Removed, true)]))
        .collect();
    // Characters of every rule, some kinds twice or three times.
    let alphabet: Vec<char> = "   \t\n\n\r\u{a0}\u{3000}\u{85}aabsStTrReElLvVmMdDxZſÉéßǅʰªª中日ا़\u{301}\u{301}\u{20dd}0012345٣²Ⅳ''’’!./-_$+<^|`«😀\u{200d}\u{fe0f}\u{0}\u{e000}กขລាမ가・฿๑Ⓐ"
        .chars()
        .collect();
    // Blocks that are full, and whose categories no recent version of Unicode has changed.
    let planes = [(0x80, 0x24f), (0x300, 0x36f), (0x400, 0x52f), (0x2000, 0x2069), (0x2190, 0x23ff), (0x3041, 0x3096)];
    let planes = [&planes[..], &[(0x4e00, 0x9fef), (0xac00, 0xd7a3), (0x1f300, 0x1f5ff), (0x20000, 0x2a6d6)]].concat();
    let seed = gristmill_suite::testing::seed_of_test();
    let mut state = seed;
    for round in 0..3000 {
        let length = next(&mut state) % 24;
        let text: String = (0..length)
            .map(|_| {
                let r = next(&mut state);
                let (first, last) = planes[(r >> 8) as usize % planes.len()];
                let any = char::from_u32(first + (r >> 16) as u32 % (last - first + 1));
                any.filter(|_| r.is_multiple_of(8)).unwrap_or(alphabet[(r >> 32) as usize % alphabet.len()])
            })
            .collect();
        for (name, pattern, regexes) in &families {
            let expected = by_regex(regexes, &text);
            assert_eq!(by_scanner(pattern, &text), expected, "{name}, {text:?}, seed {seed}, round {round}");
        }
        for (regex, isolated, removed) in &complete {
            assert_eq!(by_regex(removed, &text), by_regex(isolated, &text), "{regex}, {text:?}, seed {seed}");
        }
    }
}
