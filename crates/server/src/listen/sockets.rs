//! Sockets that listen.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};

use super::Loading;

/// A socket; shared while the model is being loaded.
pub(super) type Listener = Arc<TcpListener>;

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

/// The sockets of a server. Connections wait in them until it runs.
#[derive(Debug)]
pub struct Sockets {
    pub(super) listener: Listener,
    /// For `/metrics`, `/health` and `/ready` alone, without a key.
    pub(super) monitoring: Option<Listener>,
}

impl Sockets {
    /// Listens on an address, which may be a name with a port; port 0 takes a free one.
    ///
    /// # Errors
    /// [`ServeError::Listen`].
    pub async fn bind(address: &str) -> Result<Sockets, ServeError> {
        Ok(Sockets { listener: listen(address).await?, monitoring: None })
    }

    /// Also listens on an address for `/metrics`, `/health` and `/ready` alone, which need no key there.
    ///
    /// # Errors
    /// [`ServeError::Listen`].
    pub async fn with_monitoring(self, address: &str) -> Result<Sockets, ServeError> {
        Ok(Sockets { monitoring: Some(listen(address).await?), ..self })
    }

    /// The address that it listens on.
    ///
    /// # Errors
    /// The system's error.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The address for monitoring, if there is one.
    ///
    /// # Errors
    /// The system's error.
    pub fn monitoring_address(&self) -> io::Result<Option<SocketAddr>> {
        self.monitoring.as_ref().map(|listener| listener.local_addr()).transpose()
    }

    /// Answers each request with 503 until the result is dropped: the model is being loaded. Must be called within a
    /// runtime of tokio.
    pub fn answer_while_loading(&self) -> Loading {
        Loading::new([Some(&self.listener), self.monitoring.as_ref()].into_iter().flatten())
    }
}

async fn listen(address: &str) -> Result<Listener, ServeError> {
    let failed = |error| ServeError::Listen { address: address.to_owned(), error };
    Ok(Arc::new(TcpListener::bind(address).await.map_err(failed)?))
}

/// The next connection.
pub(super) async fn accept(listener: &TcpListener) -> TcpStream {
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
