//! The client against a mock of the hub: what goes right, and all that can go wrong.

mod cached;
mod folder;
mod killed;
mod standin;
mod wrong;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gristmill_hub::{Error, Event, Hub, Options, Reference, Token};
use standin::{Faults, StandIn};

/// A folder that goes with the value.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("gristmill-hub-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Bytes without a pattern.
fn noise(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ count as u64;
    let next = |state: &mut u64| {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state >> 24) as u8
    };
    (0..count).map(|_| next(&mut state)).collect()
}

const SIZE: usize = 3_000_017;

/// A mock with models and other files, and an empty cache.
struct Case {
    hub: StandIn,
    cache: Folder,
    bytes: Vec<u8>,
}

impl Case {
    fn new() -> Case {
        let bytes = noise(SIZE);
        let files = vec![
            ("README.md", b"text".to_vec()),
            ("m-Q4_K_M.gguf", bytes.clone()),
            ("m-Q8_0-00001-of-00002.gguf", noise(70_001)),
            ("m-Q8_0-00002-of-00002.gguf", noise(50_002)),
            ("lora-m-Q8_0.gguf", noise(1_003)),
            ("m-Q2_K.gguf", Vec::new()),
        ];
        Case { hub: StandIn::start("org/m-GGUF", files), cache: Folder::new(), bytes }
    }

    fn with(faults: Faults) -> Case {
        let case = Case::new();
        case.hub.set(faults);
        case
    }

    /// Small pieces, and little patience.
    fn options(&self) -> Options {
        Options {
            endpoint: self.hub.endpoint.clone(),
            piece: 400_000,
            patience: Duration::from_millis(1),
            timeout: Duration::from_secs(10),
            ..Options::new(&self.cache.0)
        }
    }

    fn pull_with(&self, name: &str, options: Options) -> Result<Vec<PathBuf>, Error> {
        Hub::new(options)?.pull(&reference(name), &|_| ())
    }

    fn fetch(&self, name: &str) -> Result<Vec<PathBuf>, Error> {
        Hub::new(self.options())?.fetch(&reference(name), &|_| ())
    }

    fn pull(&self, name: &str) -> Result<Vec<PathBuf>, Error> {
        self.pull_with(name, self.options())
    }

    /// Fails unless the default model is in the cache as it is at the hub.
    fn check(&self, paths: &[PathBuf]) {
        assert_eq!(paths.len(), 1);
        assert!(std::fs::read(&paths[0]).expect("the file") == self.bytes, "other bytes");
        let blobs = self.cache.0.join("models--org--m-GGUF/blobs");
        let names: Vec<_> = std::fs::read_dir(blobs).expect("blobs").flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(names, [standin::sha256(&self.bytes).as_str()], "nothing else is left");
    }
}

fn reference(name: &str) -> Reference {
    name.parse().expect(name)
}

#[test]
fn a_model_is_downloaded_once_and_laid_out_as_others_expect() {
    let case = Case::new();
    let paths = case.pull("org/m-GGUF").expect("it is there");
    case.check(&paths);
    let folder = case.cache.0.join("models--org--m-GGUF");
    assert_eq!(paths[0], folder.join("snapshots").join(standin::COMMIT).join("m-Q4_K_M.gguf"));
    assert_eq!(std::fs::read_to_string(folder.join("refs/main")).expect("a reference"), standin::COMMIT);
    let sum = standin::sha256(&case.bytes);
    #[cfg(unix)]
    assert_eq!(std::fs::read_link(&paths[0]).expect("a link"), Path::new("../../blobs").join(&sum));
    assert!(case.cache.0.join(".locks/models--org--m-GGUF").join(format!("{sum}.lock")).is_file());
    let seen = case.hub.take();
    assert_eq!(seen.bytes, SIZE as u64, "each byte came once");
    assert_eq!(seen.cdn.len(), SIZE.div_ceil(400_000));
    assert_eq!(seen.hub.len(), 2, "the listing and one redirect: {:?}", seen.hub);

    assert_eq!(case.pull("org/m-GGUF").expect("the same"), paths);
    assert_eq!(case.hub.take().cdn.len(), 0, "nothing is downloaded twice");
    // `fetch` does not even ask.
    let hub = Hub::new(case.options()).expect("a client");
    assert_eq!(hub.fetch(&reference("org/m-GGUF"), &|_| ()).expect("the same"), paths);
    assert_eq!(hub.fetch(&reference("org/m-GGUF:q4_k_m"), &|_| ()).expect("the same"), paths);
    assert_eq!(case.hub.take().hub.len(), 0);
}

#[test]
fn as_many_connections_as_allowed_run_at_once() {
    for connections in [1, 3] {
        let case = Case::with(Faults { rate: Some(4_000_000), ..Faults::default() });
        let options = Options { connections, ..case.options() };
        case.check(&case.pull_with("org/m-GGUF", options).expect("it is there"));
        assert_eq!(case.hub.take().at_once, connections);
    }
}

#[test]
fn split_models_revisions_and_files_are_found() {
    let case = Case::new();
    let paths = case.pull("org/m-GGUF:q8_0@refs/pr/1").expect("it is there");
    let names: Vec<_> = paths.iter().map(|path| path.file_name().and_then(|name| name.to_str())).collect();
    assert_eq!(names, [Some("m-Q8_0-00001-of-00002.gguf"), Some("m-Q8_0-00002-of-00002.gguf")]);
    assert!(case.cache.0.join("models--org--m-GGUF/refs/refs/pr/1").is_file());
    let empty = case.pull("org/m-GGUF:m-Q2_K.gguf").expect("an empty file");
    assert_eq!(std::fs::metadata(&empty[0]).expect("the file").len(), 0);
    assert!(matches!(case.pull("org/m-GGUF:Q6_K"), Err(Error::NoSuchModel { .. })));
    assert!(matches!(case.pull("org/m-GGUF@v9"), Err(Error::NotFound { .. })));
    let by_commit = case.pull(&format!("org/m-GGUF:Q8_0@{}", standin::COMMIT)).expect("by commit");
    assert_eq!(by_commit, paths);
}

#[test]
fn progress_counts_every_byte_and_both_phases() {
    let case = Case::with(Faults { cut: Some((0.5, 1)), ..Faults::default() });
    let log = Mutex::new((0, 0, Vec::new()));
    let hub = Hub::new(case.options()).expect("a client");
    let progress = |event: Event| {
        let mut log = log.lock().expect("no panic");
        match event {
            Event::Bytes(count) => log.0 += count,
            Event::Verified(count) => log.1 += count,
            Event::Begin { file, size, had } => log.2.push(format!("{file} {size} {had}")),
            Event::End { file, sum } => log.2.push(format!("{file} {}", sum.digits())),
            Event::Retry { .. } => log.2.push("again".to_owned()),
            _ => {}
        }
    };
    hub.pull(&reference("org/m-GGUF"), &progress).expect("it is there");
    let (bytes, verified, events) = log.into_inner().expect("no panic");
    assert_eq!((bytes, verified), (SIZE as u64, SIZE as u64));
    assert_eq!(
        events,
        [&format!("m-Q4_K_M.gguf {SIZE} 0"), "again", &format!("m-Q4_K_M.gguf {}", standin::sha256(&case.bytes))]
    );
}

#[test]
fn the_token_goes_to_the_hub_alone() {
    let case = Case::with(Faults { token: Some("hf_secret"), ..Faults::default() });
    let error = case.pull("org/m-GGUF").expect_err("it is private");
    assert!(matches!(error, Error::Unauthorized { .. }) && error.to_string().contains("HF_TOKEN"), "{error}");
    let token = Token::new("hf_secret").expect("a token");
    let options = Options { token: token.clone(), ..case.options() };
    case.check(&case.pull_with("org/m-GGUF", options).expect("with the token"));
    let seen = case.hub.take();
    assert!(!seen.cdn.is_empty() && seen.cdn_tokens.is_empty(), "{:?}", seen.cdn_tokens);
    assert!(seen.hub_tokens.iter().all(|token| token == "Bearer hf_secret") && seen.hub_tokens.len() >= 2);
    // Wrong tokens are not printed either.
    let wrong = Options { token: Token::new("hf_wrong").expect("a token"), ..case.options() };
    let shown = format!("{wrong:?}");
    let error = case.pull_with("org/m-GGUF:Q8_0", wrong).expect_err("a wrong token");
    assert!(!format!("{error} {error:?} {shown}").contains("hf_"), "{error:?}");
}

#[test]
fn the_projector_of_a_model_comes_with_it() {
    let hub = StandIn::start(
        "org/v-GGUF",
        vec![
            ("v-Q4_K_M.gguf", noise(5_000)),
            ("mmproj-v-BF16.gguf", noise(1_001)),
            ("mmproj-v-F16.gguf", noise(1_002)),
            ("mmproj-v-Q8_0.gguf", noise(1_003)),
        ],
    );
    let cache = Folder::new();
    let options = Options { endpoint: hub.endpoint.clone(), ..Options::new(&cache.0) };
    let paths = Hub::new(options).expect("a client").pull(&reference("org/v-GGUF"), &|_| ()).expect("it is there");
    assert_eq!(paths.len(), 1, "the model alone is opened");
    let folder = paths[0].parent().expect("a folder");
    let mut names: Vec<_> =
        std::fs::read_dir(folder).expect("files").flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    assert_eq!(names, ["mmproj-v-F16.gguf", "v-Q4_K_M.gguf"]);
}
