//! Clients that send or read slowly, as the attacks -H, -B and -X of slowhttptest do. CI runs a part. All of it, 500
//! connections and a minute for each attack, in a process that may have 2,000 files open (`ulimit -n 2000`):
//! `cargo test --release -p gristmill-server --test serve -- --ignored --nocapture slow`.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use gristmill_server::Options;
use serde_json::json;

use crate::server::{Running, engine, model, options, rest};

/// The part of a request in which a client is slow.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Attack {
    /// Sends one header after another.
    Headers,
    /// Sends a body byte by byte.
    Body,
    /// Reads a few bytes of many replies.
    Read,
}

const ATTACKS: [Attack; 3] = [Attack::Headers, Attack::Body, Attack::Read];

impl Attack {
    /// A connection that has started.
    fn open(self, server: &Running) -> TcpStream {
        let stream = match self {
            Attack::Headers => server.connect(b"GET /health HTTP/1.1\r\nhost: localhost\r\n"),
            Attack::Body => {
                server.connect(b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4096\r\n\r\n{")
            }
            Attack::Read => {
                server.connect("GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(200).as_bytes())
            }
        };
        stream.set_nonblocking(true).expect("a socket");
        stream
    }

    /// Does a little. Returns whether the connection is still open.
    fn go_on(self, stream: &mut TcpStream) -> bool {
        let sent = match self {
            Attack::Headers => stream.write(b"x-a: b\r\n").map(drop),
            Attack::Body => stream.write(b" ").map(drop),
            Attack::Read => Ok(()),
        };
        let read = match stream.read(&mut [0; 5]) {
            Ok(0) => return false,
            read => read.map(drop),
        };
        [sent, read]
            .iter()
            .all(|outcome| outcome.as_ref().err().is_none_or(|error| error.kind() == ErrorKind::WouldBlock))
    }
}

/// Holds connections for a time: one that ends is opened again. Returns those that are left, and how many have ended.
fn attack(
    server: &Running,
    attacks: &[Attack],
    count: usize,
    time: Duration,
    pause: Duration,
) -> (Vec<TcpStream>, usize) {
    let (start, mut ended) = (Instant::now(), 0);
    let mut open: Vec<(Attack, TcpStream)> =
        attacks.iter().cycle().take(count).map(|&attack| (attack, attack.open(server))).collect();
    while start.elapsed() < time {
        for (attack, stream) in &mut open {
            if !attack.go_on(stream) {
                *stream = attack.open(server);
                ended += 1;
            }
        }
        std::thread::sleep(pause);
    }
    (open.into_iter().map(|(_, stream)| stream).collect(), ended)
}

/// Times to the first token of a good client that asks servers in turns, in ascending order: the attacked one, and one
/// that nobody attacks, so that other work of the machine disturbs both.
fn first_tokens(servers: [&Running; 2], mut goes_on: impl FnMut(usize) -> bool) -> [Vec<Duration>; 2] {
    let body = json!({"prompt": "abc", "max_tokens": 2, "ignore_eos": true});
    let mut times = [Vec::new(), Vec::new()];
    while goes_on(times[0].len()) {
        for (server, times) in servers.iter().zip(&mut times) {
            let start = Instant::now();
            drop(server.begin("/v1/completions", &body));
            times.push(start.elapsed());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    times.iter_mut().for_each(|times| times.sort_unstable());
    times
}

fn percentile(times: &[Duration], percent: usize) -> Duration {
    times[(times.len() * percent / 100).min(times.len() - 1)]
}

fn wait_for_closed(server: &Running, patience: Duration) -> Duration {
    let start = Instant::now();
    // The connection that asks is open.
    while server.metric("gristmill_connections") > 1.0 {
        assert!(start.elapsed() < 2 * patience + Duration::from_secs(5), "slow connections stay open");
        std::thread::sleep(Duration::from_millis(20));
    }
    start.elapsed()
}

/// Threads of this process, of which the server's are a part.
fn threads() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("Threads:"))?.trim().parse().ok()
}

#[test]
fn slow_clients_are_dropped_and_disturb_nobody() {
    let patience = Duration::from_millis(1_000);
    let model = model();
    let [server, quiet] = [0, 1].map(|_| Running::new(engine(&model, 2), Options { patience, ..options() }));
    let (times, (left, ended)) = std::thread::scope(|scope| {
        let [time, pause] = [2_500, 100].map(Duration::from_millis);
        let (server, attacks) = (&server, &ATTACKS);
        let attack = scope.spawn(move || attack(server, attacks, 90, time, pause));
        (first_tokens([server, &quiet], |_| !attack.is_finished()), attack.join().expect("an attack"))
    });
    let [attacked, alone] = times.map(|times| percentile(&times, 90));
    let waited = wait_for_closed(&server, patience);
    println!("first token: {alone:.1?} alone, {attacked:.1?} attacked (90th percentiles)");
    println!("{ended} connections ended, the last {waited:.1?} after the attack");
    // 60 connections that send slowly end twice.
    assert!(ended >= 100, "{ended} ended");
    assert!(attacked < alone * 3 / 2 + Duration::from_millis(100), "{attacked:?} instead of {alone:?}");
    drop(left);
}

#[test]
fn each_slow_client_is_dropped() {
    let patience = Duration::from_millis(300);
    let server = Running::new(engine(&model(), 1), Options { patience, ..options() });
    let started = Instant::now();
    let idle = server.connect(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let silent = server.connect(b"");
    let head = server.connect(b"GET /health HTTP/1.1\r\nhost: local");
    let body = |path: &str| {
        server.connect(format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{{").as_bytes())
    };
    let (unread, wrong) = (body("/v1/messages"), body("/nowhere"));
    let unfinished = server
        .connect(b"POST /tokenize HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"pro\r\n");
    assert!(rest(idle).starts_with("HTTP/1.1 200"));
    assert_eq!(rest(silent), "");
    assert_eq!(rest(head), "");
    assert!(rest(unread).starts_with("HTTP/1.1 408"));
    assert!(rest(wrong).starts_with("HTTP/1.1 404"));
    assert!(rest(unfinished).starts_with("HTTP/1.1 408"));
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    wait_for_closed(&server, patience);
    assert_eq!(server.get("/health").status, 200);
}

/// A reply that nobody reads ends too, and so does its generation.
#[test]
fn a_client_that_never_reads_is_dropped() {
    let patience = Duration::from_millis(500);
    let server = Running::new(engine(&model(), 1), Options { patience, ..options() });
    let _unread = Attack::Read.open(&server);
    assert_eq!(server.metric("gristmill_connections"), 2.0);
    wait_for_closed(&server, patience);
}

#[test]
fn connections_are_bounded() {
    let patience = Duration::from_millis(700);
    let server = Running::new(engine(&model(), 1), Options { patience, connections: 3, ..options() });
    let open: Vec<TcpStream> = (0..3).map(|_| server.connect(b"GET /")).collect();
    let start = Instant::now();
    // Waits until one of the others has lost its patience.
    assert_eq!(server.get("/health").status, 200);
    let waited = start.elapsed();
    assert!(waited > patience / 2, "served after {waited:?}, although three connections were open");
    drop(open);
}

#[test]
#[ignore = "minutes"]
fn many_slow_clients() {
    let (model, patience) = (model(), Options::default().patience);
    let [server, quiet] = [0, 1].map(|_| Running::new(engine(&model, 8), Options { patience, ..options() }));
    let mut slower = Vec::new();
    for slow in ATTACKS {
        let ([idle, _], before) = (first_tokens([&server, &quiet], |count| count < 1_000), threads());
        let (times, (left, ended), during) = std::thread::scope(|scope| {
            let attack = scope.spawn(|| attack(&server, &[slow], 500, Duration::from_secs(60), Duration::from_secs(1)));
            let mut during = None;
            let times = first_tokens([&server, &quiet], |count| {
                during = if count == 500 { threads() } else { during };
                !attack.is_finished()
            });
            (times, attack.join().expect("an attack"), during)
        });
        let count = times[0].len();
        let ([attacked, alone], idle) = (times.map(|times| percentile(&times, 99)), percentile(&idle, 99));
        let waited = wait_for_closed(&server, patience);
        println!(
            "{slow:?}, 500 connections for 60 s, {count} first tokens, 99th percentiles: {attacked:.2?} attacked,"
        );
        println!("    {alone:.2?} meanwhile of a server that is not, {idle:.2?} before");
        println!(
            "    {ended} connections ended, the last {waited:.0?} after the attack; threads {before:?}, then {during:?}"
        );
        // One thread attacks; a few more serve the good client.
        assert!(during <= before.map(|before| before + 6), "{slow:?}: {during:?} threads, {before:?} before");
        if attacked > alone * 3 / 2 {
            slower.push(slow);
        }
        drop(left);
    }
    assert!(slower.is_empty(), "{slower:?} disturb a good client");
}
