//! Encrypted connections, Unix sockets, and the socket of systemd.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_hub::crypto_provider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::Serving;
use crate::path;

/// Certificates for localhost, each signed by its own key, and the keys: `openssl req -x509 -newkey ec -pkeyopt
/// ec_paramgen_curve:P-256 -nodes -days 36500 -subj /CN=localhost -addext subjectAltName=DNS:localhost -addext
/// basicConstraints=critical,CA:FALSE`.
const CERTIFICATES: [[&str; 2]; 2] = [
    [include_str!("tls/first.cert.pem"), include_str!("tls/first.key.pem")],
    [include_str!("tls/second.cert.pem"), include_str!("tls/second.key.pem")],
];

const GET: &str = "GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

fn read_all(mut stream: impl Read + Write, request: &str) -> io::Result<String> {
    stream.write_all(request.as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// The reply to a client that trusts a certificate.
fn ask_encrypted(address: &str, certificate: &str, request: &str) -> io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(certificate.as_bytes()).expect("PEM")).expect("a certificate");
    let config = ClientConfig::builder_with_provider(crypto_provider().expect("a CPU with AES"));
    let config = config.with_safe_default_protocol_versions().expect("versions").with_root_certificates(roots);
    let name = "localhost".try_into().expect("a name");
    let mut connection = ClientConnection::new(Arc::new(config.with_no_client_auth()), name).expect("a client");
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    read_all(rustls::Stream::new(&mut connection, &mut stream), request)
}

fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
    let start = Instant::now();
    while !ready() {
        assert!(start.elapsed() < Duration::from_secs(30), "{what} does not happen");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn connections_are_encrypted() {
    if let Err(error) = crypto_provider() {
        return println!("skipped: {error}");
    }
    let [certificate, key] = ["server.cert.pem", "server.key.pem"].map(path);
    let install = |[new, secret]: [&str; 2]| {
        fs::write(&certificate, new).and_then(|()| fs::write(&key, secret)).expect("written files");
    };
    let [first, second] = CERTIFICATES;
    install(first);
    let mut server = Serving::new(&["--tls-cert", &certificate, "--tls-key", &key]);
    let reply = ask_encrypted(&server.1, first[0], GET).expect("a reply");
    assert!(reply.starts_with("HTTP/1.1 200") && reply.ends_with(r#"{"status":"ok"}"#), "{reply}");
    let body = r#"{"prompt": "ab", "max_tokens": 150, "stream": true, "ignore_eos": true}"#;
    let length = body.len();
    let head =
        format!("POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}");
    let events = ask_encrypted(&server.1, first[0], &format!("{head}\r\n\r\n{body}")).expect("events");
    assert!(events.contains("data: [DONE]"), "{events}");
    assert!(ask_encrypted(&server.1, second[0], GET).is_err(), "a client trusts what it does not know");
    // A client that does not encrypt is not answered, and disturbs nobody.
    let plain = TcpStream::connect(&server.1).and_then(|stream| read_all(stream, GET)).unwrap_or_default();
    assert!(!plain.contains("HTTP/1.1"), "{plain}");

    install([second[0], first[1]]);
    server.hang_up();
    std::thread::sleep(Duration::from_millis(300));
    assert!(ask_encrypted(&server.1, first[0], GET).is_ok(), "a certificate without its key is in use");
    install(second);
    server.hang_up();
    wait_until("the change of certificates", || ask_encrypted(&server.1, second[0], GET).is_ok());
    assert!(ask_encrypted(&server.1, first[0], GET).is_err());
    let lines = server.lines();
    assert!(lines.iter().any(|line| line.contains("ERROR the certificate is unchanged")), "{lines:?}");
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gristmill"));
    command.args(["serve", &path("endless.gguf"), "--ctx", "200", "-t", "1"]).args(arguments);
    command.env("HOME", "/dev/null/home").env_remove("GRISTMILL_API_KEY").stderr(Stdio::null());
    command
}

fn end(mut server: Child) {
    assert!(Command::new("kill").arg(server.id().to_string()).status().is_ok_and(|status| status.success()));
    assert!(server.wait().expect("it ends").success());
}

#[test]
fn a_unix_socket() {
    let (socket, monitoring) = (path("serve.socket"), path("metrics.socket"));
    let (listen, metrics) = (format!("unix:{socket}"), format!("unix:{monitoring}"));
    // A server that was killed leaves its socket.
    let _ = fs::remove_file(&socket);
    drop(UnixListener::bind(&socket).expect("a socket"));
    assert!(Path::new(&socket).exists());
    // A file that is no socket stays as it is.
    fs::write(&monitoring, "keep").expect("a file");
    let refused = command(&["--listen", &listen, "--metrics-listen", &metrics]).stderr(Stdio::piped()).output();
    let refused = refused.expect("it ends");
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && error.contains("no socket, has this path"), "{error}");
    assert_eq!(fs::read_to_string(&monitoring).expect("the file"), "keep");
    fs::remove_file(&monitoring).expect("removed");
    assert!(!Path::new(&socket).exists(), "the first socket is removed");
    let server = command(&["--listen", &listen, "--metrics-listen", &metrics]).spawn().expect("it starts");
    let ask = |socket: &str, path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        UnixStream::connect(socket).and_then(|stream| read_all(stream, &request)).unwrap_or_default()
    };
    wait_until("the start", || ask(&socket, "/ready").starts_with("HTTP/1.1 200"));
    assert!(ask(&monitoring, "/metrics").contains("gristmill_requests_waiting{model=\"endless\"} 0"));
    assert!(ask(&socket, "/v1/models").contains("endless"));
    // A socket that is in use stays another's.
    let second = command(&["--listen", &listen]).stderr(Stdio::piped()).output().expect("it ends");
    let error = String::from_utf8_lossy(&second.stderr);
    assert!(!second.status.success() && error.contains("cannot listen on unix:"), "{error}");
    assert!(ask(&socket, "/ready").starts_with("HTTP/1.1 200"));
    end(server);
    assert!(!Path::new(&socket).exists() && !Path::new(&monitoring).exists());
}

/// A process that gets a socket as systemd passes it: as its fourth file, announced in its environment.
fn with_socket(socket: OwnedFd, arguments: &[&str]) -> Child {
    let program = command(arguments);
    let script = "export LISTEN_FDS=1 LISTEN_PID=$$; exec \"$0\" \"$@\" 3<&0 </dev/null";
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", script]).arg(program.get_program()).args(program.get_args());
    shell.env("HOME", "/dev/null/home").env_remove("GRISTMILL_API_KEY").stderr(Stdio::null()).stdin(socket);
    shell.spawn().expect("it starts")
}

#[test]
fn the_socket_of_systemd() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let server = with_socket(listener.into(), &["--listen", "systemd"]);
    // Connections wait in the socket from the start.
    let reply = |text: &str| TcpStream::connect(address).and_then(|stream| read_all(stream, text)).unwrap_or_default();
    wait_until("the start", || reply(GET).starts_with("HTTP/1.1 200"));
    end(server);

    let socket = path("systemd.socket");
    let _ = fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).expect("a socket");
    let server = with_socket(listener.into(), &["--listen", "systemd"]);
    let ask = || UnixStream::connect(&socket).and_then(|stream| read_all(stream, GET)).unwrap_or_default();
    wait_until("the start", || ask().starts_with("HTTP/1.1 200"));
    end(server);
    assert!(Path::new(&socket).exists(), "the socket is systemd's");

    // A socket for other machines needs a key as well.
    let listener = TcpListener::bind("0.0.0.0:0").expect("a free port");
    let mut refused = with_socket(listener.into(), &["--listen", "systemd"]);
    assert!(!refused.wait().expect("it ends").success());
}

/// A signal does not wait for a model that is being loaded, and the socket's file is removed.
#[test]
fn a_signal_ends_a_server_whose_model_is_loaded() {
    let socket = path("loading.sock");
    let _ = fs::remove_file(&socket);
    // A hub that accepts a connection and never answers.
    let hub = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("http://{}", hub.local_addr().expect("an address"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_gristmill"));
    command.args(["serve", "hf:org/model", "--listen", &format!("unix:{socket}")]);
    command.env("HOME", "/dev/null/home").env("HF_ENDPOINT", address).env("HF_HOME", path("loading-cache"));
    let mut child = command.stderr(Stdio::null()).spawn().expect("it starts");
    wait_until("a socket", || Path::new(&socket).exists());
    wait_until("a reply", || {
        let stream = UnixStream::connect(&socket);
        stream.and_then(|stream| read_all(stream, GET)).is_ok_and(|reply| reply.starts_with("HTTP/1.1 503"))
    });
    assert!(Command::new("kill").arg(child.id().to_string()).status().is_ok_and(|status| status.success()));
    wait_until("the end", || child.try_wait().expect("a status").is_some());
    assert_eq!(child.wait().expect("a status").code(), Some(0));
    assert!(!Path::new(&socket).exists(), "the socket's file is there");
}
