//! A model that serves requests through the server's router, without a port.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode, header};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use gristmill_engine::tokenizer::{EncodeOptions, Tokenizer};
use gristmill_server::{OfferedModel, Options, router};
use http_body_util::BodyExt;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt;

use crate::failure::Failure;
use crate::open::{OpenOptions, open};

/// The name of the model. A request need not have it.
const MODEL: &str = "model";

/// Threads of the router, which waits most of the time.
const THREADS: usize = 2;

/// A model, its router and the threads of the router.
#[derive(Debug)]
pub(crate) struct Engine {
    engine: Arc<gristmill_engine::Engine>,
    router: Router,
    runtime: Runtime,
}

/// Vectors of texts.
pub(crate) struct Vectors {
    pub(crate) data: Vec<f32>,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

#[derive(Deserialize)]
struct Embeddings {
    data: Vec<Embedding>,
}

#[derive(Deserialize)]
struct Embedding {
    embedding: String,
}

impl Engine {
    pub(crate) fn open(path: &str, options: &OpenOptions) -> Result<Engine, Failure> {
        let engine = Arc::new(open(path, options)?);
        let runtime =
            Builder::new_multi_thread().worker_threads(THREADS).enable_all().thread_name("gristmill-c").build();
        let runtime = runtime.map_err(|error| Failure::internal(format!("threads: cannot be started: {error}")))?;
        let models = vec![OfferedModel::loaded(MODEL, engine.clone())];
        // The router starts tasks.
        let router = {
            let _entered = runtime.enter();
            router(models, Options::default())
        };
        Ok(Engine { engine, router, runtime })
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// The response of a path to a body of JSON.
    ///
    /// # Errors
    /// The refusal of the server.
    pub(crate) async fn send(&self, path: &str, body: Vec<u8>) -> Result<Response<Body>, Failure> {
        let request =
            Request::post(path).header(header::HOST, "localhost").header(header::CONTENT_TYPE, "application/json");
        let request = request.body(Body::from(body)).map_err(|error| Failure::bad(format!("path: {error}")))?;
        let Ok(response) = self.router.clone().oneshot(request).await;
        if response.status().is_success() {
            return Ok(response);
        }
        let (code, body) = (response.status(), read(response).await?);
        Err(Failure::of_reply(code, &body))
    }

    /// The whole reply of a path to a body of JSON.
    pub(crate) fn call(&self, path: &str, body: &str) -> Result<Vec<u8>, Failure> {
        self.runtime.block_on(async { read(self.send(path, body.into()).await?).await })
    }

    /// Embeds the texts of a request of `/v1/embeddings`.
    pub(crate) fn embed(&self, body: &str) -> Result<Vectors, Failure> {
        // Numbers as text would take most of the time.
        let reply = self.call("/v1/embeddings", &with_field(body, "encoding_format", "base64", Field::Replaced))?;
        let broken = |error: &dyn std::error::Error| Failure::internal(format!("embeddings: {error}"));
        let reply: Embeddings = serde_json::from_slice(&reply).map_err(|error| broken(&error))?;
        let rows = reply.data.len();
        let mut data = Vec::new();
        for Embedding { embedding } in reply.data {
            let bytes = BASE64_STANDARD.decode(embedding).map_err(|error| broken(&error))?;
            data.extend(
                bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])),
            );
        }
        Ok(Vectors { columns: data.len() / rows.max(1), rows, data })
    }

    /// The tokens of a text. `is_prompt`: with the tokens that the model wants around a text, and with control tokens that
    /// are written in it.
    pub(crate) fn tokenize(&self, text: &str, is_prompt: bool) -> Result<Vec<u32>, Failure> {
        let options = EncodeOptions { add_special: is_prompt, parse_special: is_prompt };
        self.tokenizer()?.encode(text, options).map_err(|error| Failure::bad(format!("text: {error}")))
    }

    /// The text of tokens. Bytes that are not whole characters become U+FFFD.
    pub(crate) fn detokenize(&self, tokens: &[u32]) -> Result<String, Failure> {
        self.tokenizer()?.decode(tokens, false).map_err(|error| Failure::bad(format!("tokens: {error}")))
    }

    fn tokenizer(&self) -> Result<&Tokenizer, Failure> {
        Ok(self.engine.model().tokenizer()?)
    }
}

/// What a field of [`with_field`] does to a field of the caller.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    Default,
    Replaced,
}

/// A body with a field. All other fields are as the caller wrote them. A body that is no object is as it was, so that the
/// server reports the fault.
pub(crate) fn with_field(body: &str, name: &str, value: impl serde::Serialize, field: Field) -> String {
    let (Ok(mut fields), Ok(value)) =
        (serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(body), to_raw_value(&value))
    else {
        return body.to_owned();
    };
    if field == Field::Replaced || !fields.contains_key(name) {
        fields.insert(name.to_owned(), value);
    }
    serde_json::to_string(&fields).unwrap_or_else(|_| body.to_owned())
}

async fn read(response: Response<Body>) -> Result<Vec<u8>, Failure> {
    let body = response.into_body().collect().await;
    let ended = |error| Failure::of_reply(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}").as_bytes());
    Ok(body.map_err(ended)?.to_bytes().to_vec())
}
