//! Connections, and the end of a server.
//!
//! # A server stops in steps
//!
//! After the signal, `/ready` is 503. After the drain delay, the server closes its sockets, and the engine rejects
//! waiting requests (`Engine::drain`). Then running replies finish. *If one text or choice of a request has started,
//! the whole request finishes, and so does a stream whose head was sent (`Pledge`), because no load balancer can send
//! it elsewhere. The task of a connection has no handle of the socket, because the handle would keep the socket
//! listening (test `a_signal_lets_many_replies_end`).*

mod loading;
mod sockets;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::keys::Keys;
use crate::models::OfferedModel;
use crate::options::Options;
use crate::routes::{monitoring, routes};
use crate::state::App;
pub use loading::Loading;
use sockets::Listener;
pub use sockets::{ServeError, Sockets};

/// The most bytes of a request's head.
const HEAD_BYTES: usize = 64 << 10;
/// Connections to the socket of monitoring at a time.
const MONITORS: usize = 64;

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    sockets: Sockets,
    app: App,
}

impl Server {
    /// Serves on these sockets.
    pub fn new(sockets: Sockets, models: Vec<OfferedModel>, options: Options) -> Server {
        Server { sockets, app: App::new(models, options) }
    }

    /// Listens on an address, which may be a name with a port; port 0 takes a free one.
    ///
    /// # Errors
    /// [`ServeError::Listen`].
    pub async fn bind(address: &str, models: Vec<OfferedModel>, options: Options) -> Result<Server, ServeError> {
        Ok(Server::new(Sockets::bind(address).await?, models, options))
    }

    /// The address that it listens on.
    ///
    /// # Errors
    /// The system's error.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.sockets.address()
    }

    /// The address for monitoring, if there is one.
    ///
    /// # Errors
    /// The system's error.
    pub fn monitoring_address(&self) -> io::Result<Option<SocketAddr>> {
        self.sockets.monitoring_address()
    }

    /// The names of the models.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.app.models.slots().iter().map(|slot| slot.name.as_str())
    }

    /// The keys, to be replaced while the server runs.
    pub fn keys(&self) -> Keys {
        self.app.keys.clone()
    }

    /// Serves until `end` is ready. From then on `/ready` is 503, and after [`Options::drain_delay`] no more
    /// connections are accepted and requests that only wait are refused. Returns when all replies have ended.
    pub async fn run(self, end: impl Future<Output = ()>) {
        let Server { sockets, app } = self;
        let Sockets { listener, monitoring: monitor } = sockets;
        // They end with the server.
        let mut monitors = JoinSet::new();
        if let Some(listener) = monitor {
            monitors.spawn(serve_monitors(listener, app.clone()));
        }
        monitors.spawn(app.models.clone().load_pinned());
        if let Some(idle) = app.options.idle {
            monitors.spawn(app.models.clone().unload_idle(idle));
        }
        let places = Arc::new(Semaphore::new(app.options.connections));
        let patience = app.options.patience;
        let http = http(patience);
        let service = TowerToHyperService::new(routes(app.clone()));
        let graceful = GracefulShutdown::new();
        let mut end = std::pin::pin!(async {
            end.await;
            app.stop();
            sleep(app.options.drain_delay).await;
        });
        loop {
            let next = async {
                // If all connections are in use, further ones wait in the system's queue.
                let place = places.clone().acquire_owned().await;
                (listener.accept().await, place)
            };
            let (stream, place) = tokio::select! {
                next = next => next,
                () = &mut end => break,
            };
            let (security, http, service) = (listener.security.clone(), http.clone(), service.clone());
            let (watcher, open) = (graceful.watcher(), app.metrics.connection());
            tokio::spawn(async move {
                if let Some(stream) = security.secure(stream, patience).await
                    && let Err(error) = watcher.watch(http.serve_connection(TokioIo::new(stream), service)).await
                {
                    tracing::debug!(%error, "connection ended");
                }
                drop((open, place));
            });
        }
        drop(listener);
        app.models.drain();
        graceful.shutdown().await;
        monitors.shutdown().await;
    }
}

/// How connections are served.
fn http(patience: Duration) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(patience);
    http.max_header_size(HEAD_BYTES).max_buf_size(HEAD_BYTES);
    http
}

/// Serves the paths of monitoring, until it is dropped.
async fn serve_monitors(listener: Listener, app: App) {
    let patience = app.options.patience;
    serve_all(listener, http(patience), patience, monitoring(app)).await;
}

/// Serves a few connections at a time, until it is dropped.
async fn serve_all(listener: Listener, http: http1::Builder, patience: Duration, router: Router) {
    let service = TowerToHyperService::new(router);
    let places = Arc::new(Semaphore::new(MONITORS));
    let mut connections = JoinSet::new();
    loop {
        let place = places.clone().acquire_owned().await;
        let stream = listener.accept().await;
        let (security, http, service) = (listener.security.clone(), http.clone(), service.clone());
        connections.spawn(async move {
            if let Some(stream) = security.secure(stream, patience).await {
                // An end is all that happens to it.
                let _ = http.serve_connection(TokioIo::new(stream), service).await;
            }
            drop(place);
        });
        while connections.try_join_next().is_some() {}
    }
}
