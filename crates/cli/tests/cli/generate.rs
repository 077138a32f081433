//! `run` and `chat`: what they print, and the effect of their options.

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};

use super::{gristmill, path};

/// A question to the built-in model leads to a model that answers; a story needs no such line.
#[test]
fn questions_to_the_built_in_model() {
    for (prompt, told) in [("What is the capital of France?", true), ("Once upon a time", false)] {
        for quiet in [&[][..], &["-q"]] {
            let ended = gristmill(&[&["run", "--seed", "1", "-n", "12", prompt][..], quiet].concat(), b"");
            let words = ["tells stories", "gristmill run hf:"];
            let found = words.iter().all(|word| ended.err.contains(word));
            assert_eq!((ended.code, found), (Some(0), told && quiet.is_empty()), "{prompt}: {}", ended.err);
        }
    }
}

/// The same text with experts in the file, and what `--verbose` says of them before and after.
#[test]
fn experts_in_the_file() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/golden/qwen3moe-q4_k_m.gguf");
    let run = |more: &[&str]| {
        let fixed = ["run", "-m", model, "--raw", "--temp", "0", "-n", "8", "--device", "cpu", "hello"];
        gristmill(&[&fixed[..], more].concat(), b"")
    };
    let usual = run(&["-v"]);
    assert!(!usual.err.contains("file: ") && !usual.err.contains("of the choices"), "{}", usual.err);
    let found = run(&["-v", "--experts-on", "disk:1"]);
    for words in [
        "1 of 4 experts of each layer in memory",
        "reads of the file: ",
        "% of the choices in memory, ",
        " were read, ",
    ] {
        assert!(found.err.contains(words), "{words}: {}", found.err);
    }
    assert!(found.err.contains("% of the choices were in memory") && !found.err.contains("slots"), "{}", found.err);
    assert_eq!(found.success(), usual.success());
}

#[test]
fn run_answers_or_continues() {
    let run = |arguments: &[&str], stdin: &[u8]| {
        let fixed = ["run", "-m", "MODEL", "--temp", "0", "-n", "8", "--threads", "2"];
        gristmill(&[&fixed[..], arguments].concat(), stdin)
    };
    let chat = run(&["hello"], b"");
    // One short line. With --verbose, it has all rates.
    assert!(chat.last_line().contains(" token") && chat.last_line().contains(" tok/s"), "{}", chat.err);
    assert!(chat.err.lines().count() == 1 && chat.err.len() <= 80, "{}", chat.err);
    assert!(chat.out.ends_with('\n'));
    let out = chat.success();
    assert_eq!(run(&["-p", "hello"], b"").success(), out);
    assert_eq!(run(&["-"], b"hello").success(), out);
    assert_eq!(run(&["--threads", "1", "hello"], b"").code, Some(2), "given twice");

    let raw = run(&["--raw", "hello"], b"");
    assert_eq!(run(&["-q", "hello"], b"").err, "");
    assert!(run(&["-v", "--raw", "hello"], b"").last_line().starts_with("raw text: prompt 6 tokens"));
    let verbose = run(&["-v", "hello"], b"");
    assert!(verbose.last_line().starts_with("chat template: prompt "), "{}", verbose.err);
    for word in [" tok/s", "decode ", "load ", "memory "] {
        assert!(verbose.last_line().contains(word), "{}", verbose.err);
    }
    let verbose = verbose.err;
    for word in ["memory: ", "KV cache", "context: 100 tokens", "threads: 2", "seed: "] {
        assert!(verbose.contains(word), "{verbose}");
    }

    let json: serde_json::Value = serde_json::from_str(&run(&["--json", "--raw", "hello"], b"").success()).unwrap();
    let text = json["text"].as_str().unwrap();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    assert_eq!(raw.out, format!("{text}{end}"));
    assert_eq!((&json["prompt_tokens"], &json["mode"]), (&6.into(), &"raw".into()));
}

/// The built-in model needs no file: the program runs from another folder, without a readable home folder.
#[test]
fn the_built_in_model_tells_a_story() {
    let program = path("gristmill elsewhere");
    let _ = fs::remove_file(&program);
    // A copied program may fail to start: a process forked by another test may still hold it open for writing.
    fs::hard_link(env!("CARGO_BIN_EXE_gristmill"), &program).unwrap();
    let mut command = Command::new(&program);
    command.args(["run", "--seed", "1", "-n", "60", "Once upon a time"]).env_clear().env("HOME", "/dev/null/home");
    let output = command.current_dir("/").stdin(Stdio::null()).output().unwrap();
    fs::remove_file(&program).unwrap();
    let story = crate::Ended::new(output);
    assert!(story.last_line().contains(" tok/s"), "{}", story.err);
    let words = story.success().split_whitespace().count();
    assert!(words > 20, "{words} words");

    assert!(gristmill(&["inspect"], b"").success().contains("qwen3moe"));
    assert!(gristmill(&["tokenize", "a story"], b"").success().lines().count() >= 2);
    let json = gristmill(&["experts", "-f", "-", "--json"], b"Once upon a time there was a mill.").success();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["layers"].as_array().unwrap().len(), 4);
}

#[test]
fn seeds_and_threads() {
    let run = |seed: &str, threads: &str| {
        let hot = ["run", "-m", "MODEL", "--temp", "5", "--top-k", "0", "--top-p", "1", "--min-p", "0", "-n", "20"];
        gristmill(&[&hot[..], &["--seed", seed, "--threads", threads, "hello"]].concat(), b"").success()
    };
    assert_eq!(run("1", "1"), run("1", "3"));
    assert_ne!(run("1", "2"), run("2", "2"));
}

/// A CPU is always deterministic: the option is known to the commands that run a model, and changes nothing.
#[test]
fn deterministic() {
    let run = |more: &[&str]| {
        let hot = ["run", "-m", "MODEL", "--device", "cpu", "--temp", "5", "--seed", "1", "-n", "20", "hello"];
        gristmill(&[&hot[..], more].concat(), b"").success()
    };
    assert_eq!(run(&["--deterministic"]), run(&[]));
    for command in ["run", "chat", "serve", "bench", "perplexity", "experts"] {
        assert!(gristmill(&[command, "--help"], b"").success().contains("--deterministic"), "{command}");
    }
}

/// Drawn seeds are exact as doubles; given seeds stay.
#[test]
fn seeds_in_json() {
    let run = |arguments: &[&str]| {
        let fixed = ["run", "-m", "MODEL", "-n", "1", "--json", "hello"];
        let out = gristmill(&[&fixed[..], arguments].concat(), b"").success();
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
        let out = gristmill(&[&fixed[..], n].concat(), b"").success();
        serde_json::from_str::<serde_json::Value>(&out).unwrap()["text"].as_str().unwrap().to_owned()
    };
    assert_eq!(run(&["-n", "-1"]), run(&[]));
}

#[test]
fn stop_strings() {
    let run = |arguments: &[&str]| {
        let fixed = ["run", "-m", "MODEL", "--raw", "--temp", "3", "--seed", "7", "-n", "30", "--json", "hello"];
        let out = gristmill(&[&fixed[..], arguments].concat(), b"").success();
        serde_json::from_str::<serde_json::Value>(&out).unwrap()["text"].as_str().unwrap().to_owned()
    };
    let whole = run(&[]);
    let stop: String = whole.chars().skip(5).take(3).collect();
    if stop.contains('\0') || stop.is_empty() {
        return; // No valid argument.
    }
    assert_eq!(run(&["--stop", "not there", "--stop", &stop]), whole[..whole.find(&stop).unwrap()]);
}

/// A bias on one token makes an endless repetition, which DRY ends.
#[test]
fn logit_bias_and_dry() {
    let run = |arguments: &[&str]| {
        let fixed = ["run", "-m", "MODEL", "--raw", "--temp", "0", "-n", "30", "-q", "hello"];
        gristmill(&[&fixed[..], arguments].concat(), b"").success()
    };
    let looping = "ab".repeat(30) + "\n";
    for token in ["256=1000", "\"ab\"=1000"] {
        assert_eq!(run(&["--logit-bias", token]), looping, "{token}");
    }
    let bias = ["--logit-bias", "\"ab\"=1000", "--logit-bias", "259=-1000"];
    let with = |dry: &[&str]| run(&[&bias[..], dry].concat());
    let ended = with(&["--dry-multiplier", "1"]);
    assert!(ended.starts_with("ababab") && ended != looping, "{ended}");
    // Each parameter has an effect: the penalty stays below the bias with a base of 1, and is 0 for allowed lengths,
    // few tokens to search, or a breaker in each token.
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
    assert_eq!(gristmill(&chat, b"hello\n").success(), "ab".repeat(5) + "\n");
}

/// A random model writes what the grammar requires, in a conversation and in a continued text.
#[test]
fn grammars() {
    let run = |arguments: &[&str]| {
        let hot = ["run", "-m", "MODEL", "--temp", "5", "--top-k", "0", "--top-p", "1", "--min-p", "0", "-q", "hello"];
        // White space is allowed between tokens, and would be most of the text.
        let dense = ["9=-1000", "10=-1000", "13=-1000", "32=-1000"].map(|bias| ["--logit-bias", bias]).concat();
        gristmill(&[&hot[..], &dense, arguments].concat(), b"").success()
    };
    let schema = r#"{"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["n"], "additionalProperties": false}"#;
    fs::write(path("schema.json"), schema).unwrap();
    fs::write(path("sum.lark"), "start: NUMBER (\"+\" NUMBER)+\nNUMBER: /[0-9]/\n").unwrap();
    for mode in [&["--raw"][..], &[]] {
        for given in [schema, &path("schema.json")] {
            let out = run(&[mode, &["--json-schema", given]].concat());
            let value: serde_json::Value = serde_json::from_str(&out).expect(&out);
            assert!(value["n"].as_u64().is_some_and(|n| n < 100) && value.as_object().unwrap().len() == 1, "{out}");
        }
        let out = run(&[mode, &["--grammar", &path("sum.lark"), "-n", "20"]].concat());
        assert!(out.trim_end().split('+').all(|n| n.len() <= 1) && out.len() >= 4, "{out}");
        assert_eq!(run(&[mode, &["--regex", "-(yes|yes)!"]].concat()), "-yes!\n");
    }
    let json = run(&["--regex", "a{3}", "--json", "--raw"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["text"], &json["finish_reason"]), (&"aaa".into(), &"end".into()));
}

#[test]
fn chat_by_the_line() {
    let chat = ["chat", "-m", "MODEL", "--temp", "0", "-n", "5", "-v"];
    let input = b"hello\n\n/stats\n/system Be brief.\n/nonsense\n/help\nhello\n/stats\n/reset\n/quit\nnever\n";
    let ended = gristmill(&chat, input);
    for word in ["context ", "decode ", "the system message is set", "/nonsense is not a command", "discarded"] {
        assert!(ended.err.contains(word), "{}", ended.err);
    }
    assert!(!ended.err.contains("error"), "{}", ended.err);
    assert!(ended.success().ends_with('\n'));
    // Names of other programs; none of them is a message.
    let messages: [(&[u8], &str); 6] = [
        (b"/clear\n", "the conversation is discarded\n"),
        (b"/?\n", "Enter sends the message."),
        (b"/bye\nhello\n", ""),
        (b"/exit\nhello\n", ""),
        (b"exit\nhello\n", ""),
        (b"quit\nhello\n", ""),
    ];
    for (input, said) in messages {
        let ended = gristmill(&["chat", "-m", "MODEL", "-n", "5"], input);
        assert!(ended.err.starts_with(said) && (ended.err.is_empty() == said.is_empty()), "{}", ended.err);
        assert_eq!(ended.success(), "");
    }
    // A message about a cut answer names the limit. A path is no command, nor are several lines.
    let endless = path("endless.gguf");
    let ended = gristmill(&["chat", &endless, "-n", "2"], b"/a/b\n/quit\\\nx\n");
    assert_eq!(ended.err.matches("(truncated after 2 tokens, by -n)").count(), 2, "{}", ended.err);
    let ended = gristmill(&["chat", &endless], b"hello\n");
    assert!(ended.err.contains("(truncated: the context of 100 tokens is full"), "{}", ended.err);
    assert_eq!(gristmill(&["chat", &endless, "-n", "2", "-q"], b"hello\n").err, "");
    // A message longer than the context is refused, and the conversation continues.
    let input = format!("{}\n/stats\n", "x".repeat(200));
    let ended = gristmill(&chat, input.as_bytes());
    assert!(ended.err.contains("/reset") && ended.err.contains("no answer yet"), "{}", ended.err);
    assert_eq!(ended.success(), "");
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
