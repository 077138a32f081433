//! A byte-level BPE vocabulary of any size, in the form of Qwen's files: 256 bytes, merges, special tokens.
//!
//! The merges build every run of two and three lower-case letters, with and without a space before it, and runs of four
//! up to the size of the vocabulary. The number of tokens of an English text is then close to a real vocabulary's.

use std::io;

use gristmill_files::gguf::{GgufWriter, WriteError};
use serde_json::{Map, Value, json};

/// Special tokens, at the end of the vocabulary.
const SPECIAL: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];
/// Token types of `tokenizer.ggml.token_type`.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
/// A space in byte-level BPE.
const SPACE: &str = "Ġ";

/// Qwen 2's rules for words.
const SPLIT: &str = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

const TEMPLATE: &str = "{%- for message in messages -%}\
    {{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}\
    {%- endfor -%}\
    {%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}";

/// Writes the tokenizer's metadata for exactly `size` tokens; at least 512.
pub(super) fn describe(size: u32, file: &mut GgufWriter) -> Result<(), WriteError> {
    let (tokens, merges) = tokens(size);
    let merges = merges.into_iter().map(|(left, right)| format!("{left} {right}")).collect();
    let size = size as usize;
    let mut types = vec![NORMAL; size];
    types[size - SPECIAL.len()..].fill(CONTROL);
    let special = |i: usize| (size - SPECIAL.len() + i) as u32;

    file.set("tokenizer.ggml.model", "gpt2")?;
    file.set("tokenizer.ggml.pre", "qwen2")?;
    file.set("tokenizer.ggml.tokens", gristmill_files::gguf::Array::String(tokens))?;
    file.set("tokenizer.ggml.token_type", types)?;
    file.set("tokenizer.ggml.merges", gristmill_files::gguf::Array::String(merges))?;
    file.set("tokenizer.ggml.bos_token_id", special(0))?;
    file.set("tokenizer.ggml.padding_token_id", special(0))?;
    file.set("tokenizer.ggml.eos_token_id", special(2))?;
    file.set("tokenizer.ggml.add_bos_token", false)?;
    file.set("tokenizer.chat_template", TEMPLATE)?;
    Ok(())
}

/// All tokens, and the merges, of which each makes one.
fn tokens(size: u32) -> (Vec<String>, Vec<(String, String)>) {
    let mut tokens = bytes();
    let merges: Vec<_> = pairs().take(size as usize - SPECIAL.len() - tokens.len()).collect();
    tokens.extend(merges.iter().map(|(left, right)| format!("{left}{right}")));
    tokens.extend(SPECIAL.map(str::to_owned));
    (tokens, merges)
}

/// Writes the tokenizer's files of a folder by `save`, which takes a name and the content.
pub(super) fn write_folder(size: u32, save: &dyn Fn(&str, &Value) -> io::Result<()>) -> io::Result<()> {
    let (tokens, merges) = tokens(size);
    let special = |(text, id): (&str, usize)| {
        json!({
            "id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            "special": true,
        })
    };
    let added: Vec<Value> = SPECIAL.into_iter().zip(tokens.len() - SPECIAL.len()..).map(special).collect();
    let vocabulary: Map<String, Value> =
        tokens.into_iter().zip(0..).map(|(token, id): (String, u32)| (token, id.into())).collect();
    let bytes = |prefix: bool| json!({"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": !prefix, "use_regex": false});
    save(
        "tokenizer.json",
        &json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": {"type": "NFC"},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": SPLIT}, "behavior": "Isolated", "invert": false}, bytes(false),
            ]},
            "post_processor": bytes(false), "decoder": bytes(true),
            "model": {
                "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                "vocab": vocabulary, "merges": merges,
            },
        }),
    )?;
    save(
        "tokenizer_config.json",
        &json!({
            "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": SPECIAL[2], "pad_token": SPECIAL[0],
            "chat_template": TEMPLATE,
        }),
    )
}

/// The 256 byte tokens in GPT-2's order: printable bytes stand for themselves, the rest for U+0100 and on.
fn bytes() -> Vec<String> {
    let printable = |b: u32| matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let own = (0..256).filter(|&b| printable(b));
    let others = (0..256).filter(|&b| !printable(b)).zip(256..).map(|(_, c)| c);
    own.chain(others).filter_map(char::from_u32).map(String::from).collect()
}

/// Merges in rank order; each joins two earlier tokens.
fn pairs() -> impl Iterator<Item = (String, String)> {
    let one: Vec<String> = ('a'..='z').map(String::from).collect();
    let joined = |left: &[String]| product(left.to_vec(), one.clone()).map(|(a, b)| a + &b).collect::<Vec<_>>();
    let two = joined(&one);
    let words = [one.clone(), two.clone(), joined(&two)].concat();
    product(one.clone(), one.clone())
        .chain(product(two.clone(), one))
        .chain(product(vec![SPACE.to_owned()], words))
        .chain(product(two.clone(), two))
}

/// Every pair, the right element varying first.
fn product(left: Vec<String>, right: Vec<String>) -> impl Iterator<Item = (String, String)> {
    left.into_iter().flat_map(move |a| right.clone().into_iter().map(move |b| (a.clone(), b)))
}
