//! Every command that takes a model, on a folder as Hugging Face publishes it, and on one that MLX quantised.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use super::{gristmill, path};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/golden").join(name)
}

/// The folder as published.
fn plain() -> String {
    golden("convert/qwen3moe").display().to_string()
}

/// The same model as MLX quantised it: its weights with the tokenizer of the folder that they were made of.
static MLX: LazyLock<String> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("folders-mlx");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a temporary folder");
    for (from, names) in [
        ("convert/qwen3moe", &["chat_template.jinja", "tokenizer.json", "tokenizer_config.json"][..]),
        ("mlx/qwen3moe-4bit", &["config.json", "model.safetensors", "model.safetensors.index.json"]),
    ] {
        for name in names {
            fs::copy(golden(from).join(name), folder.join(name)).expect("a copy");
        }
    }
    folder.display().to_string()
});

/// A text of many tokens.
fn text() -> String {
    let text = path("text for folders");
    fs::write(&text, "The mill grinds the grain by the river. ".repeat(4)).expect("a written text");
    text
}

/// The output of a command with this model, and options after it.
#[track_caller]
fn output(command: &[&str], model: &[&str]) -> String {
    gristmill(&[command, model].concat(), b"").success()
}

const RUN: [&str; 8] = ["run", "-p", "The mill", "--raw", "-n", "8", "--temp", "0"];
const EMBED: [&str; 4] = ["embed", "-f", "-", "-q"];

#[test]
fn every_command_takes_a_folder() {
    let text = text();
    for (folder, format) in [(plain(), "BF16"), (MLX.clone(), "Q4_1")] {
        let report = output(&["inspect"], &[&folder]);
        assert!(report.contains("architecture  qwen3moe") && report.contains(format), "{report}");
        assert!(!report.contains("cannot run"), "{report}");
        assert_eq!(output(&["tokenize"], &[&folder, "abc"]), output(&["tokenize"], &[&plain(), "abc"]));
        let windows = ["-f", &text, "--ctx", "16"];
        assert!(output(&["perplexity", &folder], &windows).starts_with("perplexity "));
        assert!(output(&["experts", &folder], &windows).contains("entropy"));
        let bench: serde_json::Value =
            serde_json::from_str(&output(&["bench", "-p", "4", "-n", "4", "-r", "1", "--json"], &[&folder])).unwrap();
        assert!(bench.to_string().contains("decode"), "{bench}");
        let chat = gristmill(&["chat", &folder, "-n", "4", "--temp", "0"], b"hello\n");
        assert_eq!(chat.code, Some(0), "{}", chat.err);

        // What a folder is converted to has the same formats, so it computes the same.
        let file = path(&format!("folder-{format}.gguf"));
        output(&["convert", &folder, "-o", &file, "--force"], &[]);
        assert_eq!(output(&RUN, &["-m", &folder]), output(&RUN, &["-m", &file]));
        let vectors =
            |model: &str| gristmill(&[&EMBED[..], &["-m", model]].concat(), b"The mill\nThe river\n").success();
        assert_eq!(vectors(&folder), vectors(&file));
        let quantised = path(&format!("folder-{format}-q8.gguf"));
        output(&["quantize", &folder, &quantised, "Q8_0", "--force"], &[]);
        assert!(output(&["inspect"], &[&quantised]).contains("Q8_0"));
        output(&RUN, &["-m", &quantised]);
    }
}

#[cfg(unix)]
#[test]
fn a_folder_is_served() {
    use super::serve::{Serving, rest};
    for (folder, options) in [(plain(), &["--quantize", "Q8_0"][..]), (MLX.clone(), &[])] {
        let server = Serving::of(&folder, None, "64", options);
        let reply = rest(server.post("", r#"{"prompt": "ab", "max_tokens": 3}"#));
        assert!(reply.starts_with("HTTP/1.1 200") && reply.contains(r#""text":"#), "{reply}");
    }
}

#[test]
fn weights_are_quantised_when_they_are_loaded() {
    let (folder, text) = (plain(), text());
    let file = path("folder-loaded.gguf");
    output(&["convert", &folder, "-o", &file, "--type", "Q8_0", "--force"], &[]);
    let both = |command: &[&str]| {
        let loaded = output(command, &["-m", &folder, "--quantize", "q8_0"]);
        let written = output(command, &["-m", &file]);
        assert_eq!(loaded, written, "{command:?}");
        loaded
    };
    both(&RUN);
    let windows = ["-f", &text, "--ctx", "16"];
    let loaded = both(&[&["perplexity"], &windows[..]].concat());
    assert_ne!(loaded, output(&[&["perplexity"], &windows[..]].concat(), &["-m", &folder]));
    let short = path("folder-short.txt");
    std::fs::write(&short, "wheat and rye").unwrap();
    both(&["embed", "-f", &short]);
    both(&[&["experts", "--json"], &windows[..]].concat());
    let report = output(&["inspect", "--quantize", "Q8_0"], &[&folder]);
    assert!(report.contains("Q8_0") && !report.contains("BF16"), "{report}");
    output(&["bench", "-p", "4", "-n", "4", "-r", "1", "--quantize", "Q4_0"], &[&folder]);
    let chat = gristmill(&["chat", &folder, "-n", "4", "--quantize", "Q8_0"], b"hello\n");
    assert_eq!(chat.code, Some(0), "{}", chat.err);

    // A receipt is of the weights as they were loaded.
    let receipt = path("folder-receipt.json");
    output(&RUN, &["-m", &folder, "--quantize", "Q8_0", "--receipt", &receipt]);
    output(&["replay", &receipt], &["-m", &folder, "--quantize", "Q8_0"]);
    let other = gristmill(&["replay", &receipt, "-m", &folder], b"");
    assert!(other.last_line().contains("fingerprint"), "{}", other.err);
}

#[test]
fn what_is_no_unquantised_folder_is_not_quantised_when_it_is_loaded() {
    for (model, says) in [
        (
            &["-m", "MODEL"][..],
            &["--quantize Q8_0 is for folders", "model.gguf is a GGUF file", "gristmill quantize"][..],
        ),
        (&[], &["the built-in model is a GGUF file"]),
        (&["-m", &MLX], &["folders-mlx is quantised, and", "leave the format out", "(--quantize)"]),
        (&["-m", "no such folder"], &["no such folder"]),
    ] {
        let ended = gristmill(&[&["run", "--quantize", "q8_0", "-p", "a", "-n", "1"], model].concat(), b"");
        assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{}", ended.err);
        assert!(says.iter().all(|text| ended.last_line().contains(text)), "{}", ended.err);
    }
    let ended = gristmill(&["run", "--quantize", "Q9", "-p", "a", "-m", &plain()], b"");
    assert!(ended.code == Some(2) && ended.err.contains("Q4_K_M"), "{}", ended.err);
    for options in [&["--synthetic", "mini-moe"][..], &["--suite", "cpu"]] {
        assert_eq!(gristmill(&[&["bench", "--quantize", "Q8_0"], options].concat(), b"").code, Some(2));
    }
}

#[test]
fn a_folder_is_quantised_as_mlx_does() {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("folders-written");
    let _ = fs::remove_dir_all(&out);
    let out = out.display().to_string();
    let ended = gristmill(&["quantize", "--mlx", "8bit:32", &plain(), &out], b"");
    assert!(ended.err.contains("folders-written") && ended.err.contains("tensors in codes"), "{}", ended.err);
    assert_eq!(ended.success(), "");
    assert!(output(&["inspect"], &[&out]).contains("AFFINE8_32"));
    output(&RUN, &["-m", &out]);
    let again = gristmill(&["quantize", "--mlx", "8bit:32", &plain(), &out], b"");
    assert!(again.code == Some(1) && again.last_line().contains("exists"), "{}", again.err);
    let file = gristmill(&["quantize", "--mlx", "8bit", "MODEL", &path("no folder")], b"");
    assert!(file.code == Some(1) && file.last_line().contains("is not a folder"), "{}", file.err);
    for wrong in [&["--mlx", "7bit:32"][..], &["--mlx", "4bit", "--force"], &[]] {
        let ended = gristmill(&[&["quantize"], wrong, &[&plain(), &path("no folder")]].concat(), b"");
        assert_eq!(ended.code, Some(2), "{}", ended.err);
    }
}
