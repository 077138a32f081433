//! Waiting for a server: its port is open while the model is being loaded.

use std::io::{Read, Write};
use std::net::TcpStream;

/// Whether the server on a port of this machine takes requests.
pub(in crate::prove) fn is_ready(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let mut reply = String::new();
    let asked = stream.write_all(b"GET /ready HTTP/1.0\r\n\r\n");
    asked.and_then(|()| stream.read_to_string(&mut reply)).is_ok() && reply.split(' ').nth(1) == Some("200")
}
