//! A running server and a client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use gristmill_engine::{Engine, Limits, LoadOptions, Model, SamplingOptions};
use gristmill_files::gguf::GgufFile;
use gristmill_server::{Keys, LoadedModel, OfferedModel, Options, Server, Sockets};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::speech;
use crate::tiny::{Random, Tiny};

/// Tokens of a context.
pub(crate) const CONTEXT: usize = 1500;

/// A model of fresh random weights.
pub(crate) fn model() -> Arc<Model> {
    changed_model(|_| ())
}

/// A model whose file is changed.
pub(crate) fn changed_model(change: impl FnOnce(&mut Tiny)) -> Arc<Model> {
    let mut tiny = Tiny::llama();
    speech::teach(&mut tiny);
    change(&mut tiny);
    built(&tiny)
}

/// A model of another architecture, that can speak.
pub(crate) fn model_of(mut tiny: Tiny) -> Arc<Model> {
    speech::teach(&mut tiny);
    built(&tiny)
}

/// A model with the tiny tower of LFM2-VL: patches of 4 pixels, 8 × 8 pixels for a token, 64 to 256 tokens.
pub(crate) fn seeing_model() -> Arc<Model> {
    let mut tiny = Tiny::qwen3();
    speech::teach_images(&mut tiny);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/golden/vision/lfm2-vl-f32.mmproj.gguf");
    let tower = GgufFile::open(path).expect("the tower");
    Arc::new(loaded(&tiny).with_tower(tower).expect("a tower of this model"))
}

fn built(tiny: &Tiny) -> Arc<Model> {
    Arc::new(loaded(tiny))
}

fn loaded(tiny: &Tiny) -> Model {
    let options = LoadOptions { device: "cpu".to_owned(), threads: Some(2), ..LoadOptions::default() };
    Model::from_file(tiny.file(&mut Random::fresh()), options).expect("a good model")
}

pub(crate) fn engine(model: &Arc<Model>, sequences: usize) -> Engine {
    engine_with(model, sequences, CONTEXT)
}

/// An engine with a context of this number of tokens.
pub(crate) fn engine_with(model: &Arc<Model>, sequences: usize, context: usize) -> Engine {
    let limits = Limits { context: Some(context), sequences, batch_tokens: 64, ..Limits::default() };
    Engine::start(model.clone(), limits).expect("it fits")
}

pub(crate) fn options() -> Options {
    Options { patience: Duration::from_secs(5), ..Options::default() }
}

/// The usual defaults of requests.
pub(crate) fn sampling() -> SamplingOptions {
    SamplingOptions { temperature: 1.0, ..SamplingOptions::default() }
}

/// The model of an engine, by the name of all tests.
pub(crate) fn offered(engine: impl Into<Arc<Engine>>) -> OfferedModel {
    OfferedModel::loaded("tiny", LoadedModel { sampling: sampling(), ..LoadedModel::from(engine) })
}

/// A server on a thread of its own; dropping it ends it and waits for it.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) keys: Keys,
    /// The address for monitoring.
    pub(crate) monitoring: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn new(engine: Engine, options: Options) -> Running {
        Running::of(vec![offered(engine)], options)
    }

    pub(crate) fn of(models: Vec<OfferedModel>, options: Options) -> Running {
        let (end, ended) = oneshot::channel::<()>();
        let (told, address) = std::sync::mpsc::channel();
        let serve = async move {
            let sockets = Sockets::bind("127.0.0.1:0").await.expect("a free port");
            let sockets = sockets.with_monitoring("127.0.0.1:0").await.expect("a free port");
            let server = Server::new(sockets, models, options);
            let monitoring = server.monitoring_address().expect("an address").expect("it was asked for");
            told.send((server.address().expect("an address"), server.keys(), monitoring)).expect("the test waits");
            server.run(async { drop(ended.await) }).await;
        };
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
            runtime.expect("a runtime").block_on(serve);
        });
        let (address, keys, monitoring) = address.recv().expect("it listens");
        Running { address, keys, monitoring, end: Some(end), thread: Some(thread) }
    }

    /// With four sequences and the usual settings.
    pub(crate) fn usual() -> Running {
        Running::new(engine(&model(), 4), options())
    }

    /// Ends the server; running replies continue.
    pub(crate) fn end(&mut self) {
        self.end = None;
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.get_with(path, &[])
    }

    pub(crate) fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Reply {
        let request = agent().get(self.url(path));
        Reply::of(headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)).call())
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        self.post_text(path, &body.to_string(), &[])
    }

    pub(crate) fn post_text(&self, path: &str, body: &str, headers: &[(&str, &str)]) -> Reply {
        let mut request = agent().post(self.url(path)).header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Reply::of(request.send(body))
    }

    /// The reply to a good request.
    pub(crate) fn ask(&self, path: &str, body: &Value) -> Value {
        let reply = self.post(path, body);
        assert_eq!(reply.status, 200, "{body}: {}", reply.text);
        reply.json()
    }

    /// The data of the events that a good request gives; JSON but for `[DONE]`, which is a string.
    pub(crate) fn events(&self, path: &str, body: &Value) -> Vec<Value> {
        let mut body = body.clone();
        body["stream"] = json!(true);
        let reply = self.post(path, &body);
        assert_eq!(reply.status, 200, "{body}: {}", reply.text);
        let data = reply.text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|data| serde_json::from_str(data).unwrap_or_else(|_| json!(data))).collect()
    }

    /// Starts a reply in events and reads its first line.
    pub(crate) fn begin(&self, path: &str, body: &Value) -> BufReader<impl Read + use<>> {
        let mut body = body.clone();
        body["stream"] = json!(true);
        let response = agent().post(self.url(path)).send(body.to_string()).expect("it listens");
        assert_eq!(response.status(), 200);
        let mut reader = BufReader::new(response.into_body().into_reader());
        reader.read_line(&mut String::new()).expect("a line");
        reader
    }

    /// A connection that has sent these bytes.
    pub(crate) fn connect(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
        // The server may refuse before it has read everything.
        let _ = stream.write_all(bytes);
        stream
    }

    /// The reply of the server to these bytes, until it closes the connection.
    pub(crate) fn raw(&self, bytes: &[u8]) -> String {
        rest(self.connect(bytes))
    }

    /// The start of what the server replies to these bytes.
    pub(crate) fn raw_head(&self, bytes: &[u8]) -> String {
        let mut head = [0; 12];
        // Less is a failure of the test.
        let _ = self.connect(bytes).read_exact(&mut head);
        String::from_utf8_lossy(&head).into_owned()
    }

    /// A figure of `/metrics`.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = without_model(&self.get("/metrics").text);
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        line.unwrap_or_else(|| panic!("{name} in {text}"))
    }

    /// How many requests have ended so.
    pub(crate) fn ended(&self, outcome: &str) -> f64 {
        self.metric(&format!("gristmill_ended_requests_total{{outcome=\"{outcome}\"}}"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !thread::panicking()
        {
            panic!("the server panicked");
        }
    }
}

/// The text of `/metrics` without the label of the model.
pub(crate) fn without_model(metrics: &str) -> String {
    ["{model=\"tiny\"}", "model=\"tiny\",", ",model=\"tiny\""]
        .iter()
        .fold(metrics.to_owned(), |text, label| text.replace(label, ""))
}

/// All that a server sends until it closes a connection.
pub(crate) fn rest(mut stream: TcpStream) -> String {
    let (mut reply, mut part) = (Vec::new(), [0; 4096]);
    while let Ok(n @ 1..) = stream.read(&mut part) {
        reply.extend_from_slice(&part[..n]);
    }
    String::from_utf8_lossy(&reply).into_owned()
}

/// One connection for each request, so that a server ends without waiting for idle ones.
pub(crate) fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder().http_status_as_error(false).max_idle_connections(0);
    config.timeout_global(Some(Duration::from_secs(60))).build().into()
}

pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: ureq::http::HeaderMap,
    pub(crate) text: String,
}

impl Reply {
    fn of(response: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Reply {
        let mut response = response.expect("the server replies");
        let text = response.body_mut().read_to_string().expect("text");
        Reply { status: response.status().as_u16(), headers: response.headers().clone(), text }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}
