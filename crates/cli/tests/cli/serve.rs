//! `serve`: what is refused before it listens, one reply, and its end.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{gristmill, gristmill_with, path};

mod keys;
mod logs;
mod models;
mod sockets;

/// A server that listens, its address, and the lines that it prints after it.
pub(crate) struct Serving(Child, String, Option<JoinHandle<Vec<String>>>);

impl Serving {
    pub(crate) fn new(arguments: &[&str]) -> Serving {
        Serving::with_context("200", arguments)
    }

    fn with_context(tokens: &str, arguments: &[&str]) -> Serving {
        Serving::with_key(None, tokens, arguments)
    }

    /// With a key in the environment.
    fn with_key(key: Option<&str>, tokens: &str, arguments: &[&str]) -> Serving {
        Serving::of(&path("endless.gguf"), key, tokens, arguments)
    }

    /// Of this model.
    pub(crate) fn of(model: &str, key: Option<&str>, tokens: &str, arguments: &[&str]) -> Serving {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gristmill"));
        command.args(["serve", model, "--port", "0", "--ctx", tokens, "-t", "1"]).args(arguments);
        command.env("HOME", "/dev/null/home").env_remove("GRISTMILL_API_KEY");
        command.envs(key.map(|key| ("GRISTMILL_API_KEY", key)));
        let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let address = lines.find_map(|line| {
            let line = line.expect("text");
            Some(line.split_once("://")?.1.split_once('/')?.0.to_owned())
        });
        // Read to the end, so that the server can write.
        let rest = std::thread::spawn(move || lines.map_while(Result::ok).collect());
        Serving(child, address.expect("an address"), Some(rest))
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.1).expect("it listens");
        write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").expect("it takes bytes");
        rest(stream)
    }

    pub(crate) fn post(&self, headers: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.1).expect("it listens");
        let length = body.len();
        write!(
            stream,
            "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}content-length: \
             {length}\r\n\r\n{body}"
        )
        .expect("it takes bytes");
        stream
    }

    /// Streams of this number of tokens that have started.
    fn streams(&self, count: usize, tokens: usize) -> Vec<TcpStream> {
        let options = r#""stream": true, "stream_options": {"include_usage": true}, "ignore_eos": true"#;
        let body = format!(r#"{{"prompt": "ab", "max_tokens": {tokens}, {options}}}"#);
        let mut streams: Vec<TcpStream> = (0..count).map(|_| self.post("", &body)).collect();
        for stream in &mut streams {
            stream.read_exact(&mut [0; 12]).expect("the reply begins");
        }
        streams
    }

    /// Sends a signal and waits until the server refuses connections.
    fn signal_and_wait(&mut self) {
        self.signal();
        let start = Instant::now();
        while TcpStream::connect(&self.1).is_ok() {
            assert!(start.elapsed() < Duration::from_secs(30), "it goes on listening");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(self.0.try_wait().expect("a status").is_none(), "it ended before its replies");
    }

    /// Ends it, and returns all lines on stderr after its address.
    fn lines(&mut self) -> Vec<String> {
        self.signal();
        assert!(self.0.wait().expect("it ends").success());
        self.2.take().expect("a thread").join().expect("lines")
    }

    /// Sends SIGHUP.
    fn hang_up(&self) {
        let kill = Command::new("kill").args(["-HUP", &self.0.id().to_string()]).status();
        assert!(kill.is_ok_and(|status| status.success()));
    }

    fn signal(&self) {
        assert!(Command::new("kill").arg(self.0.id().to_string()).status().is_ok_and(|status| status.success()));
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn rest(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("a whole reply");
    text
}

/// What a server prints first can be opened in a browser, also with what programs take as base address.
#[test]
fn the_printed_address_is_the_page() {
    let server = Serving::new(&["--host", "0.0.0.0", "--allow-unauthenticated"]);
    assert!(server.1.starts_with("127.0.0.1:"), "{}", server.1);
    let page = server.get("/");
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("<!doctype html>"), "{page}");
    let base = server.get("/v1");
    assert!(base.starts_with("HTTP/1.1 307") && base.contains("location: /\r\n"), "{base}");
    let server = Serving::new(&["--no-page"]);
    assert!(server.get("/").starts_with("HTTP/1.1 404"));
}

/// The options of the sampler are the defaults of requests.
#[test]
fn requests_without_settings_have_those_of_the_command_line() {
    let server = Serving::new(&["--temp", "0.25", "--top-k", "7", "--repeat-penalty", "1.5"]);
    let sampling = |more: &str| {
        let reply = rest(server.post("", &format!(r#"{{"prompt": "ab", "max_tokens": 1, "receipt": true{more}}}"#)));
        let (_, body) = reply.split_once("\r\n\r\n").expect("a body");
        let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
        let sampling = &body["usage"]["gristmill"]["receipt"]["requests"][0]["sampling"];
        ["temperature", "top_k", "repeat_penalty"].map(|name| sampling[name].as_f64().expect("a number"))
    };
    assert_eq!(sampling(""), [0.25, 7.0, 1.5]);
    assert_eq!(sampling(r#", "temperature": 0.5, "top_k": 3"#), [0.5, 3.0, 1.5]);
    let refused = gristmill(&["serve", "MODEL", "--top-p", "2"], b"");
    assert!(refused.code != Some(0) && refused.err.contains("top_p"), "{}", refused.err);
}

#[test]
fn requests_are_logged_without_their_text() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("access-log");
    let name = file.display().to_string();
    for format in ["text", "json"] {
        let _ = fs::remove_file(&file);
        let mut server = Serving::new(&["--access-log", &name, "--access-log-format", format]);
        let secret = r#"{"prompt": "secret words", "max_tokens": 5, "stream": STREAM}"#;
        for stream in ["true", "false"] {
            assert!(rest(server.post("", &secret.replace("STREAM", stream))).starts_with("HTTP/1.1 200"));
        }
        server.get("/nothing?secret");
        server.signal();
        assert!(server.0.wait().expect("it ends").success());
        let log = fs::read_to_string(&file).expect("a log");
        let lines: Vec<&str> = log.lines().collect();
        assert!(lines.len() == 3 && !log.contains("secret"), "{log}");
        match format {
            "text" => {
                let words = ["Z POST /v1/completions 200, prompt ", " cached), generated 5, first 0.", " s, "];
                assert!(lines[..2].iter().all(|line| words.iter().all(|word| line.contains(word))), "{log}");
                assert!(lines[2].contains("Z GET /nothing 404, 0."), "{log}");
            }
            _ => {
                let json = |line: &&str| serde_json::from_str::<serde_json::Value>(line).expect("JSON");
                let [streamed, whole, missing] = [&lines[0], &lines[1], &lines[2]].map(json);
                for reply in [&streamed, &whole] {
                    assert_eq!((&reply["status"], &reply["generated_tokens"]), (&200.into(), &5.into()), "{log}");
                    assert!(reply["prompt_tokens"].as_u64() > Some(5) && reply["complete"] == true, "{log}");
                    assert!(reply["first_token_seconds"].as_f64() <= reply["seconds"].as_f64(), "{log}");
                }
                assert!(missing["status"] == 404 && missing.get("prompt_tokens").is_none(), "{log}");
            }
        }
    }
    let refused = gristmill(&["serve", "MODEL", "--access-log", "/dev/null/log"], b"");
    assert!(refused.code == Some(1) && refused.err.contains("--access-log /dev/null/log"), "{}", refused.err);
}

#[test]
fn a_verbose_server_prints_requests_and_readiness() {
    let mut server = Serving::new(&["-v"]);
    server.get("/health");
    let lines = server.lines();
    assert!(lines.iter().any(|line| line.starts_with("ready")), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("GET /health 200, ")), "{lines:?}");
}

#[test]
fn a_signal_lets_replies_end() {
    let mut server = Serving::new(&["--name", "small"]);
    let reply = rest(server.post("", r#"{"prompt": "ab", "max_tokens": 3}"#));
    assert!(reply.starts_with("HTTP/1.1 200") && reply.contains(r#""model":"small""#), "{reply}");
    let body = r#"{"prompt": "ab", "max_tokens": 150, "stream": true}"#;
    let mut stream = server.post("", body);
    stream.read_exact(&mut [0; 12]).expect("the reply begins");
    server.signal();
    assert!(rest(stream).contains("data: [DONE]"));
    assert!(server.0.wait().expect("it ends").success());
}

#[test]
fn a_second_signal_ends_at_once() {
    let mut server = Serving::new(&["--parallel", "1"]);
    // A connection without a request would hold the server until its patience ends.
    let _open = TcpStream::connect(&server.1).expect("it listens");
    for _ in 0..100 {
        server.signal();
        std::thread::sleep(std::time::Duration::from_millis(60));
        if let Some(status) = server.0.try_wait().expect("a status") {
            assert!(status.success() || status.signal() == Some(15), "{status}");
            return;
        }
    }
    panic!("it goes on");
}

#[test]
fn a_signal_lets_many_replies_end() {
    let mut server = Serving::with_context("700", &["--parallel", "32"]);
    let streams = server.streams(32, 600);
    server.signal_and_wait();
    for stream in streams {
        let reply = rest(stream);
        assert!(reply.contains(r#""completion_tokens":600"#) && reply.contains("data: [DONE]"), "{reply}");
    }
    assert_eq!(server.0.wait().expect("it ends").code(), Some(0));
}

#[test]
fn a_second_signal_ends_many_replies_at_once() {
    let mut server = Serving::with_context("700", &["--parallel", "32"]);
    let streams = server.streams(32, 600);
    server.signal_and_wait();
    let start = Instant::now();
    server.signal();
    let status = server.0.wait().expect("it ends");
    assert!(start.elapsed() < Duration::from_secs(1), "it ended after {:?}", start.elapsed());
    assert_eq!(status.signal(), Some(15), "{status}");
    drop(streams);
}

/// Many long bodies at a time are read by as many threads as there are cores.
#[test]
#[cfg(target_os = "linux")]
fn few_threads_read_bodies() {
    let server = Serving::new(&[]);
    let body = format!(r#"{{"prompt": "{}", "max_tokens": 1}}"#, "wheat and rye ".repeat(20_000));
    let streams: Vec<TcpStream> = (0..40).map(|_| server.post("", &body)).collect();
    for stream in streams {
        assert!(rest(stream).starts_with("HTTP/1.1 400"));
    }
    let threads = fs::read_dir(format!("/proc/{}/task", server.0.id())).expect("a process").count();
    let cores = std::thread::available_parallelism().expect("a number").get();
    // The main thread, two of connections, the engine's and its one of computing.
    assert!(threads <= 5 + cores.max(2), "{threads} threads on {cores} cores");
}

#[test]
fn keys_are_asked_for() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("keys");
    fs::write(&file, "\u{feff}# the team's\r\nfirst\r\n\r\n # two\r\n second \r\n").expect("a written file");
    let file = file.display().to_string();
    for (key, third) in [(None, "401"), (Some("third"), "200")] {
        let server = Serving::with_key(key, "200", &["--keys", &file, "--host", "0.0.0.0"]);
        let ask = |headers: &str| rest(server.post(headers, r#"{"prompt": "a", "max_tokens": 1}"#))[9..12].to_owned();
        assert_eq!(ask(""), "401");
        assert_eq!(ask("authorization: Bearer second\r\n"), "200");
        assert_eq!(ask("x-api-key: third\r\n"), third);
        assert_eq!(ask("x-api-key: # two\r\n"), "401");
        assert_eq!(ask("x-api-key: fourth\r\n"), "401");
    }
}

#[test]
fn what_is_refused_before_it_listens() {
    let refused = |arguments: &[&str], message: &str| {
        let ended = gristmill(&[&["serve", "MODEL"], arguments].concat(), b"");
        assert!(ended.code != Some(0) && ended.err.contains(message), "{arguments:?}: {}", ended.err);
    };
    refused(&["--host", "0.0.0.0"], "--allow-unauthenticated");
    refused(&["--host", "::"], "--allow-unauthenticated");
    refused(&["--host", "256.0.0.1"], "not an address");
    refused(&["--keys", "/dev/null"], "no keys");
    let marked = path("no keys");
    std::fs::write(&marked, "\u{feff}\n").unwrap();
    refused(&["--keys", &marked], "no keys");
    refused(&["--keys", "/nothing/there"], "cannot read the keys");
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("two-keys");
    fs::write(&file, "# the team's\nsekret # the laptop's\n").expect("a written file");
    refused(&["--keys", &file.display().to_string()], "line 2 has more than a key");
    refused(&["--allow-origin", "localhost:3000"], "is not an origin");
    refused(&["--allow-mcp", "http://localhost:3000/mcp"], "is not the origin of an MCP server");
    refused(&["--allow-host", "*"], "is not a host name");
    refused(&["--listen", "0.0.0.0:0"], "--listen 0.0.0.0:0 serves other machines");
    refused(&["--listen", "unix:/dev/null/socket"], "cannot listen on unix:/dev/null/socket");
    refused(&["--listen", "systemd"], "no socket was passed");
    refused(&["--listen", "127.0.0.1:0", "--port", "1"], "cannot be used with");
    refused(&["--tls-cert", "/dev/null"], "--tls-key");
    refused(&["--tls-cert", "/dev/null", "--tls-key", "/dev/null"], "--tls-cert /dev/null: there is no certificate");
    refused(&["--port", "0", "--metrics-listen", "192.0.2.1:0"], "cannot listen on 192.0.2.1:0");
    refused(&["--parallel", "0"], "at least 1");
    refused(&["--kv-tokens", "0"], "at least 1");
    refused(
        &["--port", "0", "--ctx", "100", "--kv-tokens", "99"],
        "the number of tokens of the KV cache is 99; it must be at least",
    );
    refused(&["--port", "65536"], "65535");
    refused(&["--host", "192.0.2.1", "--allow-unauthenticated"], "cannot listen on 192.0.2.1:8080");
    let ended = gristmill_with(&[("GRISTMILL_API_KEY", " ".as_ref())], &["serve", "MODEL"], b"");
    assert!(ended.code != Some(0) && ended.err.contains("GRISTMILL_API_KEY is empty"), "{}", ended.err);
}
