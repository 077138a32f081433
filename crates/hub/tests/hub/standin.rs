//! A mock of the hub on two loopback ports: the hub itself, and the host that it sends downloads to.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use sha1::Sha1;
use sha2::{Digest, Sha256};

/// The commit of the files, unless a fault changes it.
pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// The range of requests that only read a header. Faults and counts are about downloads.
const HEADER: &str = "bytes=0-65535";

/// Faults of the host of the downloads, or of the hub.
#[derive(Clone, Debug, Default)]
#[allow(dead_code)]
pub(crate) struct Faults {
    /// Cut each reply after this share of its bytes, this number of times.
    pub(crate) cut: Option<(f64, usize)>,
    /// Flip a bit of the byte at this place of the file, this number of times.
    pub(crate) flip: Option<(u64, usize)>,
    /// Replies with this status and header, this number of times: to requests for bytes.
    pub(crate) status: Option<(u16, &'static str, usize)>,
    /// The same, to requests at the hub.
    pub(crate) hub_status: Option<(u16, &'static str, usize)>,
    /// Send the whole file to a request for a part.
    pub(crate) ignore_range: bool,
    /// Announce this many bytes more than the file has.
    pub(crate) longer: i64,
    /// The commit that the hub names for a download.
    pub(crate) other_commit: Option<&'static str>,
    /// Listings have no sums of files in Git.
    pub(crate) no_sums: bool,
    /// The paths in listings instead of the true ones.
    pub(crate) listed_path: Option<&'static str>,
    /// The hub redirects to itself.
    pub(crate) redirect_loop: bool,
    /// Bytes in a second, of each connection.
    pub(crate) rate: Option<u64>,
    /// Refuse requests without this token.
    pub(crate) token: Option<&'static str>,
    /// A signed address serves this number of requests.
    pub(crate) signature_lasts: Option<usize>,
}

/// Requests that the mock has seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Requests to the hub and to the other host: the request line.
    pub(crate) hub: Vec<String>,
    pub(crate) cdn: Vec<String>,
    /// Headers `authorization` that either got.
    pub(crate) hub_tokens: Vec<String>,
    pub(crate) cdn_tokens: Vec<String>,
    /// Requests for a header, at the host of the downloads.
    pub(crate) headers: usize,
    /// Bytes of files that were sent.
    pub(crate) bytes: u64,
    /// Downloads that ran at the same time, at most.
    pub(crate) at_once: usize,
    running: usize,
}

struct State {
    repos: BTreeMap<String, BTreeMap<String, Arc<Vec<u8>>>>,
    faults: Faults,
    seen: Seen,
    cdn: String,
    signature: usize,
    used: usize,
}

/// The mock, whose threads end with the process.
#[derive(Clone)]
pub(crate) struct StandIn {
    pub(crate) endpoint: String,
    state: Arc<Mutex<State>>,
}

impl StandIn {
    /// Serves these files as `ORG/REPO`.
    pub(crate) fn start(repo: &str, files: Vec<(&str, Vec<u8>)>) -> StandIn {
        let [hub, cdn] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
        let address = |socket: &TcpListener| format!("http://{}", socket.local_addr().expect("it is bound"));
        let (endpoint, other) = (address(&hub), address(&cdn));
        let files = files.into_iter().map(|(path, bytes)| (path.to_owned(), Arc::new(bytes))).collect();
        let state = State {
            repos: BTreeMap::from([(repo.to_owned(), files)]),
            faults: Faults::default(),
            seen: Seen::default(),
            cdn: other,
            signature: 0,
            used: 0,
        };
        let this = StandIn { endpoint, state: Arc::new(Mutex::new(state)) };
        this.accept(hub, true);
        this.accept(cdn, false);
        this
    }

    /// Serves more files, as another `ORG/REPO`.
    #[allow(dead_code)]
    pub(crate) fn add(&self, repo: &str, files: Vec<(&str, Vec<u8>)>) {
        let files = files.into_iter().map(|(path, bytes)| (path.to_owned(), Arc::new(bytes))).collect();
        self.state().repos.insert(repo.to_owned(), files);
    }

    /// Replaces the faults.
    #[allow(dead_code)]
    pub(crate) fn set(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// The requests since the last call.
    #[allow(dead_code)]
    pub(crate) fn take(&self) -> Seen {
        std::mem::take(&mut self.state().seen)
    }

    /// Bytes of files that were sent since the last `take`.
    #[allow(dead_code)]
    pub(crate) fn sent(&self) -> u64 {
        self.state().seen.bytes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panicked")
    }

    fn accept(&self, socket: TcpListener, hub: bool) {
        let this = self.clone();
        thread::spawn(move || {
            for stream in socket.incoming().flatten() {
                let this = this.clone();
                // A client that hangs up early is none of the mock's business.
                thread::spawn(move || drop(this.serve(stream, hub)));
            }
        });
    }

    /// One request for each connection.
    fn serve(&self, mut stream: TcpStream, hub: bool) -> std::io::Result<()> {
        let request = Request::read(&stream)?;
        {
            let mut state = self.state();
            let line = format!("{} {}", request.method, request.target);
            let token = request.headers.get("authorization").cloned();
            let (lines, tokens) = match hub {
                true => (&mut state.seen.hub, 0),
                false => (&mut state.seen.cdn, 1),
            };
            match request.is_for_header() {
                true if !hub => state.seen.headers += 1,
                true => {}
                false => lines.push(line),
            }
            if let Some(token) = token {
                if tokens == 0 { &mut state.seen.hub_tokens } else { &mut state.seen.cdn_tokens }.push(token);
            }
        }
        if hub { self.hub(&mut stream, &request) } else { self.cdn(&mut stream, &request) }
    }

    fn hub(&self, stream: &mut TcpStream, request: &Request) -> std::io::Result<()> {
        let mut state = self.state();
        let faults = state.faults.clone();
        if let Some((status, header, times)) = &mut state.faults.hub_status
            && *times > 0
        {
            *times -= 1;
            return reply(stream, *status, header, b"busy");
        }
        let wanted = faults.token.map(|token| format!("Bearer {token}"));
        if wanted.is_some() && request.headers.get("authorization") != wanted.as_ref() {
            return reply(stream, 401, "", b"Invalid credentials");
        }
        if faults.redirect_loop {
            return reply(stream, 302, &format!("Location: {}\r\n", request.target), b"");
        }
        let path = request.target.split('?').next().unwrap_or_default();
        if let Some((repo, _)) = path.strip_prefix("/api/models/").and_then(|rest| rest.split_once("/tree/")) {
            return match state.repos.get(repo) {
                Some(files) => reply(stream, 200, "", tree(files).as_bytes()),
                None => reply(stream, 404, "", b"Not found"),
            };
        }
        if let Some(rest) = path.strip_prefix("/api/models/") {
            let (repo, revision) = rest.split_once("/revision/").unwrap_or((rest, "main"));
            let known = ["main", "refs%2Fpr%2F1", COMMIT].contains(&revision);
            return match state.repos.get(repo).filter(|_| known) {
                Some(files) => reply(stream, 200, "", listing(files, &faults).as_bytes()),
                None => reply(stream, 404, "", b"Not found"),
            };
        }
        if let Some(rest) = path.strip_prefix("/api/resolve-cache/models/") {
            let mut parts = rest.splitn(4, '/');
            let repo = format!("{}/{}", parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            let file = parts.nth(1).unwrap_or_default();
            let found = state.repos.get(&repo).and_then(|files| files.get(file)).cloned();
            drop(state);
            let Some(bytes) = found else { return reply(stream, 404, "", b"") };
            let headers = format!("X-Repo-Commit: {COMMIT}\r\nETag: \"{}\"\r\n", git_sha1(&bytes));
            return self.send(stream, request, &bytes, &faults, &headers, &mut || ());
        }
        let found = path.trim_start_matches('/').split_once("/resolve/").and_then(|(repo, rest)| {
            let (_, file) = rest.split_once('/')?;
            Some((repo.to_owned(), file.to_owned(), state.repos.get(repo)?.get(file)?.clone()))
        });
        let Some((repo, file, bytes)) = found else {
            return reply(stream, 404, "X-Error-Code: EntryNotFound\r\n", b"");
        };
        if !is_large(&file) {
            let sum = git_sha1(&bytes);
            let commit = faults.other_commit.unwrap_or(COMMIT);
            let to = format!("/api/resolve-cache/models/{repo}/{COMMIT}/{file}");
            let headers = format!("Location: {to}\r\nX-Repo-Commit: {commit}\r\nETag: \"{sum}\"\r\n");
            drop(state);
            return reply(stream, 307, &headers, b"");
        }
        state.signature += 1;
        state.used = 0;
        let commit = faults.other_commit.unwrap_or(COMMIT);
        let sum = sha256(&bytes);
        let size = bytes.len();
        let signature = state.signature;
        let headers = format!(
            "Location: {}/{repo}/{file}?signature={signature}\r\nX-Repo-Commit: {commit}\r\nETag: \"{sum}\"\r\n\
             X-Linked-Etag: \"{sum}\"\r\nX-Linked-Size: {size}\r\n",
            state.cdn
        );
        drop(state);
        reply(stream, 302, &headers, b"")
    }

    fn cdn(&self, stream: &mut TcpStream, request: &Request) -> std::io::Result<()> {
        let mut state = self.state();
        let is_for_header = request.is_for_header();
        let faults = if is_for_header { Faults::default() } else { state.faults.clone() };
        if let Some((status, header, times)) = &mut state.faults.status
            && *times > 0
            && !is_for_header
        {
            *times -= 1;
            return reply(stream, *status, header, b"no");
        }
        let (path, signature) = request.target.split_once("?signature=").unwrap_or((&request.target, ""));
        state.used += usize::from(!is_for_header);
        let expired = faults.signature_lasts.is_some_and(|lasts| state.used > lasts);
        if expired || signature.parse() != Ok(state.signature) && faults.signature_lasts.is_some() {
            return reply(stream, 403, "", b"expired");
        }
        let mut parts = path.trim_start_matches('/').splitn(3, '/');
        let repo = format!("{}/{}", parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let file = parts.next().unwrap_or_default();
        let found = state.repos.get(&repo).and_then(|files| files.get(file)).cloned();
        let Some(bytes) = found else { return reply(stream, 404, "", b"") };
        state.seen.running += usize::from(!is_for_header);
        state.seen.at_once = state.seen.at_once.max(state.seen.running);
        drop(state);
        let mut counted = !is_for_header;
        let mut ended = || {
            if std::mem::take(&mut counted) {
                let mut state = self.state();
                state.seen.running = state.seen.running.saturating_sub(1);
            }
        };
        let sent = self.send(stream, request, &bytes, &faults, "", &mut ended);
        ended();
        sent
    }

    /// Sends a file, or the part that was requested; calls `ended` before its last bytes.
    fn send(
        &self,
        stream: &mut TcpStream,
        request: &Request,
        bytes: &[u8],
        faults: &Faults,
        headers: &str,
        ended: &mut dyn FnMut(),
    ) -> std::io::Result<()> {
        let whole = (0, bytes.len());
        let range = request.headers.get("range").filter(|_| !faults.ignore_range).and_then(|range| {
            let (start, end) = range.strip_prefix("bytes=")?.split_once('-')?;
            Some((start.parse().ok()?, end.parse::<usize>().map_or(bytes.len(), |end| end + 1).min(bytes.len())))
        });
        let (start, end) = range.unwrap_or(whole);
        if start >= bytes.len().max(1) {
            return reply(stream, 416, "", b"");
        }
        let mut part = bytes[start..end].to_vec();
        let total = bytes.len() as i64 + faults.longer;
        let head = match range {
            Some(_) => {
                let last = end - 1;
                format!(
                    "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {start}-{last}/{total}\r\nContent-Length: {}\r\n",
                    part.len()
                )
            }
            None => format!("HTTP/1.1 200 OK\r\nContent-Length: {total}\r\n"),
        };
        {
            let mut state = self.state();
            let is_for_header = request.is_for_header();
            if let Some((at, times)) = &mut state.faults.flip
                && *times > 0
                && !is_for_header
                && (start as u64..end as u64).contains(at)
            {
                *times -= 1;
                part[*at as usize - start] ^= 1;
            }
            if let Some((share, times)) = &mut state.faults.cut
                && *times > 0
                && !is_for_header
            {
                *times -= 1;
                part.truncate((part.len() as f64 * *share) as usize);
            }
        }
        stream.write_all(format!("{head}{headers}Connection: close\r\n\r\n").as_bytes())?;
        if request.method == "HEAD" {
            return Ok(());
        }
        let mut left = part.len();
        for piece in part.chunks(16 << 10) {
            if let Some(rate) = faults.rate {
                thread::sleep(Duration::from_secs_f64(piece.len() as f64 / rate as f64));
            }
            left -= piece.len();
            // The client may ask again as soon as it has the last bytes.
            if left == 0 {
                ended();
            }
            stream.write_all(piece)?;
            if !request.is_for_header() {
                self.state().seen.bytes += piece.len() as u64;
            }
        }
        Ok(())
    }
}

/// The reply of the hub's interface.
fn listing(files: &BTreeMap<String, Arc<Vec<u8>>>, faults: &Faults) -> String {
    let one = |(path, bytes): (&String, &Arc<Vec<u8>>)| {
        let path = faults.listed_path.unwrap_or(path);
        let size = bytes.len();
        let sum = sha256(bytes);
        let lfs = match is_large(path) {
            true => format!(r#","lfs":{{"sha256":"{sum}","size":{size},"pointerSize":134}}"#),
            false => String::new(),
        };
        let blob = if faults.no_sums { String::new() } else { format!(r#","blobId":"{}""#, git_sha1(bytes)) };
        format!(r#"{{"rfilename":{path:?},"size":{size}{blob}{lfs}}}"#)
    };
    let siblings: Vec<String> = files.iter().map(one).collect();
    format!(r#"{{"id":"a/b","sha":"{COMMIT}","siblings":[{}]}}"#, siblings.join(","))
}

/// The same files as huggingface_hub requests them.
fn tree(files: &BTreeMap<String, Arc<Vec<u8>>>) -> String {
    let one = |(path, bytes): (&String, &Arc<Vec<u8>>)| {
        let size = bytes.len();
        let sum = sha256(bytes);
        let lfs = match is_large(path) {
            true => format!(r#","lfs":{{"oid":"{sum}","size":{size},"pointerSize":134}}"#),
            false => String::new(),
        };
        format!(r#"{{"type":"file","path":{path:?},"size":{size},"oid":"{}"{lfs}}}"#, git_sha1(bytes))
    };
    format!("[{}]", files.iter().map(one).collect::<Vec<_>>().join(","))
}

/// Whether the hub keeps a file in its large storage, by the attributes of usual repositories. Others are in Git.
fn is_large(path: &str) -> bool {
    [".gguf", ".safetensors", ".model"].iter().any(|ending| path.ends_with(ending))
}

/// The SHA-1 by which Git names a content, in hexadecimal digits.
pub(crate) fn git_sha1(bytes: &[u8]) -> String {
    let sum = Sha1::new().chain_update(format!("blob {}\0", bytes.len())).chain_update(bytes).finalize();
    sum.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// SHA-256 in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

struct Request {
    method: String,
    target: String,
    headers: BTreeMap<String, String>,
}

impl Request {
    fn is_for_header(&self) -> bool {
        self.headers.get("range").is_some_and(|range| range == HEADER)
    }

    fn read(stream: &TcpStream) -> std::io::Result<Request> {
        let mut lines = BufReader::new(stream).lines();
        let first = lines.next().unwrap_or(Ok(String::new()))?;
        let mut words = first.split(' ').map(str::to_owned);
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let mut headers = BTreeMap::new();
        for line in lines {
            let line = line?;
            if line.is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':') {
                headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
            }
        }
        Ok(Request { method, target, headers })
    }
}

fn reply(stream: &mut TcpStream, status: u16, headers: &str, body: &[u8]) -> std::io::Result<()> {
    let head =
        format!("HTTP/1.1 {status} Status\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)
}
