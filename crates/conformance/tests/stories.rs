//! The model inside the program, as it is shipped: its bytes, its loss on held-out text, its stories.
//! `training/` makes it; `crates/cli/model/README.md` says how the file came to be.

mod perplexity;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use gristmill_engine::FinishReason;
use gristmill_engine::tokenizer::EncodeOptions;
use gristmill_engine::{Engine, Limits, LoadOptions, Model, Precision, Request};
use sha2::{Digest, Sha256};

use perplexity::perplexity;

const HASH: &str = "c95c20e85dbdc4085d8467eb0bcf052cc92eb4e6872ab27617e3da01b9cae95b";
/// With a file of 9,837,440 bytes the program's package has 9.77 MB; `cargo xtask prove publish` fails above 10 MB.
const MOST_BYTES: usize = 9_900_000;

/// transformers' perplexity of the weights before quantisation, in F32, on the same windows.
const PERPLEXITY: f64 = 7.0445;
const WINDOW: usize = 512;
/// The largest relative change by quantisation; 7.00 was found, 0.6% less.
const QUANTISATION: f64 = 0.02;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn path() -> PathBuf {
    repository().join("crates/cli/model/gristmill-stories.gguf")
}

fn model(precision: Precision) -> Arc<Model> {
    Arc::new(Model::open(path(), LoadOptions { precision, ..LoadOptions::default() }).unwrap())
}

fn text(name: &str) -> String {
    std::fs::read_to_string(repository().join(name)).unwrap()
}

#[test]
fn the_file_is_the_one_that_was_evaluated() {
    let bytes = std::fs::read(path()).unwrap();
    assert!(bytes.len() <= MOST_BYTES);
    let hash: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hash, HASH);
    let model = model(Precision::Fast);
    let spec = model.spec();
    assert_eq!(spec.architecture, "qwen3moe");
    assert!(spec.hidden.is_multiple_of(256));
}

#[test]
fn held_out_text_is_predicted_nearly_as_before_quantisation() {
    let text = text("crates/conformance/golden/text/stories.txt");
    for precision in [Precision::Fast, Precision::Exact] {
        let model = model(precision);
        let tokens = model.tokenizer().unwrap().encode(&text, EncodeOptions::default()).unwrap();
        let (found, scored) = perplexity(&model, &tokens, WINDOW);
        println!("{precision:?}: perplexity {found:.4} over {scored} tokens, {PERPLEXITY} before quantisation");
        assert_eq!((tokens.len(), scored), (22_873, 11_220), "as with transformers' tokenizer");
        assert!((found / PERPLEXITY - 1.0).abs() <= QUANTISATION, "{precision:?}: {found}");
    }
}

/// Sentences in lower case, letters alone, as `training/filter_text.py` has them.
fn sentences(text: &str) -> Vec<String> {
    let text = text.to_lowercase();
    let mut parts = vec![String::new()];
    let mut ended = false;
    for c in text.chars() {
        let quote = c == '"' || c == '\'';
        match c {
            '\n' => parts.push(String::new()),
            c if c.is_whitespace() && ended => parts.push(String::new()),
            c if c.is_ascii_lowercase() || c == '\'' && !ended => parts.last_mut().unwrap().push(c),
            _ => parts.last_mut().unwrap().push(' '),
        }
        ended = matches!(c, '.' | '!' | '?') || ended && quote;
    }
    let words = |part: &String| part.split_whitespace().collect::<Vec<_>>().join(" ");
    parts.iter().map(words).filter(|part| !part.is_empty()).collect()
}

/// A few tokens by Metal's host path and kernels, in the simulator: the CPU's tokens, from logits that differ only by
/// rounding.
#[cfg(all(target_arch = "x86_64", unix))]
#[test]
fn a_few_tokens_on_simulated_metal() {
    use gristmill_conformance::simulated::Simulator;
    use gristmill_cpu::{Cpu, Level};
    use gristmill_engine::{Batch, Outputs, Runner};
    use gristmill_files::gguf::GgufFile;
    use gristmill_kernels::Backend;

    let logits = |backend: Arc<Backend>| {
        let options = LoadOptions { precision: Precision::Exact, ..LoadOptions::default() };
        let model = Arc::new(Model::with_backend(GgufFile::open(path()).unwrap(), backend, options).unwrap());
        let prompt =
            model.tokenizer().unwrap().encode("Once upon a time, there was", EncodeOptions::default()).unwrap();
        let mut runner = Runner::new(model, Limits { context: Some(64), ..Limits::default() }).unwrap();
        let sequence = runner.open_sequence().unwrap();
        let mut tokens = prompt;
        let mut all = Vec::new();
        for _ in 0..4 {
            let mut batch = Batch::new();
            batch.push(sequence, &tokens, Outputs::Last);
            let row = runner.forward(&batch).unwrap().to_vec().unwrap();
            let best = (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
            tokens = vec![best as u32];
            all.push((best, row));
        }
        all
    };
    let expected = logits(Arc::new(Cpu::backend(Level::best(), 2).unwrap()));
    let found = logits(Arc::new(Simulator::metal(1, gpu_sim::Mode::Fast).unwrap()));
    for (i, ((best, expected), (token, found))) in expected.iter().zip(&found).enumerate() {
        let square = |x: f32| f64::from(x).powi(2);
        let error: f64 = found.iter().zip(expected).map(|(a, b)| square(a - b)).sum();
        let nmse = error / expected.iter().map(|&x| square(x)).sum::<f64>();
        println!("token {i}: {token}, NMSE {nmse:.1e}");
        assert!(nmse <= 1e-5, "token {i}: NMSE {nmse:.1e}");
        assert_eq!(token, best, "token {i}");
    }
}

/// The thirty samples of `training/CARD.md`, anew: the draws are others, the model is the quantised one.
#[test]
fn stories_end_and_do_not_repeat_sentences() {
    let prompts = text("training/sample_prompts.txt");
    let prompts: Vec<&str> = prompts.lines().collect();
    assert_eq!(prompts.len(), 30);
    let limits = Limits { context: Some(512), sequences: 8, ..Limits::default() };
    let engine = Engine::start(model(Precision::Fast), limits).unwrap();
    let story = |number: u64, prompt: &str| {
        let mut request = Request::new(prompt);
        (request.sampling.temperature, request.sampling.min_p) = (0.7, 0.1);
        (request.sampling.top_k, request.sampling.top_p) = (0, 1.0);
        request.sampling.seed = Some(number);
        let mut text = prompt.to_owned();
        let mut end = None;
        for piece in engine.generate(request).unwrap() {
            let piece = piece.unwrap();
            text.push_str(&piece.text);
            end = piece.finish;
        }
        (text, end.unwrap().reason == FinishReason::End)
    };
    let stories: Vec<(String, bool)> = thread::scope(|scope| {
        let handles: Vec<_> = (1..).zip(&prompts).map(|(n, prompt)| scope.spawn(move || story(n, prompt))).collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    });
    let mut good = 0;
    for (text, ended) in &stories {
        let mut parts = sentences(text);
        let count = parts.len();
        parts.sort();
        parts.dedup();
        match *ended && parts.len() == count {
            true => good += 1,
            false => println!("ended: {ended}, repeated: {}: {text}\n", count - parts.len()),
        }
    }
    println!("{good} of 30 stories end and repeat no sentence");
    assert!(good >= 27, "{good} of 30");
}

#[test]
fn sentences_are_cut_as_the_filter_does() {
    let text = "She said, \"Oh no!\" He ran. 'Yes,' he said.\nHe ran...  The e.g.x end";
    assert_eq!(sentences(text), ["she said oh no", "he ran", "'yes ' he said", "he ran", "the e g x end"]);
}
