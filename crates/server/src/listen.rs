//! Connections, and the end of a server.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use gristmill_engine::Engine;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::keys::Keys;
use crate::options::Options;
use crate::patient::Patient;
use crate::routes::routes;
use crate::state::App;

/// The most bytes of a request's head.
const HEAD_BYTES: usize = 64 << 10;

/// Why a server did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}; choose another port or address")]
    Listen {
        /// The address.
        address: String,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// The runtime of the connections did not start.
    #[error("cannot start the threads of the server: {0}")]
    Runtime(#[source] io::Error),
}

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    app: App,
}

impl Server {
    /// Listens on an address, which may be a name with a port; port 0 takes a free one.
    ///
    /// # Errors
    /// [`ServeError::Listen`].
    pub async fn bind(address: &str, engine: Engine, options: Options) -> Result<Server, ServeError> {
        let failed = |error| ServeError::Listen { address: address.to_owned(), error };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        Ok(Server { listener, app: App::new(engine, options) })
    }

    /// The address that it listens on.
    ///
    /// # Errors
    /// The system's error.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The keys, to be replaced while the server runs.
    pub fn keys(&self) -> Keys {
        self.app.keys.clone()
    }

    /// Serves until `end` is ready. Then it accepts no more connections and returns when all replies have ended.
    pub async fn run(self, end: impl Future<Output = ()>) {
        let Server { listener, app } = self;
        let places = Arc::new(Semaphore::new(app.options.connections));
        let patience = app.options.patience;
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(patience);
        http.max_header_size(HEAD_BYTES).max_buf_size(HEAD_BYTES);
        let service = TowerToHyperService::new(routes(app.clone()));
        let graceful = GracefulShutdown::new();
        let mut end = std::pin::pin!(end);
        loop {
            let next = async {
                // Where all places are taken, connections wait in the system's queue.
                let place = places.clone().acquire_owned().await;
                (accept(&listener).await, place)
            };
            let (stream, place) = tokio::select! {
                next = next => next,
                () = &mut end => break,
            };
            let stream = TokioIo::new(Patient::new(stream, patience));
            let connection = graceful.watch(http.serve_connection(stream, service.clone()));
            let open = app.metrics.connection();
            tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "connection ended");
                }
                drop((open, place));
            });
        }
        drop(listener);
        graceful.shutdown().await;
    }
}

/// The next connection.
async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Tokens are small and shall not wait for each other.
                let _ = stream.set_nodelay(true);
                return stream;
            }
            Err(error) => {
                // Out of file descriptors, or a connection that is gone: the next one may be accepted.
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}
