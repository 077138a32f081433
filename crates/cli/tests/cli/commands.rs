//! Help, warnings, and the commands that read or write a model file.

use std::fs;

use gristmill_files::gguf::Value;

use super::{Ended, gristmill, gristmill_with, path};
use crate::speech;
use crate::tiny::{Random, Tiny};

#[test]
fn help() {
    let examples = gristmill(&[], b"").success();
    assert_eq!(examples.lines().filter(|line| line.starts_with("  gristmill ")).count(), 6, "{examples}");
    assert!(gristmill(&["--version"], b"").success().contains("CPU level "));
    let help = gristmill(&["run", "--help"], b"").success();
    for option in [
        "-n",
        "--temp",
        "--top-k",
        "--top-p",
        "--min-p",
        "--repeat-penalty",
        "--presence-penalty",
        "--frequency-penalty",
        "--logit-bias",
        "--dry-multiplier",
        "--dry-base",
        "--dry-allowed-length",
        "--dry-penalty-last-n",
        "--dry-sequence-breaker",
        "--seed",
        "--threads",
        "--ctx",
        "--stop",
        "--device",
        "--raw",
        "--json",
        "-q",
        "-v",
    ] {
        assert!(help.contains(option), "{option}");
    }
    for heading in ["Model:", "Length and sampling:", "Form of the answer:", "Draft tokens:", "Device:", "Output:"] {
        assert!(help.lines().any(|line| line == heading), "{heading} in {help}");
    }
    let all = gristmill(&["--help"], b"").success();
    for words in
        ["\nUse a model:\n  run  ", "\nGet a model:\n", "\nLook into a model:\n", "\nSet up:\n", "gristmill config"]
    {
        assert!(all.contains(words), "{words:?} in {all}");
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(gristmill(&["completions", shell], b"").success().contains("perplexity"), "{shell}");
    }
    let man = gristmill(&["man"], b"").success();
    assert!(man.starts_with(".ie") && man.contains(".SH GRISTMILL RUN") && man.contains("top\\-p"), "{man}");
}

/// No line of a help is wider than the terminal, nor does a word break.
#[test]
fn help_fits_eighty_columns() {
    let wide = |columns: &str, arguments: &[&str]| {
        let help = gristmill_with(&[("COLUMNS", columns.as_ref())], arguments, b"").success();
        help.lines().map(|line| line.chars().count()).max().unwrap_or(0)
    };
    assert!(wide("80", &[]) <= 80);
    let all = gristmill(&["--help"], b"").success();
    let names: Vec<&str> = all.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).collect();
    let commands: Vec<&&str> = names.iter().filter(|name| !name.is_empty() && !name.starts_with('-')).collect();
    assert_eq!(commands.len(), 21, "{commands:?}");
    for command in &commands {
        for flag in ["--help", "-h"] {
            assert!(wide("80", &[command, flag]) <= 80, "{command} {flag}");
        }
    }
    assert!(wide("100", &["serve", "--help"]) > 80);
}

/// Other programs' names of commands and options, in the binary itself.
#[test]
fn habits_of_other_programs() {
    for command in ["list", "ls", "models"] {
        let empty = [("HF_HUB_CACHE", "/nowhere/hub".as_ref())];
        assert_eq!(gristmill_with(&empty, &[command], b"").success(), "", "{command}");
    }
    assert!(gristmill(&["show", "MODEL"], b"").success().contains("qwen3moe"));
    let run = ["run", "-m", "MODEL", "-q", "--seed", "1"];
    let usual = gristmill(&[&run[..], &["-n", "3", "hello"]].concat(), b"").success();
    for words in [
        &["-n", "3", "-c", "100", "hello"][..],
        &["--n-predict", "3", "--ctx-size", "100", "hello"],
        &["-p", "hello", "-n", "3", "-ngl", "0"],
        &["--n-gpu-layers", "0", "-ctk", "f16", "-ctv", "f16", "-fa", "on", "--predict", "3", "hello"],
    ] {
        assert_eq!(gristmill(&[&run[..], words].concat(), b"").success(), usual, "{words:?}");
    }
    for (words, line) in [
        (&["ps"][..], "error: gristmill ps: there is no such command; curl http"),
        (&["run", "MODEL", "--lora", "x", "hello"], "error: --lora: adapters are not supported"),
        (&["serve", "MODEL", "--api-key", "x"], "error: --api-key: set GRISTMILL_API_KEY"),
        (&["model.gguf"], "error: model.gguf: name the command first, as in gristmill run model.gguf"),
    ] {
        let ended = gristmill(words, b"");
        let lines = ended.err.lines().count();
        assert!(ended.code == Some(2) && ended.err.starts_with(line) && lines == 1, "{words:?}: {}", ended.err);
    }
}

/// A missing pre-tokenizer, and a context longer than the trained one, are warnings on stderr.
#[test]
fn warnings() {
    let mut tiny = crate::tiny::Tiny::llama();
    crate::speech::teach(&mut tiny);
    tiny.unset("tokenizer.ggml.pre");
    let model = path("nameless.gguf");
    fs::write(&model, tiny.bytes(&mut crate::tiny::Random::fresh())).unwrap();
    let run = |arguments: &[&str]| {
        gristmill(&[&["run", "-m", &model, "-n", "1", "--temp", "0"], arguments, &["hello"]].concat(), b"")
    };
    let warnings = |err: &str| err.lines().filter(|line| line.starts_with("warning: ")).count();
    let missing = "warning: the file does not name its pre-tokenizer (`tokenizer.ggml.pre` is missing)";
    let ended = run(&["--ctx", "100"]);
    assert!(ended.err.starts_with(missing) && warnings(&ended.err) == 1, "{}", ended.err);
    let text = ended.success();
    let ended = run(&["--ctx", "101"]);
    let long = "the context of 101 tokens is longer than the 100 that the model was trained on";
    assert!(ended.err.contains(long) && warnings(&ended.err) == 2, "{}", ended.err);
    assert_eq!(ended.success(), text);
    assert_eq!(run(&["--ctx", "101", "-q"]).err, "");

    assert!(gristmill(&["tokenize", "-m", &model, "ab"], b"").err.starts_with(missing));
    let out = gristmill(&["inspect", &model], b"").success();
    assert!(out.lines().any(|line| line.starts_with("warning ") && line.contains("`tokenizer.ggml.pre`")), "{out}");
    let json: serde_json::Value =
        serde_json::from_str(&gristmill(&["inspect", &model, "--json"], b"").success()).unwrap();
    assert_eq!(json["warnings"].as_array().unwrap().len(), 1);
    assert!(!gristmill(&["inspect", "MODEL"], b"").success().contains("warning"));
}

/// `gristmill --help > /dev/full`
#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_is_an_error() {
    for arguments in [
        &[][..],
        &["--help"],
        &["-h"],
        &["run", "--help"],
        &["--version"],
        &["help", "chat"],
        &["man"],
        &["completions", "bash"],
    ] {
        use std::process::Stdio;
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_gristmill"));
        let ended = command.args(arguments).stdin(Stdio::null()).stdout(full).stderr(Stdio::piped()).output().unwrap();
        let errors = String::from_utf8_lossy(&ended.stderr);
        assert_eq!((ended.status.code(), errors.lines().count()), (Some(1), 1), "{arguments:?}: {errors}");
        assert!(errors.starts_with("error: cannot write the output: "), "{arguments:?}: {errors}");
    }
}

#[test]
fn inspect_shows_the_contents() {
    let text = gristmill(&["inspect", "MODEL"], b"").success();
    for word in
        ["qwen3moe", "5, 3 used for each token", "2 heads, 2 KV heads, width 48", "100 tokens", "gpt2", "260 tokens"]
    {
        assert!(text.contains(word), "{word} in {text}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&gristmill(&["inspect", "MODEL", "--json"], b"").success()).unwrap();
    assert_eq!((&json["architecture"], &json["shape"]["experts"]["count"]), (&"qwen3moe".into(), &5.into()));
    assert_eq!(json["chat_template"], true);
    let (tools, reasoning) = ("none: spelled out (the template shows no tools)", "<think> … </think>");
    assert_eq!((&json["template"]["tools"], &json["template"]["reasoning"]), (&tools.into(), &reasoning.into()));
    assert!(text.contains(&format!("tools         {tools}\nreasoning     {reasoning}\n")), "{text}");
    // 3 of 5 experts, one row of the embedding table, and all other weights.
    let bytes = json["bytes_per_token"].as_u64().unwrap();
    let experts = 2 * 3 * 64 * 32 * 4;
    let row = 64 * 4;
    let all: u64 = json["formats"]["F32"]["bytes"].as_u64().unwrap();
    assert_eq!(bytes, all - experts * 5 + experts * 3 + row);

    // A shared expert.
    let shared = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/golden/qwen2moe-f32.gguf");
    let text = gristmill(&["inspect", shared], b"").success();
    assert!(text.contains("8, 3 used for each token, and one of width 96 for all"), "{text}");

    // Types have the file's names, also those that share a format in memory.
    let ik = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/golden/qwen3moe-ik.gguf");
    let text = gristmill(&["inspect", ik], b"").success();
    for name in ["IQ4_K", "IQ5_K", "IQ4_KS", "IQ4_KSS", "IQ5_KS", "IQ3_KS", "IQ2_KS", "IQ2_KL"] {
        assert!(text.contains(&format!("\n{name} ")), "{name}: {text}");
    }

    // The contents of a file with an unknown architecture are shown too.
    let mut tiny = crate::tiny::Tiny::llama();
    tiny.set("general.architecture", "no\u{1b}[31mvelty");
    fs::write(path("novelty.gguf"), tiny.bytes(&mut crate::tiny::Random::fresh())).unwrap();
    let text = gristmill(&["inspect", &path("novelty.gguf")], b"").success();
    assert!(text.contains("cannot run") && text.contains("velty") && !text.contains('\u{1b}'), "{text}");
}

/// Every golden model's layers are in words, and what is unlike plain attention is said.
#[test]
fn inspect_says_what_each_layer_is() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/golden");
    let inspect = |file: &str| gristmill(&["inspect", &format!("{folder}/{file}")], b"").success();
    for entry in fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".gguf") && !name.ends_with(".logits.gguf") {
            let text = inspect(&name);
            assert!(text.contains("\nlayer") && !text.contains("Spec"), "{name}: {text}");
        }
    }
    for (family, words) in [
        ("cohere2", "layers 0-2    attention to the last 9 tokens and beside it dense MLP of width 64"),
        ("cohere2", "layer 3       attention (nothing rotated) and beside it dense"),
        ("gemma2", "attention (logits below 2), dense"),
        ("gemma4-e", "attention to the last 9 tokens (keys and values of layer 2)"),
        ("gemma4-e", "an input of its own of width 8"),
        ("gemma4", "layer 2       attention (keys that are the values too)"),
        (
            "bailingmoe3",
            "gated delta rule of 4 heads, each with a state of 16 x 16 (a gate for each element, from -5), after",
        ),
        ("bailingmoe3", "latent attention of 4 heads to rows of 40 elements (a gate for each head)"),
        ("gpt-oss", "attention (a sink for each head)"),
        ("kimi-linear", "latent attention of 4 heads to rows of 40 elements (nothing rotated)"),
        ("laguna", "attention (a gate (softplus) for each head)"),
        ("lfm2", "layer 0       convolution of 3 tokens between two gates, dense MLP of width 96"),
        ("lfm2", "state         2 layers with a short convolution: 1.0 kB for a sequence of any length"),
        (
            "llama4",
            "attention to the token's own chunk of 9, 6 experts of width 16, 1 chosen by sigmoid, whose input is weighed",
        ),
        ("llama4", "attention (nothing rotated, a temperature of queries)"),
        ("qwen3next", "gated delta rule of 4 heads, each with a state of 16 x 16, after a convolution of 4 tokens"),
        ("qwen3next", "attention (a gate for each element)"),
        (
            "nemotron_h_moe",
            "selective scan of 4 heads, each with a state of 16 x 16, after a convolution of 4 tokens, no MLP",
        ),
        ("nemotron_h_moe", "no mixer, 8 experts of width 16, 2 chosen by sigmoid plus a bias"),
        ("nemotron_h_moe", "state         2 layers with a selective scan"),
        ("falcon-h1", "layers 0-1    attention and beside it selective scan of 4 heads"),
        ("mamba2", "layers        3, hidden size 32, no MLP"),
        // 2 layers, rows of 32 + 8 elements, 2 bytes each.
        ("deepseek2", "KV cache      160 B for a token, in F16"),
        ("cohere2", "KV cache      64 B for a token, and 192 B for a token in a window, in F16"),
    ] {
        let text = inspect(&format!("{family}-f32.gguf"));
        assert!(text.contains(words), "{words} in {text}");
    }
}

/// Converters write the id −1 for a token that the model does not have.
#[test]
fn special_ids_of_minus_one_are_none() {
    let mut tiny = Tiny::qwen3moe();
    speech::teach(&mut tiny);
    tiny.set("tokenizer.ggml.add_bos_token", false);
    let tokenized = |tiny: &Tiny| {
        let file = path("minus-one.gguf");
        fs::write(&file, tiny.bytes(&mut Random::fresh())).unwrap();
        gristmill(&["tokenize", "-m", &file, "--json", "--add-special", "c"], b"")
    };
    for role in ["bos", "eos", "unknown", "padding", "eot", "eom"] {
        let key = format!("tokenizer.ggml.{role}_token_id");
        for none in [Value::U32(u32::MAX), Value::I32(-1), Value::I64(-1)] {
            tiny.set(&key, none);
            assert!(tokenized(&tiny).success().contains("\"id\": 99"), "{key}");
        }
        for outside in [Value::I32(-2), Value::U32(u32::MAX - 1), Value::U32(260)] {
            tiny.set(&key, outside.clone());
            let Ended { code, err, .. } = tokenized(&tiny);
            // Trainers add a token for padding, without a row of the embedding. No text has it.
            if role == "padding" && outside != Value::I32(-2) {
                assert_eq!((code, err.as_str()), (Some(0), ""), "{key}");
                continue;
            }
            assert!(code == Some(1) && err.contains(&format!("{role}_token_id")), "{key}: {err}");
        }
        tiny.set(&key, Value::U32(u32::MAX));
    }
}

#[test]
fn tokenize() {
    let ids = |arguments: &[&str], stdin: &[u8]| -> Vec<u64> {
        let out = gristmill(&[&["tokenize", "-m", "MODEL", "--json"], arguments].concat(), stdin).success();
        let tokens: Vec<serde_json::Value> = serde_json::from_str(&out).unwrap();
        tokens.iter().map(|token| token["id"].as_u64().unwrap()).collect()
    };
    assert_eq!(ids(&["abc"], b""), [256, 99]);
    assert_eq!(ids(&["-"], "é".as_bytes()), [0xc3, 0xa9]);
    assert_eq!(ids(&["--add-special", "--parse-special", "a<|im_end|>"], b""), [257, 97, 259]);
    assert_eq!(ids(&["a<|im_end|>"], b""), [97, 259]);
    assert_eq!(ids(&["--no-parse-special", "<|im_end|>"], b"").len(), "<|im_end|>".len());
    assert_eq!(ids(&["--add-special", "<|begin|>c"], b""), [257, 99]);
    assert_eq!(ids(&["-"], "\u{feff}c".as_bytes()), [99]);
    assert_eq!(ids(&[""], b""), [0; 0]);
    let json = gristmill(&["tokenize", "-m", "MODEL", "--json", "a "], b"").success();
    let tokens: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
    assert_eq!((&tokens[1]["token"], &tokens[1]["text"]), (&"Ġ".into(), &" ".into()));
    let text = gristmill(&["tokenize", "-m", "MODEL", "é\n"], b"").success();
    assert_eq!(text, "    195  \"\\xc3\"\n    169  \"\\xa9\"\n     10  \"\\n\"\n");
    let text = gristmill(&["tokenize", "-m", "MODEL", "a b"], b"").success();
    assert_eq!(text, "     97  \"a\"\n     32  \" \"\n     98  \"b\"\n");
}

#[test]
fn quantize_writes_a_model_that_runs() {
    let output = path("q8.gguf");
    let ended = gristmill(&["quantize", "MODEL", &output, "q8_0", "--keep", "token_embd*=F16", "--force", "-v"], b"");
    assert!(ended.err.lines().any(|line| line.starts_with(&output)), "{}", ended.err);
    assert!(ended.err.contains(" F16") && ended.err.contains("peak memory"), "{}", ended.err);
    assert_eq!(ended.success(), "");
    let out = gristmill(&["inspect", &output, "--all"], b"").success();
    assert!(out.contains("Q8_0") && out.contains("general.quantization_version"), "{out}");
    gristmill(&["run", "-m", &output, "--temp", "0", "-n", "4", "hello"], b"").success();

    // The tiny model's rows are shorter than a block of 256, and the input is quantised.
    let again = path("q4.gguf");
    let ended = gristmill(&["quantize", &output, &again, "Q4_K_S", "--force"], b"");
    for words in ["instead of Q4_K", "not multiples of 256", "quantised already"] {
        assert!(ended.err.contains(words), "{words}: {}", ended.err);
    }
    ended.success();
    let quiet = gristmill(&["quantize", &output, &again, "Q4_K_S", "-f", "-q"], b"");
    assert_eq!(quiet.err, "");
    quiet.success();
}

/// A template from a file replaces the model's, and one that is broken is reported.
#[test]
fn chat_templates_are_replaced_and_reported() {
    let run = |arguments: &[&str]| gristmill(&[&["run", "-m", "MODEL", "-n", "1", "hello"], arguments].concat(), b"");
    let template = |name: &str, source: &str| {
        let file = path(name);
        fs::write(&file, source).unwrap();
        file
    };
    let good = template("good.jinja", "{{ messages[0].content }}{{ messages[0].content }}");
    assert!(run(&["-v", "--chat-template", &good]).last_line().starts_with("chat template: prompt 10 tokens"));
    let verbose = run(&["-v"]).err;
    assert!(verbose.contains("\nchat template: tools: none: spelled out (the template shows no tools); "), "{verbose}");
    let wrong = template("wrong.jinja", "{% if x %}");
    for (arguments, words) in [
        (&["--chat-template", &*wrong][..], &["--chat-template ", "wrong.jinja: ", "line 1"][..]),
        (&["--chat-template", "/nowhere/x"], &["--chat-template /nowhere/x: ", "cannot be read"]),
    ] {
        let ended = run(arguments);
        assert!(ended.code == Some(1) && words.iter().all(|word| ended.err.contains(word)), "{}", ended.err);
    }
    assert_eq!(run(&["--chat-template", &good, "--raw"]).code, Some(2));

    let mut tiny = crate::tiny::Tiny::llama();
    crate::speech::teach(&mut tiny);
    tiny.set("tokenizer.chat_template", "{% if x %}");
    let broken = path("broken.gguf");
    fs::write(&broken, tiny.bytes(&mut crate::tiny::Random::fresh())).unwrap();
    let warning = "the model's chat template is broken, so a conversation has no prompt: ";
    let text = gristmill(&["inspect", &broken], b"").success();
    assert!(text.contains(&format!("warning       {warning}")), "{text}");
    let ended = gristmill(&["run", "-m", &broken, "-n", "1", "hello"], b"");
    assert!(ended.err.contains(&format!("warning: {warning}")) && ended.code == Some(1), "{}", ended.err);
    let ended = gristmill(&["run", "-m", &broken, "-n", "1", "hello", "--chat-template", &good], b"");
    assert!(ended.code == Some(0) && !ended.err.contains("broken"), "{}", ended.err);
}
