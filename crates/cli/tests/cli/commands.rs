//! What each command prints, and where.

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};

use super::{gristmill, path};

#[test]
fn help() {
    let examples = gristmill(&[], b"").good();
    assert_eq!(examples.lines().filter(|line| line.starts_with("  gristmill ")).count(), 4, "{examples}");
    assert!(gristmill(&["--version"], b"").good().contains("CPU level "));
    let help = gristmill(&["run", "--help"], b"").good();
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
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(gristmill(&["completions", shell], b"").good().contains("perplexity"), "{shell}");
    }
    let man = gristmill(&["man"], b"").good();
    assert!(man.starts_with(".ie") && man.contains(".SH GRISTMILL RUN") && man.contains("top\\-p"), "{man}");
}

#[test]
fn run_answers_or_continues() {
    let run = |arguments: &[&str], stdin: &[u8]| {
        let fixed = ["run", "-m", "MODEL", "--temp", "0", "-n", "8", "--threads", "2"];
        gristmill(&[&fixed[..], arguments].concat(), stdin)
    };
    let chat = run(&["hello"], b"");
    assert!(chat.last_line().starts_with("chat template: prompt "), "{}", chat.err);
    for word in [" tok/s", "decode ", "load ", "memory "] {
        assert!(chat.last_line().contains(word), "{}", chat.err);
    }
    assert_eq!(chat.err.lines().count(), 1);
    assert!(chat.out.ends_with('\n'));
    let out = chat.good();
    assert_eq!(run(&["-p", "hello"], b"").good(), out);
    assert_eq!(run(&["-"], b"hello").good(), out);
    assert_eq!(run(&["--threads", "1", "hello"], b"").code, Some(2), "given twice");

    let raw = run(&["--raw", "hello"], b"");
    assert!(raw.last_line().starts_with("raw text: prompt 6 tokens"), "{}", raw.err);
    assert_eq!(run(&["-q", "hello"], b"").err, "");
    let verbose = run(&["-v", "hello"], b"").err;
    for word in ["memory: ", "KV cache", "context: 100 tokens", "threads: 2", "seed: "] {
        assert!(verbose.contains(word), "{verbose}");
    }

    let json: serde_json::Value = serde_json::from_str(&run(&["--json", "--raw", "hello"], b"").good()).unwrap();
    let text = json["text"].as_str().unwrap();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    assert_eq!(raw.out, format!("{text}{end}"));
    assert_eq!((&json["prompt_tokens"], &json["mode"]), (&6.into(), &"raw".into()));
}

/// Without a model, with a home that cannot be read, and the program elsewhere: the model is inside.
#[test]
fn the_built_in_model_tells_a_story() {
    let program = path("gristmill elsewhere");
    let _ = fs::remove_file(&program);
    // A copy may still be open for writing in a process that another test has just forked, and then does not start.
    fs::hard_link(env!("CARGO_BIN_EXE_gristmill"), &program).unwrap();
    let mut command = Command::new(&program);
    command.args(["run", "--seed", "1", "-n", "60", "Once upon a time"]).env_clear().env("HOME", "/dev/null/home");
    let output = command.current_dir("/").stdin(Stdio::null()).output().unwrap();
    fs::remove_file(&program).unwrap();
    let story = crate::Ended::new(output);
    assert!(story.last_line().starts_with("raw text: prompt 4 tokens"), "{}", story.err);
    let words = story.good().split_whitespace().count();
    assert!(words > 20, "{words} words");

    assert!(gristmill(&["inspect"], b"").good().contains("qwen3moe"));
    assert!(gristmill(&["tokenize", "a story"], b"").good().lines().count() >= 2);
    let json = gristmill(&["experts", "-f", "-", "--json"], b"Once upon a time there was a mill.").good();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["layers"].as_array().unwrap().len(), 4);
}

/// What a file lacks, and a context beyond what the model was trained on, is a warning on stderr and no error.
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
    let text = ended.good();
    let ended = run(&["--ctx", "101"]);
    let long = "the context of 101 tokens is longer than the 100 that the model was trained on";
    assert!(ended.err.contains(long) && warnings(&ended.err) == 2, "{}", ended.err);
    assert_eq!(ended.good(), text);
    assert_eq!(run(&["--ctx", "101", "-q"]).err, "");

    assert!(gristmill(&["tokenize", "-m", &model, "ab"], b"").err.starts_with(missing));
    let out = gristmill(&["inspect", &model], b"").good();
    assert!(out.lines().any(|line| line.starts_with("warning ") && line.contains("`tokenizer.ggml.pre`")), "{out}");
    let json: serde_json::Value = serde_json::from_str(&gristmill(&["inspect", &model, "--json"], b"").good()).unwrap();
    assert_eq!(json["warnings"].as_array().unwrap().len(), 1);
    assert!(!gristmill(&["inspect", "MODEL"], b"").good().contains("warning"));
}

#[test]
fn seeds_and_threads() {
    let run = |seed: &str, threads: &str| {
        let hot = ["run", "-m", "MODEL", "--temp", "5", "--top-k", "0", "--top-p", "1", "--min-p", "0", "-n", "20"];
        gristmill(&[&hot[..], &["--seed", seed, "--threads", threads, "hello"]].concat(), b"").good()
    };
    assert_eq!(run("1", "1"), run("1", "3"));
    assert_ne!(run("1", "2"), run("2", "2"));
}

/// A seed that the program draws is a whole number for readers that keep numbers as doubles; one that is given stays.
#[test]
fn seeds_in_json() {
    let run = |arguments: &[&str]| {
        let fixed = ["run", "-m", "MODEL", "-n", "1", "--json", "hello"];
        let out = gristmill(&[&fixed[..], arguments].concat(), b"").good();
        serde_json::from_str::<serde_json::Value>(&out).unwrap()["seed"].as_u64().unwrap()
    };
    let drawn: Vec<u64> = (0..4).map(|_| run(&[])).collect();
    assert!(drawn.iter().all(|&seed| seed < 1 << 53) && drawn.iter().any(|&seed| seed != drawn[0]), "{drawn:?}");
    assert_eq!(run(&["--seed", "18446744073709551615"]), u64::MAX);
}

#[test]
fn no_limit_of_tokens() {
    let run = |n: &[&str]| {
        let fixed = ["run", "-m", "MODEL", "--raw", "--temp", "0", "--json", "hello"];
        let out = gristmill(&[&fixed[..], n].concat(), b"").good();
        serde_json::from_str::<serde_json::Value>(&out).unwrap()["text"].as_str().unwrap().to_owned()
    };
    assert_eq!(run(&["-n", "-1"]), run(&[]));
}

/// `gristmill --help > /dev/full`
#[cfg(target_os = "linux")]
#[test]
fn what_cannot_be_written_is_an_error() {
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
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_gristmill"));
        let ended = command.args(arguments).stdin(Stdio::null()).stdout(full).stderr(Stdio::piped()).output().unwrap();
        let errors = String::from_utf8_lossy(&ended.stderr);
        assert_eq!((ended.status.code(), errors.lines().count()), (Some(1), 1), "{arguments:?}: {errors}");
        assert!(errors.starts_with("error: cannot write the output: "), "{arguments:?}: {errors}");
    }
}

#[test]
fn stop_strings() {
    let run = |arguments: &[&str]| {
        let fixed = ["run", "-m", "MODEL", "--raw", "--temp", "3", "--seed", "7", "-n", "30", "--json", "hello"];
        let out = gristmill(&[&fixed[..], arguments].concat(), b"").good();
        serde_json::from_str::<serde_json::Value>(&out).unwrap()["text"].as_str().unwrap().to_owned()
    };
    let whole = run(&[]);
    let stop: String = whole.chars().skip(5).take(3).collect();
    if stop.contains('\0') || stop.is_empty() {
        return; // Cannot be an argument.
    }
    assert_eq!(run(&["--stop", "not there", "--stop", &stop]), whole[..whole.find(&stop).unwrap()]);
}

/// A bias on one token repeats it for ever, which DRY ends.
#[test]
fn logit_bias_and_dry() {
    let run = |arguments: &[&str]| {
        let fixed = ["run", "-m", "MODEL", "--raw", "--temp", "0", "-n", "30", "-q", "hello"];
        gristmill(&[&fixed[..], arguments].concat(), b"").good()
    };
    let looping = "ab".repeat(30) + "\n";
    for token in ["256=1000", "\"ab\"=1000"] {
        assert_eq!(run(&["--logit-bias", token]), looping, "{token}");
    }
    let bias = ["--logit-bias", "\"ab\"=1000", "--logit-bias", "259=-1000"];
    let with = |dry: &[&str]| run(&[&bias[..], dry].concat());
    let ended = with(&["--dry-multiplier", "1"]);
    assert!(ended.starts_with("ababab") && ended != looping, "{ended}");
    // Each parameter has an effect: a base of 1 never reaches the bias, longer repetitions are allowed, the text that is looked
    // at is short, or each token breaks.
    for parameter in [
        ["--dry-base", "1"],
        ["--dry-allowed-length", "40"],
        ["--dry-penalty-last-n", "5"],
        ["--dry-penalty-last-n", "0"],
        ["--dry-sequence-breaker", "b"],
    ] {
        assert_eq!(with(&[&["--dry-multiplier", "1"][..], &parameter].concat()), looping, "{parameter:?}");
    }
    for none in [["--dry-sequence-breaker", "none"], ["--dry-sequence-breaker", "none\n"]] {
        assert_eq!(with(&[&["--dry-multiplier", "1"][..], &none].concat()), ended, "{none:?}");
    }
    let chat = ["chat", "-m", "MODEL", "--temp", "0", "-n", "5", "-q", "--logit-bias", "\"ab\"=1000"];
    assert_eq!(gristmill(&chat, b"hello\n").good(), "ab".repeat(5) + "\n");
}

#[test]
fn chat_by_the_line() {
    let chat = ["chat", "-m", "MODEL", "--temp", "0", "-n", "5", "-v"];
    let input = b"hello\n\n/stats\n/system Be brief.\n/nonsense\n/help\nhello\n/stats\n/reset\n/quit\nnever\n";
    let ended = gristmill(&chat, input);
    for word in ["context ", "decode ", "the system message is set", "/nonsense is not a command", "forgotten"] {
        assert!(ended.err.contains(word), "{}", ended.err);
    }
    assert!(!ended.err.contains("error"), "{}", ended.err);
    assert!(ended.good().ends_with('\n'));
    // An answer that is cut says so, and by what; a path is no command.
    let endless = path("endless.gguf");
    let ended = gristmill(&["chat", &endless, "-n", "2"], b"/etc/hosts?\nhello\n");
    assert_eq!(ended.err.matches("(cut after 2 tokens, by -n)").count(), 2, "{}", ended.err);
    let ended = gristmill(&["chat", &endless], b"hello\n");
    assert!(ended.err.contains("(cut: the context of 100 tokens is full"), "{}", ended.err);
    assert_eq!(gristmill(&["chat", &endless, "-n", "2", "-q"], b"hello\n").err, "");
    // More than the context holds is refused, and the conversation goes on.
    let input = format!("{}\n/stats\n", "x".repeat(200));
    let ended = gristmill(&chat, input.as_bytes());
    assert!(ended.err.contains("/reset") && ended.err.contains("no answer yet"), "{}", ended.err);
    assert_eq!(ended.good(), "");
}

#[test]
fn inspect_shows_what_is_there() {
    let text = gristmill(&["inspect", "MODEL"], b"").good();
    for word in
        ["qwen3moe", "5, 3 used for each token", "2 heads, 2 KV heads, width 48", "100 tokens", "gpt2", "260 tokens"]
    {
        assert!(text.contains(word), "{word} in {text}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&gristmill(&["inspect", "MODEL", "--json"], b"").good()).unwrap();
    assert_eq!((&json["architecture"], &json["shape"]["experts"]["count"]), (&"qwen3moe".into(), &5.into()));
    assert_eq!(json["chat_template"], true);
    // 3 of 5 experts, one row of nothing that is tied, and all else.
    let bytes = json["bytes_per_token"].as_u64().unwrap();
    let experts = 2 * 3 * 64 * 32 * 4;
    let row = 64 * 4;
    let all: u64 = json["formats"]["F32"]["bytes"].as_u64().unwrap();
    assert_eq!(bytes, all - experts * 5 + experts * 3 + row);

    // An expert that serves every token.
    let shared = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/golden/qwen2moe-f32.gguf");
    let text = gristmill(&["inspect", shared], b"").good();
    assert!(text.contains("8, 3 used for each token, and one of width 96 for all"), "{text}");

    // An architecture that cannot be run is still shown.
    let mut tiny = crate::tiny::Tiny::llama();
    tiny.set("general.architecture", "no\u{1b}[31mvelty");
    fs::write(path("novelty.gguf"), tiny.bytes(&mut crate::tiny::Random::fresh())).unwrap();
    let text = gristmill(&["inspect", &path("novelty.gguf")], b"").good();
    assert!(text.contains("cannot run") && text.contains("velty") && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn tokenize() {
    let ids = |arguments: &[&str], stdin: &[u8]| -> Vec<u64> {
        let out = gristmill(&[&["tokenize", "-m", "MODEL", "--json"], arguments].concat(), stdin).good();
        let tokens: Vec<serde_json::Value> = serde_json::from_str(&out).unwrap();
        tokens.iter().map(|token| token["id"].as_u64().unwrap()).collect()
    };
    assert_eq!(ids(&["abc"], b""), [256, 99]);
    assert_eq!(ids(&["-"], "é".as_bytes()), [0xc3, 0xa9]);
    assert_eq!(ids(&["--add-special", "--parse-special", "a<|im_end|>"], b""), [257, 97, 259]);
    assert_eq!(ids(&[""], b""), [0; 0]);
    let text = gristmill(&["tokenize", "-m", "MODEL", "a b"], b"").good();
    assert_eq!(text, "     97  a\n     32  Ġ\n     98  b\n");
}

#[test]
fn perplexity() {
    let text = path("long text");
    let long: String = (0..230).map(|i| char::from(b'a' + (i * 7 % 23) as u8)).collect();
    fs::write(&text, &long).unwrap();
    let run = |arguments: &[&str]| gristmill(&[&["perplexity", "-m", "MODEL", "-f", &text], arguments].concat(), b"");
    let json: serde_json::Value = serde_json::from_str(&run(&["--ctx", "60", "--json"]).good()).unwrap();
    let number = |key: &str| json[key].as_f64().unwrap();
    // 231 tokens with BOS: 3 windows, of which tokens 31 to 59 are scored.
    assert_eq!((number("windows"), number("tokens_scored")), (3.0, 87.0));
    assert!((number("nll").exp() / number("perplexity") - 1.0).abs() < 1e-9);
    assert!(number("perplexity") > 1.0);
    let people = run(&["--ctx", "60"]);
    assert_eq!(people.out, format!("perplexity {:.4}\n", number("perplexity")));
    assert!(people.err.contains("87 tokens"));

    // Compared with itself, only the rounding of the saved logits is seen; with an 8-bit cache, more.
    let saved = path("saved logits");
    run(&["--ctx", "60", "--save-logits", &saved]).good();
    let compare = |arguments: &[&str]| -> serde_json::Value {
        let arguments = [&["--ctx", "60", "--json", "--kl-base", &saved], arguments].concat();
        serde_json::from_str(&run(&arguments).good()).unwrap()
    };
    // A saved logit v is at most 0, the largest. F16 rounds it by at most 2^-11 |v|, or by 2^-25 where it is smallest; r covers
    // both, and that errors are taken relative to rounded logits. Since the sum of e^v is at least 1, |v| is at most −ln p.
    // - The negative logarithm of a token's probability is so off by r|v| of the token, at most r times itself, and by the
    //   change of ln Σ e^v, at most r times a mean of −ln p by p: an entropy, at most ln V.
    // - The divergence is at most half the variance of those errors, for probabilities between the saved and the model's,
    //   thus at most r²/2 times the mean of ln² p by p, which is below (ln V + 1)².
    let r = 2_f64.powi(-11) / (1.0 - 2_f64.powi(-10)) + 2_f64.powi(-24);
    let entropy = 260_f64.ln();
    let same = compare(&[]);
    let off = (number_of(&same["divergence"], "base_perplexity") / number_of(&same, "perplexity")).ln();
    assert!(off.abs() <= r * (number_of(&same, "nll") + entropy), "{same}");
    let rounding = (r * (entropy + 1.0)).powi(2) / 2.0;
    assert!(number_of(&same["divergence"], "mean").abs() <= rounding, "{same}");
    assert_eq!(number_of(&same["divergence"], "same_top"), 1.0);

    // Where an 8-bit cache lets a router choose another expert, a token moves far, and with it all means, the perplexity
    // too. That happens to a few tokens, so the median tells what the cache does to the others.
    let other = compare(&["--kv", "q8_0"]);
    let [median, percentile, largest] =
        ["median", "percentile_99", "largest"].map(|key| number_of(&other["divergence"], key));
    assert!(number_of(&other["divergence"], "mean") > rounding && median < 0.01, "{other}");
    assert!(median <= percentile && percentile <= largest, "{other}");
    let people = run(&["--ctx", "60", "--kl-base", &saved]).good();
    assert!(people.contains("KL divergence mean 0.000000") && people.contains("same most likely token 100.00%"));
}

/// The built-in model's weights have few bits: what they are multiplied with makes a difference, and a small one.
#[test]
fn precision() {
    let text = path("a story");
    fs::write(&text, "Once upon a time there was a little mill by the river. ".repeat(8)).unwrap();
    let perplexity = |precision: &str| {
        let run = ["perplexity", "-f", &text, "--ctx", "64", "--json", "--device", "cpu", "--precision", precision];
        number_of(&serde_json::from_str(&gristmill(&run, b"").good()).unwrap(), "perplexity")
    };
    let off = perplexity("fast") / perplexity("exact") - 1.0;
    assert!(off != 0.0 && off.abs() < 0.05, "{off}");
}

fn number_of(json: &serde_json::Value, key: &str) -> f64 {
    json[key].as_f64().unwrap()
}

/// `gristmill … | head -c 1`
#[test]
fn a_closed_pipe_ends_quietly() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gristmill"));
    let arguments = ["run", "-q", "-m", &path("model.gguf"), "--temp", "5", "--top-k", "0", "--raw", "hello"];
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!((child.wait().unwrap().code(), err.as_str()), (Some(0), ""));
}

#[test]
fn experts() {
    let (text, svg) = (path("text for experts"), path("experts.svg"));
    fs::write(&text, "abcdefgh".repeat(20)).unwrap();
    let run = |arguments: &[&str]| gristmill(&[&["experts", "-m", "MODEL", "-f", &text], arguments].concat(), b"");
    let json: serde_json::Value = serde_json::from_str(&run(&["--json", "--ctx", "50"]).good()).unwrap();
    let tokens = json["tokens"].as_u64().unwrap();
    for layer in json["layers"].as_array().unwrap() {
        let counts = layer["counts"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap());
        assert_eq!(counts.sum::<u64>(), tokens * layer["top_k"].as_u64().unwrap(), "every token has its experts");
        assert!((0.0..=1.0).contains(&number_of(layer, "entropy")));
        assert!(number_of(layer, "least") <= 1.0 && number_of(layer, "most") >= 1.0);
    }
    // A window is read in one batch or in several.
    assert_eq!(run(&["--json", "--ctx", "50"]).good(), run(&["--json", "--ctx", "50", "-t", "1"]).good());
    let people = run(&["--svg", &svg, "--ctx", "50"]).good();
    assert_eq!(people.lines().count(), 2 + json["layers"].as_array().unwrap().len(), "{people}");
    let picture = fs::read_to_string(&svg).unwrap();
    assert!(picture.starts_with("<svg"));
    // Numbers and picture at once.
    fs::remove_file(&svg).unwrap();
    let both: serde_json::Value = serde_json::from_str(&run(&["--svg", &svg, "--json", "--ctx", "50"]).good()).unwrap();
    assert_eq!((&both, fs::read_to_string(&svg).unwrap()), (&json, picture));
}

#[test]
fn quantize_writes_a_model_that_runs() {
    let output = path("q8.gguf");
    let ended = gristmill(&["quantize", "MODEL", &output, "q8_0", "--keep", "token_embd*=F16", "--force", "-v"], b"");
    assert!(ended.err.lines().any(|line| line.starts_with(&output)), "{}", ended.err);
    assert!(ended.err.contains(" F16") && ended.err.contains("peak memory"), "{}", ended.err);
    assert_eq!(ended.good(), "");
    let out = gristmill(&["inspect", &output, "--all"], b"").good();
    assert!(out.contains("Q8_0") && out.contains("general.quantization_version"), "{out}");
    gristmill(&["run", "-m", &output, "--temp", "0", "-n", "4", "hello"], b"").good();

    // Rows of the tiny model are no multiples of 256, and now they are quantised already.
    let again = path("q4.gguf");
    let ended = gristmill(&["quantize", &output, &again, "Q4_K_S", "--force"], b"");
    for words in ["instead of Q4_K", "not multiples of 256", "quantised already"] {
        assert!(ended.err.contains(words), "{words}: {}", ended.err);
    }
    ended.good();
    let quiet = gristmill(&["quantize", &output, &again, "Q4_K_S", "-f", "-q"], b"");
    assert_eq!(quiet.err, "");
    quiet.good();
}
