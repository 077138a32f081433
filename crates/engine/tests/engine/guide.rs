//! The programs of the guide (`docs/library.md`), which are examples, run as they are printed.

use std::fs;
use std::path::PathBuf;
use std::process;

use gristmill_engine::serde_json::{Value, from_str};
use gristmill_files::gguf::GgufWriter;
use gristmill_kernels::format::Format;

use super::converse::{FORMS, HEAD, tiny};
use super::speech;
use super::tiny::{Random, Tiny};

#[allow(dead_code, unreachable_pub)]
#[path = "../../examples/generate.rs"]
mod generate;
#[allow(dead_code, unreachable_pub)]
#[path = "../../examples/tools.rs"]
mod tools;

/// A model file that is deleted at the end.
struct ModelFile(PathBuf);

impl ModelFile {
    fn new(name: &str, bytes: &[u8]) -> ModelFile {
        let path = std::env::temp_dir().join(format!("gristmill-guide-{}-{name}.gguf", process::id()));
        fs::write(&path, bytes).expect("a file");
        ModelFile(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a text")
    }
}

impl Drop for ModelFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The texts of the answer's tokens, as GPT-2 writes them.
const ANSWER: [&str; 2] = ["IĠthinkĠ3", "Ġ<"];

/// A model that answers with [`ANSWER`], whatever the prompt is: the embedding of each token of the answer, and of the
/// mark before it, is an axis of its own, on which the output head has the next token. Layers add nothing.
fn fixed() -> Vec<u8> {
    let mut tiny = Tiny::llama();
    speech::teach(&mut tiny);
    let mut tokens = speech::tokens();
    let start = tokens.len();
    tokens.push("<|answer|>".to_owned());
    tokens.extend(ANSWER.map(str::to_owned));
    let mut types = vec![1_i32; 257];
    types.extend([3, 3, 3, 3, 1, 1]);
    let count = tokens.len();
    let hidden = 48;
    tiny.set("tokenizer.ggml.tokens", tokens);
    tiny.set("tokenizer.ggml.token_type", types);
    // A form with marks within answers, which "<" could start.
    let template = "{# <global_setting> #}{% for m in messages %}{{ m.content }}{% endfor %}<|answer|>";
    tiny.set("tokenizer.chat_template", template);
    for name in ["token_embd.weight", "output.weight"] {
        tiny.tensor(name, &[hidden as u64, count as u64]);
    }
    let chain: Vec<usize> = (start..count).chain([speech::END as usize]).collect();
    let value = |name: &str, index: usize| {
        let token = index / hidden;
        let axis = index % hidden;
        let of = match name {
            "token_embd.weight" => chain.get(axis),
            "output.weight" => chain.get(axis + 1),
            name => return if name.contains("norm") { 1.0 } else { 0.0 },
        };
        if of == Some(&token) && axis < chain.len() - 1 { 10.0_f32 } else { 0.0 }
    };
    let mut plan = GgufWriter::new();
    for (key, value) in &tiny.pairs {
        plan.set(key, value.clone()).expect("a good key");
    }
    for (name, _, shape) in &tiny.tensors {
        plan.tensor(name, Format::F32, shape).expect("a good tensor");
    }
    let mut data = plan.begin(Vec::new()).expect("memory takes all");
    for (name, _, shape) in &tiny.tensors {
        let count = shape.iter().product::<u64>() as usize;
        let bytes: Vec<u8> = (0..count).flat_map(|index| value(name, index).to_le_bytes()).collect();
        data.write_tensor(name, &bytes).expect("the size is right");
    }
    data.finish().expect("all tensors are written")
}

#[test]
fn the_last_characters_of_an_answer_are_written() {
    let file = ModelFile::new("fixed", &fixed());
    let mut out = Vec::new();
    generate::answer(file.path(), "How many?", &mut out).expect("it runs");
    assert_eq!(String::from_utf8(out).expect("UTF-8"), "I think 3 <\nend\n");
}

#[test]
fn a_required_call_is_written() {
    for (index, (name, end, ..)) in FORMS.into_iter().enumerate() {
        let tiny = tiny(&format!("{HEAD}{end}"));
        let file = ModelFile::new(&format!("form-{index}"), &tiny.bytes(&mut Random::fresh()));
        let mut out = Vec::new();
        tools::call(file.path(), "How warm is it?", &mut out).expect("it runs");
        let out = String::from_utf8(out).expect("UTF-8");
        let arguments = out.strip_prefix("temperature ").unwrap_or_else(|| panic!("{name}: {out:?}"));
        let arguments: Value = from_str(arguments).unwrap_or_else(|error| panic!("{name}: {error} in {out:?}"));
        assert!(["celsius", "fahrenheit"].map(Value::from).contains(&arguments["unit"]), "{name}: {out}");
    }
}

/// The guide prints the examples that the tests above run.
#[test]
fn the_guide_prints_the_examples() {
    let guide = include_str!("../../library.md");
    for example in [include_str!("../../examples/generate.rs"), include_str!("../../examples/tools.rs")] {
        let code: Vec<&str> = example.lines().skip_while(|line| line.starts_with("//!") || line.is_empty()).collect();
        let block = format!("```rust,no_run\n{}\n```\n", code.join("\n"));
        assert!(guide.contains(&block), "docs/library.md lacks this program:\n{block}");
    }
}
