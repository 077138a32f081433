//! Where a server listens.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use clap::Args;
use gristmill_server::{Server, Sockets};

use super::keys;
use super::tls::{Certificate, TlsArgs};
use crate::console;
use crate::failure::Failure;

/// The value of `--listen` for the socket of systemd.
const SYSTEMD: &str = "systemd";

#[derive(Args)]
pub(crate) struct SocketArgs {
    /// The address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", help_heading = "Address and access")]
    host: String,
    /// The port to listen on; 0 chooses a free port.
    #[arg(long, value_name = "PORT", default_value_t = 8080, help_heading = "Address and access")]
    port: u16,
    /// Listen on this socket instead of --host and --port: ADDRESS:PORT, unix:PATH, or systemd for the socket that
    /// systemd passes (socket activation).
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["host", "port"], help_heading = "Address and access")]
    listen: Option<String>,
    /// Also listen on this socket, only for /metrics, /health and /ready, without a key: ADDRESS:PORT or unix:PATH.
    #[arg(long, value_name = "SOCKET", help_heading = "Address and access")]
    metrics_listen: Option<String>,
    #[command(flatten)]
    tls: TlsArgs,
}

impl SocketArgs {
    /// Refuses to serve other machines if the server is unprotected.
    pub(super) fn check(&self, unprotected: bool) -> Result<(), Failure> {
        let address = self.address();
        if !unprotected || address == SYSTEMD || address.starts_with("unix:") {
            return Ok(());
        }
        let option = self.option();
        let found = address
            .to_socket_addrs()
            .map_err(|error| Failure::new(format!("{option} is not an address of this machine: {error}")))?;
        match found.into_iter().all(|address| address.ip().is_loopback()) {
            true => Ok(()),
            false => Err(serves_others(&option)),
        }
    }

    /// The sockets, on which connections wait from then on, and their certificate.
    pub(super) async fn listen(&self, unprotected: bool) -> Result<(Sockets, Option<Arc<Certificate>>), Failure> {
        let certificate = self.tls.read()?;
        let address = self.address();
        let mut sockets = if address == SYSTEMD { of_systemd(unprotected)? } else { Sockets::bind(&address).await? };
        if let Some(certificate) = &certificate {
            sockets = sockets.with_tls(certificate.config()?);
        }
        if let Some(address) = &self.metrics_listen {
            sockets = sockets.with_monitoring(address).await?;
        }
        Ok((sockets, certificate))
    }

    /// Prints where the server listens.
    pub(super) fn note(&self, server: &Server, has_page: bool) {
        let names: Vec<&str> = server.names().collect();
        let name = match names.as_slice() {
            [name] => (*name).to_owned(),
            names => format!("{} models", names.len()),
        };
        let scheme = if self.tls.is_set() { "https" } else { "http" };
        match server.address() {
            Ok(address) => {
                let open = reachable(address);
                if has_page {
                    console::note(format_args!("{scheme}://{open}/ is the page to talk to {name}"));
                }
                console::note(format_args!(
                    "programs: {scheme}://{open}/v1 (OpenAI), {scheme}://{open} (Anthropic); all: /openapi.json"
                ));
            }
            Err(_) => console::note(format_args!("{name} listens on {}", self.address())),
        }
        match (&self.metrics_listen, server.monitoring_address()) {
            (Some(_), Ok(Some(address))) => {
                console::note(format_args!("monitoring: http://{}/metrics, without a key", reachable(address)));
            }
            (Some(socket), _) => console::note(format_args!("monitoring: {socket}, without a key")),
            (None, _) => {}
        }
    }

    fn address(&self) -> String {
        self.listen.clone().unwrap_or_else(|| host_and_port(&self.host, self.port))
    }

    /// The option that has the address, and its value.
    fn option(&self) -> String {
        match &self.listen {
            Some(listen) => format!("--listen {listen}"),
            None => format!("--host {}", self.host),
        }
    }
}

fn serves_others(option: &str) -> Failure {
    Failure::new(format!(
        "{option} serves other machines, and anyone there could use the model; set keys with --keys FILE or {}, or \
         allow it with --allow-unauthenticated",
        keys::VARIABLE
    ))
}

/// The socket that systemd passes.
#[cfg(unix)]
fn of_systemd(unprotected: bool) -> Result<Sockets, Failure> {
    let mut passed = listenfd::ListenFd::from_env();
    let wrong =
        |error: std::io::Error| Failure::new(format!("--listen {SYSTEMD}: {error}; pass one socket that listens"));
    if let Ok(Some(listener)) = passed.take_tcp_listener(0) {
        if unprotected && !listener.local_addr().map_err(wrong)?.ip().is_loopback() {
            return Err(serves_others(&format!("--listen {SYSTEMD}")));
        }
        return Sockets::from_tcp(listener).map_err(wrong);
    }
    match passed.take_unix_listener(0).map_err(wrong)? {
        Some(listener) => Sockets::from_unix(listener).map_err(wrong),
        None => Err(Failure::new(format!(
            "--listen {SYSTEMD}: no socket was passed (LISTEN_FDS is not set for this process); start the server by a \
             socket unit"
        ))),
    }
}

#[cfg(not(unix))]
fn of_systemd(_: bool) -> Result<Sockets, Failure> {
    Err(Failure::new(format!("--listen {SYSTEMD}: this system has no systemd; use ADDRESS:PORT")))
}

/// An address that a browser on this machine can open: 0.0.0.0 and :: mean all addresses of the machine.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn host_and_port(host: &str, port: u16) -> String {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => format!("[{address}]:{port}"),
        _ => format!("{host}:{port}"),
    }
}
