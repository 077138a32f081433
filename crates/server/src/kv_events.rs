//! Events of the prefix caches over ZeroMQ, in vLLM's format, for routers that choose the server with a prompt's prefix.
//!
//! A message of the PUB socket has three frames: the name of the model, a number that counts from 0 (8 bytes, big
//! endian), and `[time, [event, …], 0]` in MessagePack. Events are maps. A client of the ROUTER socket sends the number
//! of the first message that it lacks; it gets these messages, then the number -1 with an empty frame.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use gristmill_engine::EngineError;
use gristmill_engine::{Engine, KV_BLOCK, KvEvent, KvListener, KvParent};
use serde::Serialize;
use sha2::{Digest, Sha256};
use thiserror::Error;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use zeromq::{PubSocket, RouterSocket, Socket, SocketRecv, SocketSend, ZmqError, ZmqMessage};

/// Messages that are kept for clients that lack some.
const KEPT: usize = 10_000;
/// The most events of a message.
const EVENTS: usize = 256;
/// The number after the last message of a replay: -1.
const END: [u8; 8] = [0xff; 8];

/// Publishes the changes of prefix caches. The sockets are closed when the last clone is dropped.
#[derive(Clone)]
pub struct KvEvents(UnboundedSender<Change>);

/// Why events are not published.
#[derive(Debug, Error)]
#[error("cannot listen on {address}: {error}; use tcp://ADDRESS:PORT with a free port")]
pub struct KvEventsError {
    address: String,
    error: ZmqError,
}

/// An event of a model.
struct Change {
    model: String,
    event: Event,
}

/// An event as vLLM's routers read it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type")]
enum Event {
    BlockStored {
        block_hashes: [u64; 1],
        parent_block_hash: Option<u64>,
        token_ids: Box<[u32]>,
        block_size: usize,
        lora_id: Option<u64>,
        medium: &'static str,
        lora_name: Option<&'static str>,
    },
    BlockRemoved {
        block_hashes: Vec<u64>,
        medium: &'static str,
    },
    AllBlocksCleared {},
}

/// The tier of blocks that requests use without a copy, as vLLM calls it on every device.
const MEDIUM: &str = "GPU";

impl KvEvents {
    /// Publishes on this address, such as `tcp://127.0.0.1:5557`, and replays on another. Must be called within a runtime
    /// of tokio.
    ///
    /// # Errors
    /// [`KvEventsError`] names the address.
    pub async fn bind(address: &str, replay: Option<&str>) -> Result<KvEvents, KvEventsError> {
        let failed = |address: &str| {
            let address = address.to_owned();
            move |error| KvEventsError { address, error }
        };
        let mut publisher = PubSocket::new();
        publisher.bind(address).await.map_err(failed(address))?;
        let mut replayer = None;
        if let Some(address) = replay {
            let mut socket = RouterSocket::new();
            socket.bind(address).await.map_err(failed(address))?;
            replayer = Some(socket);
        }
        let (send, changes) = mpsc::unbounded_channel();
        tokio::spawn(run(publisher, replayer, changes));
        Ok(KvEvents(send))
    }

    /// Publishes the changes of an engine's prefix cache from now on.
    pub(crate) fn listen(&self, model: &str, engine: &Engine) -> Result<(), EngineError> {
        let mut blocks = Blocks { model: model.to_owned(), send: self.0.clone(), hashes: HashMap::new() };
        engine.listen(KvListener::new(move |event| blocks.take(event)))
    }
}

impl fmt::Debug for KvEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KvEvents")
    }
}

/// The blocks of an engine's prefix cache, with their hashes. When it is dropped with its engine, all are removed.
struct Blocks {
    model: String,
    send: UnboundedSender<Change>,
    hashes: HashMap<u64, u64>,
}

impl Blocks {
    fn take(&mut self, event: KvEvent) {
        match event {
            KvEvent::Stored { block, parent, tokens } => {
                let parent_block_hash = match parent {
                    KvParent::Tenant(_) => None,
                    // The parent was stored before the listener was there.
                    KvParent::Block(parent) => match self.hashes.get(&parent) {
                        Some(hash) => Some(*hash),
                        None => return,
                    },
                };
                let hash = hash(parent, parent_block_hash, &tokens);
                self.hashes.insert(block, hash);
                self.send(Event::BlockStored {
                    block_hashes: [hash],
                    parent_block_hash,
                    token_ids: tokens,
                    block_size: KV_BLOCK,
                    lora_id: None,
                    medium: MEDIUM,
                    lora_name: None,
                });
            }
            KvEvent::Removed { block } => {
                if let Some(hash) = self.hashes.remove(&block) {
                    self.send(Event::BlockRemoved { block_hashes: vec![hash], medium: MEDIUM });
                }
            }
        }
    }

    fn send(&self, event: Event) {
        // Nobody is there when the server has ended.
        let _ = self.send.send(Change { model: self.model.clone(), event });
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        let block_hashes: Vec<u64> = std::mem::take(&mut self.hashes).into_values().collect();
        if !block_hashes.is_empty() {
            self.send(Event::BlockRemoved { block_hashes, medium: MEDIUM });
        }
    }
}

/// The hash of a block: of all tokens from the start of the text, and of the tenant. Servers agree on it.
fn hash(parent: KvParent, parent_hash: Option<u64>, tokens: &[u32]) -> u64 {
    let mut digest = Sha256::new();
    if let KvParent::Tenant(tenant) = parent {
        digest.update(tenant.to_be_bytes());
    }
    digest.update(parent_hash.unwrap_or_default().to_be_bytes());
    tokens.iter().for_each(|token| digest.update(token.to_be_bytes()));
    digest.finalize().iter().take(8).fold(0, |hash, &byte| hash << 8 | u64::from(byte))
}

/// Publishes changes until nobody can send any.
async fn run(mut publisher: PubSocket, mut replayer: Option<RouterSocket>, mut changes: UnboundedReceiver<Change>) {
    let mut sent = Sent::default();
    // What subscribers have of an earlier server with this address.
    publish(&mut publisher, sent.message("", &[Event::AllBlocksCleared {}])).await;
    let mut batch = Vec::new();
    loop {
        tokio::select! {
            received = changes.recv_many(&mut batch, EVENTS) => {
                if received == 0 {
                    return;
                }
                for same in batch.chunk_by(|one, other| one.model == other.model) {
                    let events: Vec<&Event> = same.iter().map(|change| &change.event).collect();
                    publish(&mut publisher, sent.message(&same[0].model, &events)).await;
                }
                batch.clear();
            }
            request = asked(&mut replayer) => {
                if let Some(replayer) = &mut replayer {
                    replay(replayer, request, &sent).await;
                }
            }
        }
    }
}

/// The next request for a replay; never without a socket.
async fn asked(replayer: &mut Option<RouterSocket>) -> Option<ZmqMessage> {
    match replayer {
        Some(replayer) => replayer.recv().await.ok(),
        None => std::future::pending().await,
    }
}

async fn publish(publisher: &mut PubSocket, message: ZmqMessage) {
    if let Err(error) = publisher.send(message).await {
        tracing::warn!(%error, "an event of the KV cache was not published");
    }
}

/// Sends the messages that a client lacks. Its request is its identity, an empty frame and a number.
async fn replay(replayer: &mut RouterSocket, request: Option<ZmqMessage>, sent: &Sent) {
    let Some(frames) = request.map(ZmqMessage::into_vec) else { return };
    let [identity, empty, first] = frames.as_slice() else { return };
    let Ok(first) = <[u8; 8]>::try_from(first.as_ref()) else { return };
    let first = u64::from_be_bytes(first);
    let kept = sent.kept.iter().filter(|(number, _)| *number >= first);
    let kept = kept.map(|(number, payload)| (Bytes::copy_from_slice(&number.to_be_bytes()), payload.clone()));
    for (number, payload) in kept.chain([(Bytes::from_static(&END), Bytes::new())]) {
        let frames = vec![identity.clone(), empty.clone(), number, payload];
        let Ok(message) = ZmqMessage::try_from(frames) else { return };
        if replayer.send(message).await.is_err() {
            // The client has gone away.
            return;
        }
    }
}

/// Messages that were sent.
#[derive(Default)]
struct Sent {
    next: u64,
    /// The newest ones: number and payload.
    kept: VecDeque<(u64, Bytes)>,
}

impl Sent {
    /// The message with these events.
    fn message(&mut self, model: &str, events: &[impl Serialize]) -> ZmqMessage {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
        // Numbers, texts and lists can be written.
        let payload = Bytes::from(rmp_serde::to_vec_named(&(time, events, 0)).unwrap_or_default());
        let number = self.next;
        self.next += 1;
        self.kept.push_back((number, payload.clone()));
        if self.kept.len() > KEPT {
            self.kept.pop_front();
        }
        let mut message = ZmqMessage::from(payload);
        message.push_front(Bytes::copy_from_slice(&number.to_be_bytes()));
        message.push_front(Bytes::copy_from_slice(model.as_bytes()));
        message
    }
}
