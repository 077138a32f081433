//! Signals: commands remove their partial files and end by the signal, which a shell shows as 128 + its number.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Once};
use std::thread::sleep;
use std::time::{Duration, Instant};

use gristmill_files::gguf::GgufWriter;
use gristmill_kernels::format::Format;

use super::path;

const SIGNALS: [(&str, i32); 3] = [("HUP", 1), ("INT", 2), ("TERM", 15)];

/// A new folder with `in.gguf`: a sparse file of 1 GiB of zeros, which takes some seconds to quantise.
fn zeros(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("interrupt-{test}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let mut plan = GgufWriter::new();
    plan.set("general.architecture", "llama").unwrap();
    plan.tensor("blk.0.ffn_down.weight", Format::F32, &[4096, 1 << 16]).unwrap();
    let file = fs::File::create(folder.join("in.gguf")).unwrap();
    let bytes = plan.file_bytes();
    drop(plan.begin(&file).unwrap());
    file.set_len(bytes).unwrap();
    folder
}

/// A program starts with a signal's default action if it is handled here, but ignores what is ignored here: in a
/// shell's background that is SIGINT.
fn handle_signals() {
    static HANDLED: Once = Once::new();
    HANDLED.call_once(|| {
        for (_, number) in SIGNALS {
            signal_hook::flag::register_conditional_default(number, Arc::new(AtomicBool::new(true))).unwrap();
        }
    });
}

fn start(command: &mut Command) -> Child {
    handle_signals();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn gristmill(arguments: &[&str]) -> Child {
    start(Command::new(env!("CARGO_BIN_EXE_gristmill")).args(arguments).env("HOME", "/dev/null/home"))
}

fn wait_until(what: &str, mut there: impl FnMut() -> bool) {
    let start = Instant::now();
    while !there() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        sleep(Duration::from_millis(1));
    }
}

/// Waits for the temporary file next to what the program writes.
fn wait_for_partial_file(child: &mut Child, folder: &Path, entries_with_it: usize) {
    wait_until("there is no partial file", || {
        if let Some(ended) = child.try_wait().unwrap() {
            let mut errors = String::new();
            child.stderr.as_mut().unwrap().read_to_string(&mut errors).unwrap();
            panic!("it ended before there was a partial file: {ended}: {errors}");
        }
        entries(folder) == entries_with_it
    });
}

fn send(signal: &str, child: &Child) {
    assert!(Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap().success());
}

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

#[test]
fn a_partial_file_is_removed() {
    let folder = zeros("quantize");
    let [input, output] = ["in.gguf", "out.gguf"].map(|name| folder.join(name).display().to_string());
    for (name, number) in SIGNALS {
        let mut child = gristmill(&["quantize", &input, &output, "Q4_K", "--quiet"]);
        wait_for_partial_file(&mut child, &folder, 2);
        send(name, &child);
        let ended = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&ended.stderr);
        assert_eq!((ended.status.signal(), errors.lines().count()), (Some(number), 1), "{name}: {errors}");
        assert!(errors.contains("nothing was written"), "{name}: {errors}");
        assert_eq!(entries(&folder), 1, "{name}: a file remains");
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_synthetic_model_is_removed_and_the_bench_after_it_ends() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interrupt-synthetic");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let output = folder.join("out.gguf").display().to_string();
    for (name, number) in SIGNALS {
        let mut child = gristmill(&["bench", "--synthetic", "qwen3-8b", "--layers", "4", "-o", &output, "-q"]);
        wait_for_partial_file(&mut child, &folder, 1);
        send(name, &child);
        let ended = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.signal(), Some(number), "{name}: {errors}");
        assert!(errors.contains("nothing was written"), "{name}: {errors}");
        assert_eq!(entries(&folder), 0, "{name}: a file remains");

        let endless = ["--synthetic", "mini-moe", "--layers", "1", "-o", &output, "--repeats", "1000000", "-q"];
        let mut child = gristmill(&[&["bench"][..], &endless].concat());
        wait_until("there is no model", || Path::new(&output).exists());
        // The first signal may arrive while the file is being completed.
        wait_until("the bench does not end", || {
            send(name, &child);
            sleep(Duration::from_millis(20));
            child.try_wait().unwrap().is_some()
        });
        assert_eq!(child.wait().unwrap().signal(), Some(number), "{name}");
        fs::remove_file(&output).unwrap();
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn saved_logits_are_removed() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interrupt-perplexity");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let (text, saved) = (folder.join("text").display().to_string(), folder.join("saved").display().to_string());
    fs::write(&text, "Once upon a time there was a little mill by the river. ".repeat(4000)).unwrap();
    for (name, number) in SIGNALS {
        let mut child = gristmill(&["perplexity", "-f", &text, "--save-logits", &saved]);
        wait_for_partial_file(&mut child, &folder, 2);
        send(name, &child);
        let ended = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.signal(), Some(number), "{name}: {errors}");
        assert_eq!(entries(&folder), 1, "{name}: a file remains");
    }
    fs::remove_dir_all(&folder).unwrap();
}

/// `nohup` starts its command with SIGHUP ignored.
#[test]
fn an_ignored_signal_stays_ignored() {
    let folder = zeros("nohup");
    let [input, output] = ["in.gguf", "out.gguf"].map(|name| folder.join(name).display().to_string());
    let script = "trap '' HUP; exec \"$@\"";
    let program = env!("CARGO_BIN_EXE_gristmill");
    let mut shell = Command::new("sh");
    let mut child = start(shell.args(["-c", script, "sh", program, "quantize", &input, &output, "Q8_0", "--quiet"]));
    wait_for_partial_file(&mut child, &folder, 2);
    send("HUP", &child);
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{}", String::from_utf8_lossy(&ended.stderr));
    fs::remove_dir_all(&folder).unwrap();
}

/// Commands that write no file end the same way, also a chat between two answers.
#[test]
fn every_command_ends_by_the_signal() {
    for (name, number) in SIGNALS {
        // Waits for its prompt.
        let run = gristmill(&["run", "-"]);
        let mut chat = gristmill(&["chat", "-m", &path("model.gguf"), "-q"]);
        // After its answer to a command, the chat waits for the next message.
        chat.stdin.as_mut().unwrap().write_all(b"/stats\n").unwrap();
        chat.stderr.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        for (command, mut child) in [("run", run), ("chat", chat)] {
            // A chat also ends at the end of its input, so stdin stays open.
            let _input = child.stdin.take();
            send(name, &child);
            let ended = child.wait_with_output().unwrap();
            let errors = String::from_utf8_lossy(&ended.stderr);
            assert_eq!(ended.status.signal(), Some(number), "{command} {name}: {}: {errors}", ended.status);
        }
    }
}
