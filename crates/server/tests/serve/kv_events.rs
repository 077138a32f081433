//! Events of the prefix cache over ZeroMQ.

use std::net::TcpListener;
use std::time::Duration;

use axum::body::Bytes;
use gristmill_server::{KvEvents, LoadedModel, OfferedModel, Options};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::time::timeout;
use zeromq::{DealerSocket, Socket, SocketRecv, SocketSend, SubSocket, ZmqMessage};

use crate::server::{Running, engine, model, offered, options};

/// A message: its topic, number and payload.
struct Message {
    topic: String,
    number: i64,
    payload: Vec<u8>,
}

impl Message {
    fn new(topic: &[u8], number: &[u8], payload: &[u8]) -> Message {
        let number = i64::from_be_bytes(number.try_into().expect("eight bytes"));
        let topic = String::from_utf8(topic.to_vec()).expect("text");
        Message { topic, number, payload: payload.to_vec() }
    }

    fn events(&self) -> Vec<Value> {
        let (time, events, rank): (f64, Vec<Value>, u32) = rmp_serde::from_slice(&self.payload).expect("a batch");
        assert!(time > 1.6e9 && rank == 0, "{time} {rank}");
        events
    }
}

fn free() -> String {
    let socket = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port");
    format!("tcp://{socket}")
}

/// The messages from a number on that the server has kept.
async fn replayed(address: &str, from: u64) -> Vec<Message> {
    let mut socket = DealerSocket::new();
    socket.connect(address).await.expect("it listens");
    let request: Vec<Bytes> = vec![Bytes::new(), Bytes::copy_from_slice(&from.to_be_bytes())];
    socket.send(ZmqMessage::try_from(request).expect("frames")).await.expect("it is sent");
    let mut messages = Vec::new();
    loop {
        let frames = timeout(Duration::from_secs(20), socket.recv()).await.expect("in time").expect("a message");
        let frames = frames.into_vec();
        let [empty, number, payload] = frames.as_slice() else { panic!("{frames:?}") };
        assert!(empty.is_empty());
        let message = Message::new(b"", number, payload);
        if message.number == -1 {
            assert!(payload.is_empty());
            return messages;
        }
        messages.push(message);
    }
}

/// All events so far, of which there are at least so many.
fn all(runtime: &Runtime, address: &str, least: usize) -> Vec<Value> {
    for _ in 0..200 {
        let messages = runtime.block_on(replayed(address, 0));
        assert!(messages.iter().map(|message| message.number).eq(0..messages.len() as i64));
        let events: Vec<Value> = messages.iter().flat_map(Message::events).collect();
        if events.len() >= least {
            return events;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("there are fewer than {least} events");
}

fn published() -> (Runtime, KvEvents, [String; 2]) {
    let runtime = Runtime::new().expect("a runtime");
    let addresses = [free(), free()];
    let bound = runtime.block_on(KvEvents::bind(&addresses[0], Some(&addresses[1])));
    (runtime, bound.expect("free ports"), addresses)
}

#[test]
fn blocks_are_announced_with_their_tokens() {
    let (runtime, kv_events, [live, replay]) = published();
    let options = Options { kv_events: Some(kv_events), ..options() };
    let server = Running::of(vec![offered(engine(&model(), 2))], options);
    let prompt: Vec<u32> = (0..40).map(|token| token % 7 + 97).collect();
    let body = json!({"prompt": prompt, "max_tokens": 1, "ignore_eos": true});
    server.ask("/v1/completions", &body);
    let events = all(&runtime, &replay, 3);
    assert_eq!(events[0], json!({"type": "AllBlocksCleared"}));
    let (mut parent, mut hashes) = (Value::Null, Vec::new());
    for (event, tokens) in events[1..].iter().zip(prompt.chunks_exact(16)) {
        let hash = event["block_hashes"][0].clone();
        let expected = json!({
            "type": "BlockStored", "block_hashes": [hash], "parent_block_hash": parent, "token_ids": tokens,
            "block_size": 16, "lora_id": null, "medium": "GPU", "lora_name": null,
        });
        assert_eq!(*event, expected);
        assert!(hash.is_u64() && !hashes.contains(&hash), "{hash}");
        (parent, hashes) = (hash.clone(), [hashes, vec![hash]].concat());
    }
    // Only whole blocks have events, and known ones have no further event.
    assert_eq!(events.len(), 3, "{events:?}");
    server.ask("/v1/completions", &body);
    assert_eq!(server.post("/flush_cache", &json!({})).status, 200);
    let events = all(&runtime, &replay, 5);
    let mut removed: Vec<Value> = events[3..]
        .iter()
        .map(|event| {
            assert_eq!((&event["type"], &event["medium"]), (&json!("BlockRemoved"), &json!("GPU")), "{event}");
            event["block_hashes"][0].clone()
        })
        .collect();
    removed.sort_by_key(|hash| hashes.iter().position(|known| known == hash));
    assert_eq!(removed, hashes);
    // A subscriber gets what comes later, by the name of the model; the hashes of the same tokens are the same.
    let message = runtime.block_on(async {
        let mut socket = SubSocket::new();
        socket.connect(&live).await.expect("it listens");
        socket.subscribe("tiny").await.expect("it subscribes");
        tokio::time::sleep(Duration::from_millis(500)).await;
        tokio::task::block_in_place(|| server.ask("/v1/completions", &body));
        let frames = timeout(Duration::from_secs(20), socket.recv()).await.expect("in time").expect("a message");
        let frames = frames.into_vec();
        Message::new(&frames[0], &frames[1], &frames[2])
    });
    assert_eq!((message.topic.as_str(), &message.events()[0]["block_hashes"][0]), ("tiny", &hashes[0]));
    let from = message.number as u64;
    assert!(runtime.block_on(replayed(&replay, from)).first().is_some_and(|first| first.number == message.number));
}

/// A model that is unloaded has no blocks.
#[test]
fn an_unloaded_model_has_no_blocks() {
    let (runtime, kv_events, [_, replay]) = published();
    let (idle, model) = (Some(Duration::from_millis(100)), model());
    let offered = OfferedModel::on_demand("a", move |_| Ok(LoadedModel::from(engine(&model, 1))));
    let server = Running::of(vec![offered], Options { kv_events: Some(kv_events), idle, ..options() });
    server.ask("/v1/completions", &json!({"prompt": vec![97; 32], "max_tokens": 1, "ignore_eos": true}));
    let events = all(&runtime, &replay, 4);
    let stored: Vec<&Value> = events[1..3].iter().map(|event| &event["block_hashes"][0]).collect();
    assert_eq!(events[3]["type"], "BlockRemoved");
    let removed = events[3]["block_hashes"].as_array().expect("a list");
    assert!(removed.len() == 2 && stored.iter().all(|hash| removed.contains(hash)), "{events:?}");
}

#[test]
fn a_taken_port_is_refused() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("tcp://{}", taken.local_addr().expect("an address"));
    let runtime = Runtime::new().expect("a runtime");
    for address in [address.as_str(), "udp://127.0.0.1:1", "nonsense"] {
        let error = runtime.block_on(KvEvents::bind(address, None)).expect_err("refused").to_string();
        assert!(error.contains(address) && error.contains("tcp://ADDRESS:PORT"), "{error}");
    }
}
