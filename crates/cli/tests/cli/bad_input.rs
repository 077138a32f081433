//! Errors: one sentence with the remedy on stderr, a non-zero exit code, an empty stdout, no backtrace.

use std::fs;

use gristmill_files::gguf::GgufFile;

use super::{Ended, FOLDER, gristmill, path};

/// Fails unless the run ended with exit code 1 and one error line with all of these words.
#[track_caller]
fn refused(ended: Ended, words: &[&str]) {
    let Ended { code, out, err } = &ended;
    assert_eq!(*code, Some(1), "stdout {out:?} stderr {err:?}");
    assert_eq!(out, "");
    assert!(err.starts_with("error: ") && err.lines().count() == 1, "{err:?}");
    assert!(words.iter().all(|word| err.contains(word)), "{err:?} lacks one of {words:?}");
    assert!(!err.contains("panicked") && !err.contains("backtrace"), "{err:?}");
}

#[track_caller]
fn run_refused(arguments: &[&str], words: &[&str]) {
    refused(gristmill(&[&["run", "-m", "MODEL"], arguments].concat(), b""), words);
}

#[test]
fn models() {
    for command in ["run", "chat", "perplexity", "tokenize", "inspect"] {
        let with = |model: &str| match command {
            "inspect" => gristmill(&["inspect", model], b""),
            "perplexity" => gristmill(&["perplexity", "-m", model, "-f", model], b""),
            "chat" => gristmill(&["chat", "-m", model], b""),
            _ => gristmill(&[command, "-m", model, "hello"], b""),
        };
        if command != "perplexity" {
            refused(with(&path("missing.gguf")), &["missing.gguf"]);
            refused(with(&path("")), &["is a directory", ".gguf"]);
            refused(with("/dev/null"), &["/dev/null"]);
        }
    }
    let safetensors = FOLDER.join("safetensors");
    fs::create_dir_all(&safetensors).unwrap();
    fs::write(safetensors.join("model.safetensors"), [2, 0, 0, 0, 0, 0, 0, 0, b'{', b'}']).unwrap();
    let run = |path: &str| gristmill(&["run", "-m", path, "hello"], b"");
    refused(run(&path("safetensors")), &["safetensors", "GGUF"]);
    refused(run(&path("safetensors/model.safetensors")), &["safetensors", "GGUF", "gristmill convert"]);
    let published = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/golden/convert/qwen3moe");
    assert_eq!(run(published).code, Some(0), "a folder that `convert` reads runs as it lies");
    fs::write(path("short.gguf"), &fs::read(path("model.gguf")).unwrap()[..1000]).unwrap();
    refused(run(&path("short.gguf")), &["short.gguf"]);
    fs::write(path("empty.gguf"), "").unwrap();
    refused(run(&path("empty.gguf")), &["empty"]);
    refused(run(&path("mute.gguf")), &["tokenizer"]);
    refused(gristmill(&["chat", "-m", &path("mute.gguf")], b""), &["chat template", "--raw"]);
}

/// Files that are no model: the file first, then what it is, then what to do, in every command that opens a model.
#[test]
fn files_that_are_no_model() {
    let write = |name: &str, bytes: &[u8]| {
        fs::write(path(name), bytes).unwrap();
        path(name)
    };
    let model = fs::read(path("model.gguf")).unwrap();
    let typed = |name: &str, pairs: &[(&str, &str)], keep: usize| {
        let mut tiny = crate::tiny::Tiny::llama();
        tiny.tensors.truncate(keep);
        pairs.iter().for_each(|(key, value)| tiny.set(key, *value));
        write(name, &tiny.bytes(&mut crate::tiny::Random::fresh()))
    };
    let half = write("half.gguf", &model[..model.len() / 2]);
    let missing = format!("{} bytes are missing", model.len() - model.len() / 2);
    let safetensors = [&12_u64.to_le_bytes()[..], b"{\"a\":[]}    "].concat();
    let all = usize::MAX;
    let cases = [
        (typed("lora.gguf", &[("general.type", "adapter")], 2), "is a LoRA adapter", "merge it into its model"),
        (typed("mmproj.gguf", &[("general.architecture", "clip")], 2), "(mmproj)", "use the other GGUF file"),
        (typed("mmproj2.gguf", &[("general.type", "mmproj")], 2), "(mmproj)", "use the other GGUF file"),
        (typed("matrix.gguf", &[("general.type", "imatrix")], 2), "importance matrix", "use the model itself"),
        (typed("vocab.gguf", &[], 0), "is a vocabulary without weights", "use the file with the weights"),
        (
            typed("new.gguf", &[("general.architecture", "novel")], all),
            "architecture `novel` is not",
            "known architectures",
        ),
        (half, &missing, "download it again"),
        (write("checkpoint.bin", b"PK\x03\x04 and so on"), "PyTorch checkpoint", "look for a GGUF version"),
        (write("old.pt", b"\x80\x02\x8a\x0al\xfc\x9c"), "PyTorch checkpoint", "look for a GGUF version"),
        (write("page.gguf", b"\n<!DOCTYPE html><html>"), "is a web page", "download the file itself"),
        (write("refused.gguf", b"Access to model a/b is restricted"), "the refusal of a server", "download the file"),
        (write("pointer.gguf", b"version https://git-lfs.github.com/spec/v1\noid"), "Git LFS pointer", "git lfs pull"),
        (write("model.safetensors", &safetensors), "is a safetensors file", "use the folder that contains it"),
        (write("packed.gguf", b"\x1f\x8b\x08\x00"), "compressed archive", "unpack it"),
    ];
    let text = write("text for files", b"abcdefgh");
    let out = path("never written.gguf");
    for (file, what, remedy) in &cases {
        for words in [
            &["run", "-m", file, "hi"][..],
            &["chat", file],
            &["serve", file],
            &["embed", "-m", file, "hi"],
            &["perplexity", file, "-f", &text],
            &["experts", file, "-f", &text],
            &["bench", file],
            &["fit", file, "--bandwidth", "10"],
            &["quantize", file, &out, "Q8_0"],
            &["run", "-m", "MODEL", "--draft-model", file, "hi"],
        ] {
            // Quantising does not check the architecture.
            if words[0] == "quantize" && what.contains("architecture") {
                continue;
            }
            let ended = gristmill(words, b"");
            assert!(ended.err.starts_with(&format!("error: {file}: ")), "{words:?}: {}", ended.err);
            refused(ended, &[what, remedy]);
        }
    }
    // A vocabulary alone has what these commands show.
    gristmill(&["inspect", &cases[4].0], b"").success();
    assert!(gristmill(&["inspect", &cases[0].0], b"").success().contains("cannot run    is a LoRA adapter"));
    refused(gristmill(&["tokenize", "-m", &cases[0].0, "hi"], b""), &["lora.gguf: ", "LoRA adapter"]);
}

#[test]
fn grammars() {
    let schema = |text: &str, words: &[&str]| run_refused(&["hello", "--json-schema", text], words);
    schema(
        "{\"items\": {\"uniqueItems\": true}}",
        &["\"/items/uniqueItems\"", "enforced only for items of at most 4 values", "leave it out"],
    );
    schema("{\"type\":", &["--json-schema", "not valid JSON", "line 1"]);
    schema(&path("none.json"), &["none.json"]);
    schema(&path("model.gguf"), &["model.gguf", "UTF-8"]);
    run_refused(&["hello", "--regex", "("], &["the grammar cannot be used"]);
    run_refused(&["hello", "--regex", ""], &["empty"]);
    run_refused(&["hello", "--grammar", &path("none.lark")], &["none.lark"]);
    fs::write(path("bad.lark"), "start: missing\n").unwrap();
    run_refused(&["hello", "--grammar", &path("bad.lark")], &["the grammar cannot be used"]);
    misused(&["run", "hello", "--regex", "a", "--json-schema", "{}"], &["--regex", "--json-schema"]);
}

/// Fails unless clap rejected the arguments with these words.
#[track_caller]
fn misused(arguments: &[&str], words: &[&str]) {
    let Ended { code, out, err } = gristmill(arguments, b"");
    assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
    assert!(
        err.starts_with("error: ") && words.iter().all(|word| err.contains(word)),
        "{err:?} lacks one of {words:?}"
    );
    // clap's tip about `--`, and the names of Rust types and parse errors.
    for word in [" tip:", "-- -", "usize", "u64", "digit", "literal", "target type"] {
        assert!(!err.contains(word), "{err:?} says {word:?}");
    }
}

#[test]
fn prompts() {
    run_refused(&[""], &["empty"]);
    run_refused(&["-p", ""], &["empty"]);
    run_refused(&["-"], &["empty"]);
    run_refused(&[], &["no prompt", "-"]);
    run_refused(&["--raw", &"x".repeat(200)], &["201 tokens", "100", "shorten"]);
    refused(gristmill(&["run", "-m", "MODEL", "-"], b"caf\xe9"), &["UTF-8", "byte 3", "iconv"]);
    refused(gristmill(&["chat", "-m", "MODEL"], b"caf\xe9\n"), &["UTF-8"]);
    refused(gristmill(&["tokenize", "-m", "MODEL", "-"], b"\xff"), &["UTF-8"]);
}

#[test]
fn numbers() {
    let run_misused = |option: &[&str], words: &[&str]| {
        misused(&[&["run", "-m", "MODEL"][..], option, &["x"]].concat(), words);
    };
    for n in ["0", "-1", "10000", "99999999999999999999999", "two"] {
        run_misused(&["--threads", n], &["--threads", n, "whole number between 1 and"]);
    }
    for n in ["0", "-1"] {
        run_misused(&["--ctx", n], &["--ctx", n, "at least 1"]);
    }
    run_refused(&["--ctx", "100000000000", "x"], &["context", "gristmill supports at most 2147483648"]);
    run_refused(&["--device", "tpu", "x"], &["tpu", "cpu", "cuda"]);
    for command in ["run", "bench", "perplexity"] {
        misused(&[command, "--cpu-level", "sse9"], &["--cpu-level", "sse9", "levels of this CPU are portable"]);
    }
    run_refused(&["--device", "cuda", "--cpu-level", "portable", "x"], &["--cpu-level", "cuda"]);
    for n in ["0", "-2", "all"] {
        run_misused(&["-n", n], &["--max-tokens", n, "at least 1, or -1 for no limit"]);
    }
    run_misused(&["--top-k", "-2"], &["--top-k", "-2", "-1 for all"]);
    run_misused(&["--seed", "-1"], &["--seed", "-1", "0 or greater"]);
    run_misused(&["--seed", "18446744073709551616"], &["--seed", "too large"]);
    for option in ["--chunk", "--batch", "--repeats", "--requests", "--prompt", "--decode", "--depth"] {
        misused(&["bench", option, "-1"], &[option, "-1", "whole number"]);
    }
    refused(gristmill(&["bench", "--draft-tokens", "3"], b""), &["draft tokens", "--requests"]);
    misused(&["run", "--draft", "4", "hi"], &["--draft", "mtp, lookup or off", "--draft-tokens"]);
    misused(&["run", "--draft", "yes", "hi"], &["--draft", "mtp, lookup or off"]);
    misused(&["run", "--draft-tokens", "0", "hi"], &["--draft-tokens", "at least 1"]);
    misused(&["run", "--draft", "mtp", "--draft-model", "x", "hi"], &["--draft", "--draft-model"]);
    misused(&["bench", "--mtp-accept", "1.5"], &["--mtp-accept", "between 0 and 1"]);
    misused(&["bench", "--mtp-accept", "0.5", "--draft", "lookup"], &["--mtp-accept", "--draft"]);
    let profile = gristmill(&["bench", "-m", "MODEL", "--profile", "--device", "cuda"], b"");
    refused(profile, &["--profile measures the CPU", "cuda"]);
    refused(gristmill(&["bench", "--suite", "cpu", "--device", "cuda"], b""), &["--suite cpu", "cuda"]);
    misused(&["bench", "--suite", "cpu", "--prompt", "3"], &["--suite", "--prompt"]);
    misused(&["bench", "--profile", "--requests", "3"], &["--profile", "--requests"]);
    misused(&["bench", "--synthetic", "mini-moe", "--layers", "-1"], &["--layers", "at least 1"]);
    misused(&["quantize", "a", "b", "F32", "--threads", "-1"], &["--threads", "between 1 and"]);
    misused(&["convert", "a", "-o", "b", "--threads", "-1"], &["--threads", "between 1 and"]);
    misused(&["chat", "--ctx", "-1"], &["--ctx", "at least 1"]);
    let out_of_range = |option: &[&str], word: &str| {
        let Ended { code, out, err } = gristmill(&[&["run", "-m", "MODEL"][..], option, &["x"]].concat(), b"");
        assert_eq!((code, out.as_str(), err.lines().count()), (Some(2), "", 1), "{err}");
        assert!(err.starts_with("error: ") && err.contains(word), "{err:?} lacks {word:?}");
    };
    out_of_range(&["--stop", ""], "--stop");
    for option in ["--temp", "--top-p", "--min-p", "--repeat-penalty", "--presence-penalty", "--frequency-penalty"] {
        for value in ["NaN", "inf", "-inf"] {
            out_of_range(&[option, value], "it must be");
        }
    }
    for (option, value) in
        [("--temp", "-1"), ("--top-p", "-0.5"), ("--top-p", "1.5"), ("--min-p", "-0.5"), ("--repeat-penalty", "0")]
    {
        out_of_range(&[option, value], "it must be");
    }
    for (option, value, word) in [
        ("--logit-bias", "260=1", "vocabulary of 260"),
        ("--logit-bias", "1=NaN", "finite"),
        ("--logit-bias", "\"hello\"=1", "not one token"),
    ] {
        run_refused(&[option, value, "x"], &[word]);
    }
    out_of_range(&["--logit-bias", "the=1"], "TOKEN=BIAS");
    for value in ["-1", "NaN"] {
        out_of_range(&["--dry-multiplier", value], "dry_multiplier");
    }
    for (option, value, word) in [
        ("--dry-base", "0.5", "dry_base"),
        ("--dry-base", "inf", "dry_base"),
        ("--dry-penalty-last-n", "-2", "--dry-penalty-last-n is -2"),
        ("--dry-sequence-breaker", "", "breaker is empty"),
    ] {
        out_of_range(&["--dry-multiplier", "0.8", option, value], word);
        // Without a multiplier DRY is off, so its parameters are wrong usage.
        let alone = gristmill(&["run", "-m", "MODEL", option, value, "x"], b"");
        assert!(alone.code == Some(2) && alone.err.contains("--dry-multiplier"), "{}", alone.err);
    }
    run_refused(&["--logit-bias", "97=1", "--logit-bias", "\"a\"=2", "x"], &["token 97 has two"]);
    let chat = ["chat", "-m", "MODEL", "--logit-bias", "\"hello\"=1"];
    refused(gristmill(&chat, b"hello\n"), &["not one token", "gristmill tokenize"]);
    for n in ["0", "-1"] {
        run_misused(
            &["--dry-multiplier", "0.8", "--dry-allowed-length", n],
            &["--dry-allowed-length", n, "at least 1"],
        );
    }
    run_misused(&["--dry-multiplier", "strong"], &["--dry-multiplier", "must be a number"]);
    run_misused(&["--temp", "warm"], &["--temp", "warm", "must be a number"]);
}

/// Errors about a file's numbers name no Rust types.
#[test]
fn numbers_in_files() {
    let refusal = |change: &dyn Fn(&mut crate::tiny::Tiny), words: &[&str]| {
        let mut tiny = crate::tiny::Tiny::llama();
        change(&mut tiny);
        fs::write(path("odd.gguf"), tiny.bytes(&mut crate::tiny::Random::fresh())).unwrap();
        let ended = gristmill(&["run", "-m", &path("odd.gguf"), "x"], b"");
        assert!(!ended.err.contains("usize") && !ended.err.contains("supported"), "{}", ended.err);
        refused(ended, words);
    };
    refusal(
        &|tiny| tiny.set("llama.block_count", -1_i32),
        &["block_count", "-1 is out of range", "an integer of at least 0"],
    );
    refusal(&|tiny| tiny.set("llama.block_count", 500_u32), &["block_count", "500 layers", "the file has 20"]);
}

/// A model trained on a context that exceeds any machine's memory.
#[test]
fn a_context_larger_than_memory() {
    let mut tiny = crate::tiny::Tiny::llama();
    crate::speech::teach(&mut tiny);
    tiny.set("llama.context_length", 1_u32 << 31);
    let model = path("long.gguf");
    fs::write(&model, tiny.bytes(&mut crate::tiny::Random::fresh())).unwrap();
    refused(gristmill(&["run", "-m", &model, "--ctx", "2147483648", "x"], b""), &["free", "use a shorter context"]);
    // The default context fits into memory.
    gristmill(&["run", "-m", &model, "-n", "1", "x"], b"").success();
}

#[test]
fn perplexity() {
    let text = path("text");
    fs::write(&text, "too short").unwrap();
    let run = |arguments: &[&str]| gristmill(&[&["perplexity", "-m", "MODEL"], arguments].concat(), b"");
    refused(run(&["-f", &text, "--ctx", "50"]), &["10 tokens", "--ctx", "longer"]);
    refused(run(&["-q", "-f", &text]), &["10 tokens", "one window has 512", "--ctx", "longer"]);
    for ctx in ["3", "-1"] {
        refused(run(&["-f", &text, "--ctx", ctx]), &["--ctx", ctx, "at least 4"]);
    }
    refused(run(&["-f", &path("no such text"), "--ctx", "50"]), &["no such text"]);
    refused(run(&["-f", &path("model.gguf"), "--ctx", "50"]), &["UTF-8"]);

    let (long, other, saved) = (path("a long text"), path("another long text"), path("bad saved logits"));
    fs::write(&long, "abcdefgh".repeat(20)).unwrap();
    fs::write(&other, "abcdefgi".repeat(20)).unwrap();
    run(&["-q", "-f", &long, "--ctx", "50", "--save-logits", &saved]).success();
    let compare = |text: &str, ctx: &str, base: &str| run(&["-f", text, "--ctx", ctx, "--kl-base", base]);
    refused(compare(&long, "40", &saved), &["--kl-base", "--ctx 50"]);
    refused(compare(&other, "50", &saved), &["--kl-base", "token 7", "same text"]);
    refused(compare(&long, "50", &path("model.gguf")), &["--kl-base", "--save-logits"]);
    refused(compare(&long, "50", &path("no such file")), &["--kl-base", "no such file"]);
    let bytes = fs::read(&saved).unwrap();
    let cut = path("cut saved logits");
    for len in [0, 3, 100, bytes.len() / 2, bytes.len() - 1] {
        fs::write(&cut, &bytes[..len]).unwrap();
        refused(compare(&long, "50", &cut), &["--kl-base"]);
    }
    let nowhere = path("no such folder/logits");
    refused(run(&["-f", &long, "--ctx", "50", "--save-logits", &nowhere]), &["no such folder"]);
}

/// The built-in model has no chat template.
#[test]
fn talking_to_the_built_in_model() {
    refused(gristmill(&["chat"], b"hello"), &["built-in", "cannot chat", "gristmill chat hf:"]);
}

#[test]
fn experts() {
    let text = path("text for bad experts");
    fs::write(&text, "abcdefgh".repeat(20)).unwrap();
    let run = |arguments: &[&str]| gristmill(&[&["experts", "-m", "MODEL"], arguments].concat(), b"");
    refused(run(&["-f", &text, "--ctx", "0"]), &["--ctx", "at least 1"]);
    refused(run(&["-f", &path("nothing here"), "--ctx", "50"]), &["nothing here", "text file"]);
    refused(run(&["-f", &text, "--ctx", "50", "--svg", &path("no folder/x.svg")]), &["no folder"]);
    let mut tiny = crate::tiny::Tiny::llama();
    crate::speech::teach(&mut tiny);
    let dense = path("dense.gguf");
    fs::write(&dense, tiny.bytes(&mut crate::tiny::Random::fresh())).unwrap();
    refused(gristmill(&["experts", "-m", &dense, "-f", &text, "--ctx", "50"], b""), &["dense.gguf", "no experts"]);
}

#[test]
fn quantize() {
    let run = |arguments: &[&str]| gristmill(&[&["quantize"], arguments].concat(), b"");
    let new = path("quantised.gguf");
    let _ = fs::remove_file(&new);
    refused(run(&["MODEL", &new, "Q4_X"]), &["`Q4_X`", "Q4_K_M", "IQ4_XS"]);
    refused(run(&["MODEL", &new, "Q8_0", "--keep", "output"]), &["`output`", "PATTERN=FORMAT"]);
    refused(run(&["MODEL", &new, "Q8_0", "--keep", "*=Q4_K_M"]), &["`Q4_K_M`", "Q4_K"]);
    refused(run(&["MODEL", &new, "Q8_0", "--keep", "ouptut*=F16"]), &["`ouptut*`", "no tensor", "inspect"]);
    refused(run(&["MODEL", &new, "Q8_0", "--keep", "*norm*=F16"]), &["never quantised"]);
    refused(run(&["MODEL", "MODEL", "Q8_0"]), &["model.gguf", "the output is the input"]);
    refused(run(&["MODEL", "MODEL", "Q8_0", "--force"]), &["the output is the input"]);
    refused(run(&["MODEL", &path("mute.gguf"), "Q8_0"]), &["mute.gguf", "exists", "--force"]);
    refused(run(&["MODEL", &path("no such folder/x.gguf"), "Q8_0"]), &["no such folder"]);
    refused(run(&[&path("missing.gguf"), &new, "Q8_0"]), &["missing.gguf"]);
    let short = path("cut.gguf");
    let whole = fs::read(path("model.gguf")).unwrap();
    fs::write(&short, &whole[..whole.len() - 100]).unwrap();
    refused(run(&[&short, &new, "Q8_0"]), &["cut.gguf"]);
    assert!(!std::path::Path::new(&new).exists());
}

/// A limit on the size of files simulates a full disk: the write fails in the middle.
#[cfg(unix)]
#[test]
fn quantize_leaves_nothing_when_the_disk_is_full() {
    let folder = FOLDER.join("full");
    fs::create_dir_all(&folder).unwrap();
    let output = folder.join("out.gguf");
    let script = "trap '' XFSZ; ulimit -f 8; exec \"$0\" quantize \"$1\" \"$2\" F32 --force";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_gristmill"), &path("model.gguf")]).arg(&output);
    fs::write(&output, "old").unwrap();
    let ended = Ended::new(shell.output().unwrap());
    assert!(!ended.err.contains(".partial"), "{}", ended.err);
    refused(ended, &["out.gguf: cannot write"]);
    assert_eq!(fs::read(&output).unwrap(), b"old");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "the temporary file remains");
}

/// The error about a picture on a full disk names the requested file.
#[cfg(unix)]
#[test]
fn a_picture_on_a_full_disk() {
    let (text, svg) = (path("text for a picture"), path("no space.svg"));
    fs::write(&text, "abcdefgh".repeat(20)).unwrap();
    let script = "trap '' XFSZ; ulimit -f 0; exec \"$0\" experts -m \"$1\" -f \"$2\" --ctx 50 --svg \"$3\"";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_gristmill"), &path("model.gguf"), &text, &svg]);
    let ended = Ended::new(shell.output().unwrap());
    assert!(!ended.err.contains(".partial"), "{}", ended.err);
    refused(ended, &["no space.svg: cannot write"]);
}

#[test]
fn weights_that_are_not_finite() {
    let file = GgufFile::open(path("model.gguf")).unwrap();
    for (tensor, value) in [("blk.1.attn_q.weight", f32::NAN), ("blk.1.ffn_gate_inp.weight", f32::INFINITY)] {
        let mut bytes = fs::read(path("model.gguf")).unwrap();
        let at = file.tensor(tensor).unwrap().offset as usize;
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        let model = path(&format!("{tensor}.gguf"));
        fs::write(&model, bytes).unwrap();
        let text = path("not_finite.txt");
        fs::write(&text, "a text of more than a few tokens. ".repeat(20)).unwrap();
        let words = ["layer 1 (`blk.1`)", "not finite", "convert the model again"];
        for arguments in [
            &["run", "-m", &model, "hello"][..],
            &["run", "-m", &model, "hello", "--temp", "1"],
            &["perplexity", "-m", &model, "-f", &text, "--ctx", "32"],
            &["perplexity", "-m", &model, "-f", &text, "--ctx", "32", "--json"],
            &["experts", "-m", &model, "-f", &text, "--ctx", "32"],
            &["bench", "-m", &model, "-p", "16", "-n", "4", "-r", "1"],
        ] {
            refused(gristmill(arguments, b""), &words);
        }
    }
}

/// A text without an end takes no more memory than the longest one, and ends with the error of a long one.
#[cfg(unix)]
#[test]
fn texts_without_an_end_are_refused() {
    use std::process::{Command, Stdio};

    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gristmill"));
        let stdin = std::fs::File::open("/dev/zero").expect("a device");
        command.args(arguments).stdin(Stdio::from(stdin)).env("HOME", "/dev/null/home");
        crate::Ended::new(command.output().expect("it ends"))
    };
    let model = path("model.gguf");
    let too_long = "tokens, but the context holds";
    for (arguments, says) in [
        (&["run", &model, "-"][..], too_long),
        (&["run", &model], too_long),
        (&["run", &model, "--raw", "-f", "/dev/zero"], too_long),
        (&["run", &model, "--grammar", "/dev/zero", "a"], "/dev/zero: the text is too long"),
        (&["run", &model, "--json-schema", "/dev/zero", "a"], "/dev/zero: the text is too long"),
        (&["run", &model, "--chat-template", "/dev/zero", "a"], "--chat-template /dev/zero: "),
        (&["tokenize", &model], "stdin: the text is too long"),
        (&["embed", &model, "-f", "/dev/zero"], "/dev/zero: the text is too long"),
        (&["perplexity", &model, "-f", "-"], "stdin: the text is too long"),
        (&["chat", &model], "stdin: a message is too long"),
        (&["replay", "-"], "stdin: the text is too long"),
    ] {
        let ended = run(arguments);
        assert!(ended.code == Some(1) && ended.err.contains(says), "{arguments:?}: {}", ended.err);
    }
}
