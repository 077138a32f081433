//! Sockets that listen, and connections that come from them.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use super::Loading;
use crate::patient::Patient;

/// The prefix of the address of a Unix socket.
const UNIX: &str = "unix:";

/// A socket; shared while the model is being loaded.
#[derive(Debug, Clone)]
pub(super) struct Listener {
    socket: Socket,
    pub(super) security: Security,
}

#[derive(Debug, Clone)]
enum Socket {
    Tcp(Arc<TcpListener>),
    #[cfg(unix)]
    Unix(Arc<unix::Listener>),
}

/// How connections of a socket are encrypted, if they are. A connection has it without the socket, which would continue
/// listening.
#[derive(Clone, Default)]
pub(super) struct Security(Option<TlsAcceptor>);

impl std::fmt::Debug for Security {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "TLS" } else { "plain" })
    }
}

/// A connection, of whatever kind.
pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Why a server did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}; choose another port, address or path")]
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
    /// Listens on an address, which may be a name with a port, or `unix:PATH`; port 0 takes a free one.
    ///
    /// # Errors
    /// [`ServeError::Listen`].
    pub async fn bind(address: &str) -> Result<Sockets, ServeError> {
        Ok(Sockets { listener: Listener::bind(address).await?, monitoring: None })
    }

    /// Serves on a socket that listens already. Must be called within a runtime of tokio.
    ///
    /// # Errors
    /// The system's error.
    pub fn from_tcp(listener: std::net::TcpListener) -> io::Result<Sockets> {
        listener.set_nonblocking(true)?;
        let socket = Socket::Tcp(Arc::new(TcpListener::from_std(listener)?));
        Ok(Sockets { listener: Listener { socket, security: Security::default() }, monitoring: None })
    }

    /// Serves on a Unix socket that listens already. Must be called within a runtime of tokio.
    ///
    /// # Errors
    /// The system's error.
    #[cfg(unix)]
    pub fn from_unix(listener: std::os::unix::net::UnixListener) -> io::Result<Sockets> {
        let socket = Socket::Unix(Arc::new(unix::Listener::from_std(listener)?));
        Ok(Sockets { listener: Listener { socket, security: Security::default() }, monitoring: None })
    }

    /// Also listens on an address for `/metrics`, `/health` and `/ready` alone, which need no key there and are not
    /// encrypted.
    ///
    /// # Errors
    /// [`ServeError::Listen`].
    pub async fn with_monitoring(self, address: &str) -> Result<Sockets, ServeError> {
        Ok(Sockets { monitoring: Some(Listener::bind(address).await?), ..self })
    }

    /// Encrypts connections. The configuration should offer `http/1.1` alone.
    pub fn with_tls(self, tls: Arc<ServerConfig>) -> Sockets {
        let listener = Listener { security: Security(Some(TlsAcceptor::from(tls))), ..self.listener };
        Sockets { listener, ..self }
    }

    /// The address that it listens on.
    ///
    /// # Errors
    /// The system's error, and one of a Unix socket, which has no such address.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.address()
    }

    /// The address for monitoring, if there is one.
    ///
    /// # Errors
    /// Those of [`address`](Self::address).
    pub fn monitoring_address(&self) -> io::Result<Option<SocketAddr>> {
        self.monitoring.as_ref().map(Listener::address).transpose()
    }

    /// Answers each request with 503 until the result is dropped: the model is being loaded. Must be called within a
    /// runtime of tokio.
    pub fn answer_while_loading(&self) -> Loading {
        Loading::new([Some(&self.listener), self.monitoring.as_ref()].into_iter().flatten())
    }
}

impl Listener {
    async fn bind(address: &str) -> Result<Listener, ServeError> {
        let socket = match address.strip_prefix(UNIX) {
            Some(path) => Socket::unix(Path::new(path)),
            None => TcpListener::bind(address).await.map(|listener| Socket::Tcp(Arc::new(listener))),
        };
        let failed = |error| ServeError::Listen { address: address.to_owned(), error };
        Ok(Listener { socket: socket.map_err(failed)?, security: Security::default() })
    }

    fn address(&self) -> io::Result<SocketAddr> {
        match &self.socket {
            Socket::Tcp(listener) => listener.local_addr(),
            #[cfg(unix)]
            Socket::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The next connection.
    pub(super) async fn accept(&self) -> Box<dyn Io> {
        loop {
            match self.socket.accept().await {
                Ok(stream) => return stream,
                Err(error) => {
                    // Out of file descriptors, or a connection that is gone: the next one may be accepted.
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }
}

impl Security {
    /// A connection whose client has to read what it is sent, encrypted if the socket's are. `None` if the client does not
    /// agree on a way to encrypt within its patience.
    pub(super) async fn secure(&self, stream: Box<dyn Io>, patience: Duration) -> Option<Box<dyn Io>> {
        let stream = Patient::new(stream, patience);
        let Some(tls) = &self.0 else { return Some(Box::new(stream)) };
        match timeout(patience, tls.accept(stream)).await {
            Ok(Ok(stream)) => Some(Box::new(stream)),
            Ok(Err(error)) => {
                tracing::debug!(%error, "a connection was not encrypted");
                None
            }
            Err(_) => None,
        }
    }
}

impl Socket {
    async fn accept(&self) -> io::Result<Box<dyn Io>> {
        match self {
            Socket::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // Tokens are small and shall not wait for each other.
                let _ = stream.set_nodelay(true);
                Ok(Box::new(stream))
            }
            #[cfg(unix)]
            Socket::Unix(listener) => listener.accept().await,
        }
    }

    #[cfg(unix)]
    fn unix(path: &Path) -> io::Result<Socket> {
        unix::Listener::bind(path).map(|listener| Socket::Unix(Arc::new(listener)))
    }

    #[cfg(not(unix))]
    fn unix(_: &Path) -> io::Result<Socket> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Unix sockets.
#[cfg(unix)]
mod unix {
    use std::fs;
    use std::io;
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    use std::path::{Path, PathBuf};

    use tokio::net::UnixListener;

    use super::Io;

    /// A socket, whose file is removed at its end if it was made here.
    #[derive(Debug)]
    pub(super) struct Listener {
        listener: UnixListener,
        own: Option<(PathBuf, SocketFile)>,
    }

    /// Device and inode of a socket's file. Another file at the same path has others.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct SocketFile(u64, u64);

    impl SocketFile {
        /// The file at a path, if it is a socket. A link to a socket is none.
        fn at(path: &Path) -> Option<SocketFile> {
            let about = fs::symlink_metadata(path).ok()?;
            about.file_type().is_socket().then(|| SocketFile(about.dev(), about.ino()))
        }

        /// Removes the file, if it is still the one at the path.
        fn remove(self, path: &Path) -> io::Result<()> {
            if SocketFile::at(path) == Some(self) { fs::remove_file(path) } else { Ok(()) }
        }
    }

    impl Listener {
        pub(super) fn bind(path: &Path) -> io::Result<Listener> {
            let listener = match UnixListener::bind(path) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    let occupied = || io::Error::new(error.kind(), "another file, no socket, has this path");
                    let file = SocketFile::at(path).ok_or_else(occupied)?;
                    if !is_left_over(path) {
                        return Err(error);
                    }
                    file.remove(path)?;
                    UnixListener::bind(path)?
                }
                bound => bound?,
            };
            Ok(Listener { listener, own: SocketFile::at(path).map(|file| (path.to_owned(), file)) })
        }

        pub(super) fn from_std(listener: std::os::unix::net::UnixListener) -> io::Result<Listener> {
            listener.set_nonblocking(true)?;
            Ok(Listener { listener: UnixListener::from_std(listener)?, own: None })
        }

        pub(super) async fn accept(&self) -> io::Result<Box<dyn Io>> {
            let (stream, _) = self.listener.accept().await?;
            Ok(Box::new(stream))
        }
    }

    impl Drop for Listener {
        fn drop(&mut self) {
            if let Some((path, file)) = &self.own {
                // Nobody is left to report a failure to; the next start removes the file.
                let _ = file.remove(path);
            }
        }
    }

    /// Whether a socket is that of a process that has ended without removing it.
    fn is_left_over(path: &Path) -> bool {
        let connected = std::os::unix::net::UnixStream::connect(path);
        connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// A path of the test's own, at which there is nothing.
        fn free(name: &str) -> PathBuf {
            let path = std::env::temp_dir().join(format!("gristmill-socket-{name}-{}", std::process::id()));
            let _ = fs::remove_file(&path);
            path
        }

        #[tokio::test]
        async fn only_a_left_over_socket_is_replaced() {
            let path = free("replaced");
            fs::write(&path, "keep").expect("a file");
            let error = Listener::bind(&path).expect_err("a file is there").to_string();
            assert!(error.contains("no socket"), "{error}");
            assert_eq!(fs::read_to_string(&path).expect("the file"), "keep");
            fs::remove_file(&path).expect("removed");

            let link = free("link");
            std::os::unix::fs::symlink(&path, &link).expect("a link");
            drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket"));
            Listener::bind(&link).expect_err("a link is there");
            assert!(SocketFile::at(&path).is_some(), "the socket of another program stays");
            fs::remove_file(&link).expect("removed");

            let listener = Listener::bind(&path).expect("nobody listens");
            let other = Listener::bind(&path).expect_err("the first one listens");
            assert_eq!(other.kind(), io::ErrorKind::AddrInUse);
            drop(listener);
            assert!(!path.exists(), "the file is removed at its end");
        }

        #[tokio::test]
        async fn only_the_socket_that_was_bound_is_removed() {
            for is_socket in [false, true] {
                let path = free("removed");
                let listener = Listener::bind(&path).expect("a socket");
                fs::remove_file(&path).expect("removed by another program");
                let other = is_socket.then(|| std::os::unix::net::UnixListener::bind(&path).expect("another socket"));
                if other.is_none() {
                    fs::write(&path, "keep").expect("another file");
                }
                drop(listener);
                assert!(path.exists(), "it is not the listener's");
                fs::remove_file(&path).expect("removed");
            }
        }
    }
}
