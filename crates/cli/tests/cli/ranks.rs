//! `--ranks mpi`: processes that `mpirun` starts share a model. Without `mpirun` the tests say that they were skipped.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Ended, gristmill, path};

const BINARY: &str = env!("CARGO_BIN_EXE_gristmill");

fn mpirun() -> Option<Command> {
    if !Command::new("mpirun").arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: no mpirun (Debian: apt install openmpi-bin)");
        return None;
    }
    let mut command = Command::new("mpirun");
    command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]).env("HOME", "/dev/null/home");
    Some(command)
}

/// The rest of a command that runs on so many ranks.
fn on_ranks(ranks: usize, arguments: &[&str]) -> Option<Ended> {
    let mut command = mpirun()?;
    command.args(["-np", &ranks.to_string(), BINARY]).args(arguments).args(["-t", "1", "--ranks", "mpi"]);
    Some(Ended::new(command.stdin(Stdio::null()).output().expect("mpirun")))
}

#[test]
fn a_text_is_the_one_of_threads_that_share_the_model() {
    let model = path("model.gguf");
    let stories = ["run", "--temp", "0", "-n", "30", "Once upon a time"];
    let experts = ["run", model.as_str(), "--raw", "--temp", "0", "-n", "30", "ab"];
    for (arguments, split) in [(&stories[..], "tensor"), (&stories, "layers"), (&experts, "experts")] {
        let arguments = [arguments, &["--split", split]].concat();
        for (ranks, device) in [(2, "cpu:0,1"), (3, "cpu:0,1,2")] {
            let threads = gristmill(&[&arguments[..], &["--device", device, "-t", "3"]].concat(), b"");
            let Some(processes) = on_ranks(ranks, &arguments) else { return };
            // A model with fewer layers than ranks is refused on both. mpirun is a terminal, on which the prompt is repeated.
            assert_eq!(processes.code, threads.code, "{split}: {}", processes.err);
            assert!(processes.out.ends_with(&threads.out), "{split}: {} instead of {}", processes.out, threads.out);
        }
    }
}

/// Without `--split`: what `fit` and `-v` print of it, of sums and of experts.
#[test]
fn the_plan_of_several_devices_says_why() {
    let model = path("model.gguf");
    let devices = ["--device", "cpu:0,1", "-t", "2"];
    let run = gristmill(&[&["run", "-v", &model, "--raw", "-n", "1", "ab"], &devices[..]].concat(), b"");
    assert_eq!(run.code, Some(0), "{}", run.err);
    for expected in [
        "split: experts; a step of 1 token would take ",
        " ms with tensor (",
        "sums over devices: through host memory, 4 KB in ",
    ] {
        assert!(run.err.contains(expected), "{expected}: {}", run.err);
    }
    let fit = gristmill(&[&["fit", &model], &devices[..]].concat(), b"");
    assert!(fit.code == Some(0) && fit.err.contains("split: experts; a step of "), "{}", fit.err);
}

#[test]
fn experts_are_shared_by_counts_of_experts_json() {
    let model = path("model.gguf");
    let text = path("counted.txt");
    std::fs::write(&text, "ab ab ab abab ba").expect("a file");
    let counted = gristmill(&["experts", &model, "-f", &text, "--json"], b"");
    assert_eq!(counted.code, Some(0), "{}", counted.err);
    let load = path("load.json");
    std::fs::write(&load, &counted.out).expect("a file");
    let devices = ["--device", "cpu:0,1", "-t", "2", "--expert-load", &load];
    let run = gristmill(&[&["run", "-v", &model, "--raw", "--temp", "0", "-n", "8", "ab"], &devices[..]].concat(), b"");
    assert!(run.code == Some(0) && run.err.contains(" experts"), "{}", run.err);
    let alone = gristmill(&["run", &model, "--raw", "-n", "1", "ab", "--expert-load", &load], b"");
    assert!(alone.err.contains("--expert-load ") && alone.err.contains("one device has all experts"), "{}", alone.err);
    std::fs::write(&load, "{}").expect("a file");
    let other = gristmill(&[&["run", &model, "--raw", "-n", "1", "ab"], &devices[..]].concat(), b"");
    assert!(other.err.contains("write the file with gristmill experts --json"), "{}", other.err);
}

#[test]
fn another_file_on_a_rank_is_an_error_of_all() {
    let Some(mut command) = mpirun() else { return };
    let (one, other) = (path("model.gguf"), path("endless.gguf"));
    let end = ["-t", "1", "--ranks", "mpi", "--raw", "ab"];
    command.args(["-np", "1", BINARY, "run", &one]).args(end).arg(":");
    command.args(["-np", "1", BINARY, "run", &other]).args(end);
    let ended = Ended::new(command.stdin(Stdio::null()).output().expect("mpirun"));
    let differs = "model file: differs (found ";
    assert!(ended.code == Some(1) && ended.err.contains(&format!("error: rank 1: lost ({differs}")), "{}", ended.err);
    assert!(ended.err.contains("; start all ranks with the same file, options and version"), "{}", ended.err);
}

#[test]
fn without_mpirun_there_is_one_rank_which_is_refused() {
    let ended = gristmill(&["run", "--ranks", "mpi", "ab"], b"");
    let line = ended.last_line();
    assert_eq!(ended.code, Some(1), "{line}");
    assert!(line.starts_with("error: --ranks mpi: "), "{line}");
}

/// A server on two ranks, and its address.
struct Ranks(Child, String);

impl Ranks {
    fn serve() -> Option<Ranks> {
        let mut command = mpirun()?;
        command.args(["-np", "2", BINARY, "serve", &path("endless.gguf"), "--port", "0", "--ctx", "60000", "-t", "1"]);
        let mut child = command.args(["--ranks", "mpi"]).stderr(Stdio::piped()).spawn().expect("mpirun");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let address = lines.find_map(|line| {
            let line = line.expect("text");
            Some(line.split_once("://")?.1.split_once('/')?.0.to_owned())
        });
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| eprintln!("{line}")));
        Some(Ranks(child, address.expect("an address")))
    }

    /// A stream that has started.
    fn stream(&self, tokens: usize) -> TcpStream {
        let body = format!(r#"{{"prompt": "ab", "max_tokens": {tokens}, "stream": true, "ignore_eos": true}}"#);
        let mut stream = TcpStream::connect(&self.1).expect("it listens");
        let length = body.len();
        let head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: ";
        write!(stream, "{head}{length}\r\n\r\n{body}").expect("it takes bytes");
        stream.read_exact(&mut [0; 12]).expect("the reply starts");
        stream
    }

    fn signal(&self, signal: &str, rank: usize) {
        let own = self.0.id().to_string();
        let is_rank = |process: &str| {
            let read = |name: &str| std::fs::read(format!("/proc/{process}/{name}")).unwrap_or_default();
            let stat = String::from_utf8_lossy(&read("stat")).into_owned();
            let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1).map(str::to_owned));
            let wanted = format!("OMPI_COMM_WORLD_RANK={rank}");
            parent.as_deref() == Some(&own)
                && read("environ").split(|&byte| byte == 0).any(|pair| pair == wanted.as_bytes())
        };
        let processes = std::fs::read_dir("/proc").expect("Linux").flatten();
        let found = processes.filter_map(|entry| entry.file_name().into_string().ok()).find(|process| is_rank(process));
        let kill = Command::new("kill").args([signal, &found.expect("the rank runs")]).status();
        assert!(kill.is_ok_and(|status| status.success()));
    }

    /// Whether all ranks ended with code 0, and when.
    fn end(&mut self) -> (bool, Duration) {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(60) {
            if let Some(status) = self.0.try_wait().expect("a status") {
                return (status.success(), start.elapsed());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("ranks do not end");
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_rank_that_is_killed_ends_requests_with_an_error_and_all_ranks_within_5_seconds() {
    let Some(mut ranks) = Ranks::serve() else { return };
    let mut stream = ranks.stream(50_000);
    ranks.signal("-9", 1);
    let (is_success, time) = ranks.end();
    assert!(!is_success && time < Duration::from_secs(5), "{time:?}");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("a whole reply");
    let error = text.lines().rfind(|line| line.contains("\"error\"")).unwrap_or_else(|| panic!("no error: {text}"));
    assert!(error.contains("rank 1: lost (its process ended)"), "{error}");
}

#[test]
fn a_server_that_is_stopped_finishes_its_replies_and_ends_all_ranks_in_order() {
    let Some(mut ranks) = Ranks::serve() else { return };
    let mut stream = ranks.stream(300);
    ranks.signal("-TERM", 0);
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("a whole reply");
    assert!(text.contains("[DONE]") && !text.contains("\"error\""), "{text}");
    assert!(ranks.end().0, "an exit code that is not 0");
}
