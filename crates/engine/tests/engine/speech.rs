//! A vocabulary and a chat template for tiny models: each byte a token, and the marks of a conversation.

use super::tiny::Tiny;

/// Tokens: 256 bytes, one pair, three marks.
pub(crate) const WORDS: u64 = 260;
/// Ends an answer.
pub(crate) const END: u32 = 259;

const TEMPLATE: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
                        {% if add_generation_prompt %}<|im_start|>assistant\n\
                        {% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}{% endif %}";

/// The texts of the tokens, as GPT-2 writes them.
pub(crate) fn tokens() -> Vec<String> {
    // GPT-2 writes bytes that are not printable as the characters from U+0100 on.
    let printable = |byte: &u8| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut others = 0x100..;
    let letter = |byte: u8| match printable(&byte) {
        true => char::from(byte),
        false => others.next().and_then(char::from_u32).unwrap_or_default(),
    };
    let mut tokens: Vec<String> = (0..=255).map(letter).map(String::from).collect();
    tokens.extend(["ab", "<|begin|>", "<|im_start|>", "<|im_end|>"].map(String::from));
    tokens
}

/// Gives a model a vocabulary of byte-level BPE, and a chat template.
pub(crate) fn teach(tiny: &mut Tiny) {
    let mut types = vec![1_i32; 257];
    types.extend([3, 3, 3]);
    let hidden = tiny.tensors.iter().find(|t| t.0 == "token_embd.weight").map_or(0, |t| t.2[0]);
    tiny.tensor("token_embd.weight", &[hidden, WORDS]);
    if tiny.tensors.iter().any(|t| t.0 == "output.weight") {
        tiny.tensor("output.weight", &[hidden, WORDS]);
    }
    tiny.set("tokenizer.ggml.model", "gpt2");
    tiny.set("tokenizer.ggml.pre", "default");
    tiny.set("tokenizer.ggml.tokens", tokens());
    tiny.set("tokenizer.ggml.token_type", types);
    tiny.set("tokenizer.ggml.merges", vec!["a b".to_owned()]);
    tiny.set("tokenizer.ggml.bos_token_id", 257_u32);
    tiny.set("tokenizer.ggml.eos_token_id", END);
    tiny.set("tokenizer.ggml.add_bos_token", true);
    tiny.set("tokenizer.chat_template", TEMPLATE);
}

/// The marks of images of LFM2-VL, after the other tokens.
const IMAGES: [&str; 5] = ["<image>", "<|image_start|>", "<|image_end|>", "<|img_row_1_col_1|>", "<|img_thumbnail|>"];
/// The token that stands for rows of images.
#[allow(dead_code, reason = "some tests have no images")]
pub(crate) const IMAGE: u32 = 260;

/// Contents may be lists of parts.
const PARTS: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}\
                     {% else %}{% for part in m.content %}{% if part.type == 'image' %}<image>{% else %}\
                     {{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}\
                     {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// The same for a model that reads images as LFM2-VL does: it also has the marks of images.
#[allow(dead_code, reason = "some tests have no images")]
pub(crate) fn teach_images(tiny: &mut Tiny) {
    teach(tiny);
    let words = WORDS + IMAGES.len() as u64;
    let hidden = tiny.tensors.iter().find(|t| t.0 == "token_embd.weight").map_or(0, |t| t.2[0]);
    for name in ["token_embd.weight", "output.weight"] {
        if name != "output.weight" || tiny.tensors.iter().any(|t| t.0 == name) {
            tiny.tensor(name, &[hidden, words]);
        }
    }
    let mut all = tokens();
    all.extend(IMAGES.map(String::from));
    let types: Vec<i32> = (0..words).map(|at| if at < 257 { 1 } else { 3 }).collect();
    tiny.set("tokenizer.ggml.tokens", all);
    tiny.set("tokenizer.ggml.token_type", types);
    tiny.set("tokenizer.chat_template", PARTS);
}
