//! What load balancers, probes and supervisors see: names, health, the start and the end of a server.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use gristmill_server::{Access, Options, Server, Sockets};
use serde_json::{Value, json};

use crate::server::{Running, agent, engine, model, offered, options, rest};

const PATH: &str = "/v1/completions";

fn asked(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
    stream.write_all(request.as_bytes()).expect("it takes bytes");
    rest(stream)
}

fn get(address: SocketAddr, path: &str) -> (u16, Value) {
    let response = agent().get(format!("http://{address}{path}")).call();
    let mut response = response.expect("a reply");
    let text = response.body_mut().read_to_string().expect("text");
    (response.status().as_u16(), serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

#[test]
fn probes_need_no_name_and_no_key() {
    let access = Access { keys: vec!["secret".into()], ..Access::default() };
    let server = Running::new(engine(&model(), 1), Options { access, ..options() });
    for path in ["/health", "/ready"] {
        for head in ["HTTP/1.0\r\n", "HTTP/1.1\r\nhost: gristmill\r\nconnection: close\r\n"] {
            for method in ["GET", "HEAD"] {
                let reply = server.raw(format!("{method} {path} {head}\r\n").as_bytes());
                assert!(reply.get(9..12) == Some("200"), "{method} {path} {head}: {reply}");
            }
        }
    }
    for (path, name) in [("/healthy", "gristmill"), (PATH, "gristmill"), ("/metrics", "[127.0.0.1]evil.com")] {
        let reply = server.raw(format!("GET {path} HTTP/1.1\r\nhost: {name}\r\nconnection: close\r\n\r\n").as_bytes());
        assert!(reply.starts_with("HTTP/1.1 403"), "{path}: {reply}");
    }
    let refused = server.get("/v1/models");
    assert_eq!((refused.status, refused.header("www-authenticate")), (401, Some("Bearer")));
}

/// The socket for monitoring has no keys and no names, and nothing else.
#[test]
fn monitoring_has_a_socket() {
    let access = Access { keys: vec!["secret".into()], ..Access::default() };
    let server = Running::new(engine(&model(), 1), Options { access, ..options() });
    let ask = |path: &str| {
        let head = "HTTP/1.1\r\nhost: pod.example\r\norigin: http://evil.example\r\nconnection: close\r\n\r\n";
        asked(server.monitoring, &format!("GET {path} {head}"))
    };
    let metrics = ask("/metrics");
    assert!(
        metrics.starts_with("HTTP/1.1 200") && metrics.contains("gristmill_requests_waiting{model=\"tiny\"} 0"),
        "{metrics}"
    );
    assert!(["/health", "/ready"].iter().all(|path| ask(path).starts_with("HTTP/1.1 200")));
    for path in ["/v1/models", "/", "/model", "/openapi.json", "/slots"] {
        assert!(ask(path).starts_with("HTTP/1.1 404"), "{path}");
    }
    assert_eq!(server.get("/metrics").status, 401);
}

#[test]
fn a_server_that_loads_answers() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let sockets = runtime.block_on(Sockets::bind("127.0.0.1:0")).expect("a free port");
    let sockets = runtime.block_on(sockets.with_monitoring("127.0.0.1:0")).expect("a free port");
    let address = sockets.address().expect("an address");
    let monitoring = sockets.monitoring_address().expect("an address").expect("it was asked for");
    let loading = {
        let _within = runtime.enter();
        sockets.answer_while_loading()
    };
    for (address, path) in [(address, "/health"), (address, "/ready"), (monitoring, "/ready")] {
        assert_eq!(get(address, path), (503, json!({"status": "loading"})), "{path}");
    }
    let body = "x".repeat(100_000);
    let request = format!("POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let refused = asked(address, &request);
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("\"loading\""), "{refused}");
    let head = refused.to_lowercase();
    assert!(head.contains("retry-after: 1\r\n") && head.contains("connection: close\r\n"), "{refused}");

    drop(loading);
    let server = Server::new(sockets, vec![offered(engine(&model(), 1))], options());
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let running = runtime.spawn(server.run(async { drop(ended.await) }));
    for address in [address, monitoring] {
        assert_eq!(get(address, "/ready"), (200, json!({"status": "ok"})));
    }
    drop(end);
    runtime.block_on(running).expect("it ends");
    assert!(TcpStream::connect(address).is_err() && TcpStream::connect(monitoring).is_err());
}

fn wait_until(what: &str, ready: impl Fn() -> bool) {
    let start = Instant::now();
    while !ready() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what} does not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What runs at the end of a server continues, what only waits is refused, so that a load balancer sends it elsewhere.
#[test]
fn what_only_waits_is_refused_at_the_end() {
    let mut server = Running::new(engine(&model(), 1).with_queue(8), options());
    let mut running = server.begin(PATH, &json!({"prompt": "abc", "max_tokens": 900, "ignore_eos": true}));
    wait_until("the first request", || server.metric("gristmill_requests_running") == 1.0);
    let address = server.address;
    let ask = |body: Value| {
        let mut response = agent().post(format!("http://{address}{PATH}")).send(body.to_string()).expect("a reply");
        let retry = response.headers().get("retry-after").cloned();
        (response.status().as_u16(), retry, response.body_mut().read_to_string().expect("text"))
    };
    let short = json!({"prompt": "abc", "max_tokens": 2});
    let waiting = std::thread::scope(|scope| {
        let stream = scope.spawn(|| ask(json!({"prompt": "abc", "max_tokens": 2, "stream": true})));
        let whole: Vec<_> = (0..5).map(|_| scope.spawn(|| ask(short.clone()))).collect();
        wait_until("the queue", || server.metric("gristmill_requests") == 7.0);
        server.end();
        let whole: Vec<_> = whole.into_iter().map(|one| one.join().expect("a reply")).collect();
        // The head of a stream waits for its first token.
        whole.into_iter().chain([stream.join().expect("a reply")]).collect::<Vec<_>>()
    });
    for (status, retry, text) in waiting {
        assert_eq!((status, retry), (503, Some("1".parse().expect("a value"))), "{text}");
        assert!(text.contains("\"shutting_down\""), "{text}");
    }
    let mut text = String::new();
    running.read_to_string(&mut text).expect("the whole reply");
    assert!(text.trim_end().ends_with("data: [DONE]"), "{text}");
}

/// A request whose first text or choice runs continues with the others.
#[test]
fn a_started_request_completes() {
    let mut server = Running::new(engine(&model(), 1).with_queue(8), options());
    let address = server.address;
    let ask = |path: &'static str, body: Value| {
        let mut response = agent().post(format!("http://{address}{path}")).send(body.to_string()).expect("a reply");
        (response.status().as_u16(), response.body_mut().read_to_string().expect("text"))
    };
    let choices = json!({"prompt": "abc", "max_tokens": 200, "n": 4, "ignore_eos": true});
    std::thread::scope(|scope| {
        let several = scope.spawn(|| ask(PATH, choices));
        wait_until("the first choice", || server.metric("gristmill_requests_running") == 1.0);
        server.end();
        let (status, text) = several.join().expect("a reply");
        assert!(status == 200 && text.contains(r#""completion_tokens":800"#), "{status} {text}");
    });
}

/// After the signal the server continues for a time, in which load balancers see that it is not ready.
#[test]
fn a_server_drains() {
    let delay = Duration::from_millis(1_500);
    let mut server = Running::new(engine(&model(), 1), Options { drain_delay: delay, ..options() });
    let short = json!({"prompt": "abc", "max_tokens": 2});
    assert_eq!(server.get("/ready").status, 200);
    let start = Instant::now();
    server.end();
    wait_until("the end", || server.get("/ready").status == 503);
    assert_eq!(server.get("/ready").json(), json!({"status": "stopping"}));
    assert_eq!(get(server.monitoring, "/ready").0, 503);
    assert_eq!(server.get("/health").status, 200);
    assert_eq!(server.post(PATH, &short).status, 200);
    assert!(start.elapsed() < delay, "the machine is too slow for this test");
    let address = server.address;
    drop(server);
    assert!(start.elapsed() >= delay && TcpStream::connect(address).is_err());
}

/// A reply to a request whose body nobody read ends the connection, and announces that.
#[test]
fn unread_bodies_end_the_connection() {
    let server = Running::usual();
    let body = "x".repeat(300_000);
    for (line, headers, status) in [
        (format!("POST {PATH}"), "content-encoding: gzip\r\n", 415),
        (format!("POST {PATH}"), "origin: http://evil.example\r\n", 403),
        ("POST /nowhere".to_owned(), "", 404),
        ("POST /v1/models".to_owned(), "", 405),
        ("POST /v1/messages/nowhere".to_owned(), "", 404),
    ] {
        let head = format!("{line} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {}\r\n\r\n", body.len());
        let reply = server.raw(format!("{head}{body}").as_bytes());
        assert_eq!(reply.get(9..12), Some(&*status.to_string()), "{line}: {reply}");
        assert!(reply.to_lowercase().contains("\r\nconnection: close\r\n"), "{line}: {reply}");
        let chunked = format!("{line} HTTP/1.1\r\nhost: localhost\r\n{headers}transfer-encoding: chunked\r\n\r\n");
        let reply = server.raw(format!("{chunked}493e0\r\n{body}\r\n0\r\n\r\n").as_bytes());
        assert!(reply.to_lowercase().contains("\r\nconnection: close\r\n"), "{line}: {reply}");
    }
    // One whose body was read, or that had none, keeps the connection.
    let keeps = |request: &str| {
        let reply =
            server.raw(format!("{request}GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes());
        assert!(reply.matches("HTTP/1.1 ").count() == 2 && reply.matches("connection: close").count() == 1, "{reply}");
    };
    keeps(&format!("POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{{}}"));
    keeps("GET /nowhere HTTP/1.1\r\nhost: localhost\r\n\r\n");
}

#[test]
fn other_servers_questions() {
    let server = Running::new(engine(&model(), 3), options());
    let version = server.get("/version").json();
    assert_eq!(version, json!({"version": env!("CARGO_PKG_VERSION")}));
    let props = server.get("/props").json();
    assert_eq!((&props["total_slots"], &props["model_alias"]), (&json!(3), &json!("tiny")), "{props}");
    assert_eq!(props["default_generation_settings"]["n_ctx"], 1500);
    assert_eq!(props["modalities"], json!({"vision": false, "audio": false}));
    assert!(props["chat_template"].as_str().is_some_and(|text| text.contains("message")), "{props}");
    let busy = || {
        let slots = server.get("/slots").json();
        let slots = slots.as_array().expect("a list").clone();
        assert!(slots.len() == 3 && slots.iter().zip(0..).all(|(slot, id)| slot["id"] == id && slot["n_ctx"] == 1500));
        slots.iter().filter(|slot| slot["is_processing"] == true).count()
    };
    assert_eq!(busy(), 0);
    let running = server.begin(PATH, &json!({"prompt": "secret", "max_tokens": 1400, "ignore_eos": true}));
    wait_until("a busy slot", || busy() == 1);
    assert!(!server.get("/slots").text.contains("secret"));
    drop(running);
    wait_until("free slots", || busy() == 0);
}
