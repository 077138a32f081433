//! Measures a server with OpenAI's interface under load. Each client sends its next request when its last is answered;
//! prompts depend only on the seed, so that two servers are asked the same. One line of JSON says what was measured.
//!
//! load URL plain    [clients=8] [requests=4*clients] [prompt=64] [shared=0] [output=128] [seed=1]
//!     random token ids, of which the first `shared` are the same in all requests
//! load URL chats    [clients=16] [turns=6] [prompt=64] [output=64] [seed=1]
//!     conversations that grow by a question of `prompt` words and the answer
//! load URL arrivals [clients=8] [requests=8] [prompt=1800] [output=256] [seed=1]
//!     `clients` streams, while `requests` prompts of `prompt` tokens come one after the other
//! load URL schema   [clients=8] [requests=4*clients] [output=128] [seed=1]
//!     chats whose answer must follow a JSON schema; `schema=0` asks the same without it
//!
//! Tokens are those of the server's `usage`. `first_ms` is the time to the first piece of an answer, `between_ms` that
//! between two pieces, each as median and 99th percentile.

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response, Uri, header};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

type Failure = Box<dyn std::error::Error>;

/// Measurements of all requests of a run.
#[derive(Default)]
struct Figures {
    answers: usize,
    prompt_tokens: u64,
    cached_tokens: u64,
    completion_tokens: u64,
    first: Vec<Duration>,
    between: Vec<Duration>,
    /// Finished answers that are not the JSON that was requested.
    invalid: usize,
}

/// Settings of a run, `name=value`, and those that no workload has read.
struct Settings(RefCell<HashMap<String, u64>>);

impl Settings {
    fn read(words: &[String]) -> Result<Self, Failure> {
        let pair = |word: &String| {
            let (name, value) = word.split_once('=').ok_or_else(|| format!("{word}: expected name=value"))?;
            let value = value.parse().map_err(|_| format!("{word}: expected a number"))?;
            Ok::<_, Failure>((name.to_owned(), value))
        };
        Ok(Self(RefCell::new(words.iter().map(pair).collect::<Result<_, _>>()?)))
    }

    fn take(&self, name: &str, default: usize) -> usize {
        self.0.borrow_mut().remove(name).map_or(default, |value| usize::try_from(value).unwrap_or(usize::MAX))
    }

    fn finish(&self) -> Result<(), Failure> {
        match self.0.borrow().keys().next() {
            Some(name) => Err(format!("{name}: this workload has no such setting").into()),
            None => Ok(()),
        }
    }
}

/// Random numbers that are the same everywhere: a step of the 64-bit generator `splitmix64`.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    /// Ids that every vocabulary of 30,000 has, without special tokens at its start.
    fn tokens(&mut self, count: usize) -> Vec<u64> {
        (0..count).map(|_| 1000 + self.below(29_000)).collect()
    }

    fn words(&mut self, count: usize) -> String {
        const WORDS: [&str; 16] = [
            "river", "stone", "the", "mill", "turns", "and", "wheat", "is", "ground", "by", "old", "wheels", "in",
            "rain", "of", "spring",
        ];
        (0..count).map(|_| WORDS[self.below(16) as usize]).collect::<Vec<_>>().join(" ")
    }
}

/// The start of requests to a server.
#[derive(Clone)]
struct Server {
    authority: String,
    model: String,
    figures: Rc<RefCell<Figures>>,
}

/// A connection, which requests take in turn.
struct Client {
    server: Server,
    sender: SendRequest<Full<Bytes>>,
}

impl Server {
    async fn connect(&self) -> Result<Client, Failure> {
        let stream = TcpStream::connect(&self.authority).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::task::spawn_local(connection);
        Ok(Client { server: self.clone(), sender })
    }
}

impl Client {
    /// Sends a request, on a new connection if the server has closed this one after an earlier answer.
    async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Failure> {
        let again = request.clone();
        if self.sender.ready().await.is_ok()
            && let Ok(response) = self.sender.send_request(request).await
        {
            return Ok(response);
        }
        *self = self.server.connect().await?;
        Ok(self.sender.send_request(again).await?)
    }

    /// Streams one answer and adds what it measures, unless it is only an interruption of others.
    async fn ask(&mut self, path: &str, mut body: Value, counts: bool) -> Result<String, Failure> {
        body["model"] = json!(self.server.model);
        body["stream"] = json!(true);
        body["stream_options"] = json!({"include_usage": true});
        body["temperature"] = json!(0);
        let request = Request::post(path)
            .header(header::HOST, &self.server.authority)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body.to_string())))?;
        let begin = Instant::now();
        let mut response = self.send(request).await?;
        if !response.status().is_success() {
            let text = response.collect().await?.to_bytes();
            return Err(format!("{path}: {}", String::from_utf8_lossy(&text)).into());
        }

        let (mut text, mut rest, mut times, mut usage) = (String::new(), Vec::new(), Vec::new(), Value::Null);
        while let Some(frame) = response.frame().await {
            let frame = frame?;
            let Some(data) = frame.data_ref() else { continue };
            rest.extend_from_slice(data);
            while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                let Some(event) = line.strip_prefix(b"data: ").filter(|event| !event.starts_with(b"[DONE]")) else {
                    continue;
                };
                let event: Value = serde_json::from_slice(event)?;
                if let Some(error) = event.get("error") {
                    return Err(format!("{path}: {error}").into());
                }
                let choice = &event["choices"][0];
                let piece = choice["text"].as_str().or_else(|| choice["delta"]["content"].as_str()).unwrap_or_default();
                if !piece.is_empty() {
                    times.push(Instant::now());
                    text += piece;
                }
                if event["usage"].is_object() {
                    usage = event["usage"].clone();
                }
            }
        }
        let number = |value: &Value| value.as_u64().unwrap_or_default();
        let figures = &mut *self.server.figures.borrow_mut();
        figures.prompt_tokens += number(&usage["prompt_tokens"]);
        figures.cached_tokens += number(&usage["prompt_tokens_details"]["cached_tokens"]);
        figures.completion_tokens += number(&usage["completion_tokens"]);
        if counts {
            figures.answers += 1;
            figures.first.extend(times.first().map(|&first| first - begin));
            figures.between.extend(times.windows(2).map(|pair| pair[1] - pair[0]));
        }
        Ok(text)
    }
}

/// Does something on this number of connections at once, each with its number.
async fn clients<W: Future<Output = Result<(), Failure>> + 'static>(
    server: &Server,
    count: usize,
    work: impl Fn(usize, Client) -> W,
) -> Result<(), Failure> {
    let mut running = Vec::new();
    for number in 0..count {
        running.push(tokio::task::spawn_local(work(number, server.connect().await?)));
    }
    for one in running {
        one.await??;
    }
    Ok(())
}

fn completion(prompt: &[u64], output: usize) -> Value {
    json!({"prompt": prompt, "max_tokens": output, "ignore_eos": true})
}

async fn plain(server: &Server, settings: &Settings) -> Result<(), Failure> {
    let count = settings.take("clients", 8);
    let requests = settings.take("requests", 4 * count);
    let (prompt, shared) = (settings.take("prompt", 64), settings.take("shared", 0));
    let (output, seed) = (settings.take("output", 128), settings.take("seed", 1) as u64);
    settings.finish()?;
    let start = Random(seed).tokens(shared);
    clients(server, count, |number, mut client| {
        let start = start.clone();
        async move {
            for request in (number..requests).step_by(count) {
                let own = Random(seed ^ ((request as u64 + 1) << 20)).tokens(prompt);
                let prompt = [&start[..], &own[..]].concat();
                client.ask("/v1/completions", completion(&prompt, output), true).await?;
            }
            Ok(())
        }
    })
    .await
}

async fn chats(server: &Server, settings: &Settings) -> Result<(), Failure> {
    let (count, turns) = (settings.take("clients", 16), settings.take("turns", 6));
    let (prompt, output) = (settings.take("prompt", 64), settings.take("output", 64));
    let seed = settings.take("seed", 1) as u64;
    settings.finish()?;
    clients(server, count, |number, mut client| async move {
        let mut random = Random(seed ^ ((number as u64 + 1) << 20));
        let mut messages = Vec::new();
        for _ in 0..turns {
            messages.push(json!({"role": "user", "content": random.words(prompt)}));
            let body = json!({"messages": messages, "max_tokens": output, "ignore_eos": true});
            let answer = client.ask("/v1/chat/completions", body, true).await?;
            messages.push(json!({"role": "assistant", "content": answer}));
        }
        Ok(())
    })
    .await
}

async fn arrivals(server: &Server, settings: &Settings) -> Result<(), Failure> {
    let (count, requests) = (settings.take("clients", 8), settings.take("requests", 8));
    let (prompt, output) = (settings.take("prompt", 1800), settings.take("output", 256));
    let seed = settings.take("seed", 1) as u64;
    settings.finish()?;
    // The last connection sends the prompts.
    clients(server, count + 1, |number, mut client| async move {
        let mut random = Random(seed ^ ((number as u64 + 1) << 20));
        if number < count {
            client.ask("/v1/completions", completion(&random.tokens(64), output), true).await?;
            return Ok(());
        }
        for _ in 0..requests {
            client.ask("/v1/completions", completion(&random.tokens(prompt), 1), false).await?;
        }
        Ok(())
    })
    .await
}

async fn schema(server: &Server, settings: &Settings) -> Result<(), Failure> {
    let count = settings.take("clients", 8);
    let requests = settings.take("requests", 4 * count);
    let (output, on) = (settings.take("output", 128), settings.take("schema", 1) != 0);
    let seed = settings.take("seed", 1) as u64;
    settings.finish()?;
    let schema = json!({
        "type": "object",
        "properties": {
            "title": {"type": "string", "maxLength": 60},
            "kind": {"enum": ["tool", "place", "person"]},
            "scores": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 100}, "maxItems": 8},
            "open": {"type": "boolean"}
        },
        "required": ["title", "kind", "scores", "open"],
        "additionalProperties": false
    });
    let format = json!({"type": "json_schema", "json_schema": {"name": "item", "strict": true, "schema": schema}});
    clients(server, count, |number, mut client| {
        let format = format.clone();
        async move {
            for request in (number..requests).step_by(count) {
                let question = Random(seed ^ ((request as u64 + 1) << 20)).words(32);
                let mut body = json!({"messages": [{"role": "user", "content": question}], "max_tokens": output});
                body[if on { "response_format" } else { "ignore_eos" }] = if on { format.clone() } else { json!(true) };
                let answer = client.ask("/v1/chat/completions", body, true).await?;
                let valid = serde_json::from_str::<Value>(&answer).is_ok_and(|answer| answer["kind"].is_string());
                client.server.figures.borrow_mut().invalid += usize::from(on && !valid);
            }
            Ok(())
        }
    })
    .await
}

/// Median and 99th percentile in milliseconds.
fn percentiles(times: &mut [Duration]) -> [f64; 2] {
    times.sort_unstable();
    [50, 99].map(|percent| times.get(times.len() * percent / 100).map_or(0.0, |time| time.as_secs_f64() * 1e3))
}

/// Seconds that this process computed, where the system says so in `/proc`.
fn own_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
    // In hundredths of a second: in user mode and in the kernel.
    Some((fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?) / 100.0)
}

async fn run(words: &[String]) -> Result<String, Failure> {
    let [url, workload, settings @ ..] = words else { return Err("usage: load URL WORKLOAD [name=value ...]".into()) };
    let authority = url.parse::<Uri>()?.authority().ok_or("the URL has no host")?.to_string();
    let settings = Settings::read(settings)?;
    let mut server = Server { authority, model: String::new(), figures: Rc::default() };
    let mut client = server.connect().await?;
    let request = Request::get("/v1/models").header(header::HOST, &server.authority).body(Full::default())?;
    let models = client.sender.send_request(request).await?.collect().await?.to_bytes();
    let models: Value = serde_json::from_slice(&models)?;
    server.model = models["data"][0]["id"].as_str().ok_or("the server has no model")?.to_owned();

    let begin = Instant::now();
    match workload.as_str() {
        "plain" => plain(&server, &settings).await?,
        "chats" => chats(&server, &settings).await?,
        "arrivals" => arrivals(&server, &settings).await?,
        "schema" => schema(&server, &settings).await?,
        other => return Err(format!("{other}: the workloads are plain, chats, arrivals and schema").into()),
    }
    let seconds = begin.elapsed().as_secs_f64();
    let figures = &mut *server.figures.borrow_mut();
    let line = json!({
        "workload": workload,
        "seconds": seconds,
        "answers": figures.answers,
        "prompt_tokens": figures.prompt_tokens,
        "cached_tokens": figures.cached_tokens,
        "completion_tokens": figures.completion_tokens,
        "tokens_per_second": figures.completion_tokens as f64 / seconds,
        "first_ms": percentiles(&mut figures.first),
        "between_ms": percentiles(&mut figures.between),
        "invalid": figures.invalid,
        "own_share": own_seconds().map(|own| own / seconds),
    });
    Ok(line.to_string())
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    println!("{}", LocalSet::new().block_on(&runtime, run(&words))?);
    Ok(())
}
