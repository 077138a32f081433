//! Everything that may go wrong between a hub and a cache.

use std::time::{Duration, Instant};

use gristmill_hub::{Error, Options};

use crate::standin::{Faults, StandIn};
use crate::{Case, Folder, SIZE};

fn fault(faults: Faults) -> (Case, Result<Vec<std::path::PathBuf>, Error>) {
    let case = Case::with(faults);
    let pulled = case.pull("org/m-GGUF");
    (case, pulled)
}

#[test]
fn a_cut_at_37_percent_is_resumed_within_the_download() {
    let (case, pulled) = fault(Faults { cut: Some((0.37, 5)), ..Faults::default() });
    case.check(&pulled.expect("it goes on"));
    assert_eq!(case.hub.take().bytes, SIZE as u64, "no byte came twice");
}

#[test]
fn a_cut_that_ends_the_download_is_resumed_by_the_next() {
    let case = Case::with(Faults { cut: Some((0.37, 1)), status: None, ..Faults::default() });
    // One piece, one attempt: the hub then refuses.
    let options = || Options { piece: 64 << 20, ..case.options() };
    case.hub.set(Faults { cut: Some((0.37, 1)), ..Faults::default() });
    let hub = case.hub.clone();
    let stop = move |event: gristmill_hub::Event| {
        if let gristmill_hub::Event::Retry { .. } = event {
            hub.set(Faults { status: Some((404, "", 1)), hub_status: Some((404, "", 1)), ..Faults::default() });
        }
    };
    let client = gristmill_hub::Hub::new(options()).expect("a client");
    let error = client.pull(&crate::reference("org/m-GGUF"), &stop).expect_err("it was cut");
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
    case.hub.set(Faults::default());
    case.check(&case.pull_with("org/m-GGUF", options()).expect("the rest"));
    let seen = case.hub.take();
    assert_eq!(seen.bytes, SIZE as u64, "no byte came twice");
}

#[test]
fn a_wrong_byte_is_found() {
    let (case, pulled) = fault(Faults { flip: Some((1_234_567, 1)), ..Faults::default() });
    let error = pulled.expect_err("a wrong byte");
    assert!(matches!(error, Error::Checksum { .. }), "{error}");
    let blobs = case.cache.0.join("models--org--m-GGUF/blobs");
    assert_eq!(std::fs::read_dir(blobs).expect("blobs").count(), 0, "nothing is left of it");
    assert!(!case.cache.0.join("models--org--m-GGUF/snapshots").exists());
    case.check(&case.pull("org/m-GGUF").expect("right bytes"));
}

#[test]
fn wrong_bytes_of_an_earlier_download_are_replaced() {
    let case = Case::new();
    let sum = crate::standin::sha256(&case.bytes);
    case.hub.set(Faults { flip: Some((5, 1)), ..Faults::default() });
    // The first piece comes with a wrong byte, then the hub is gone.
    let hub = case.hub.clone();
    let gone = move |event: gristmill_hub::Event| {
        if let gristmill_hub::Event::Bytes(_) = event {
            hub.set(Faults { status: Some((404, "", 99)), hub_status: Some((404, "", 99)), ..Faults::default() });
        }
    };
    let client = gristmill_hub::Hub::new(Options { connections: 1, ..case.options() }).expect("a client");
    client.pull(&crate::reference("org/m-GGUF"), &gone).expect_err("the hub is gone");
    let partial = case.cache.0.join(format!("models--org--m-GGUF/blobs/{sum}.gristmill.incomplete"));
    assert!(partial.is_file());
    case.hub.set(Faults::default());
    case.check(&case.pull("org/m-GGUF").expect("it begins again"));
}

#[test]
fn a_commit_that_changes_in_between_is_noticed() {
    let other = "ffffffffffffffffffffffffffffffffffffffff";
    let (case, pulled) = fault(Faults { other_commit: Some(other), ..Faults::default() });
    assert!(matches!(pulled, Err(Error::Changed { found, .. }) if found == other));
    // The download requests the commit of the listing, so a branch that moves changes nothing.
    let asked = case.hub.take().hub;
    assert!(asked.iter().any(|line| line.contains(&format!("/resolve/{}/", crate::standin::COMMIT))), "{asked:?}");
}

#[test]
fn refusals_have_reason_and_remedy() {
    for (status, words) in [(401, "token"), (403, "gated"), (404, "check the name"), (418, "418")] {
        let (case, pulled) = fault(Faults { hub_status: Some((status, "", 99)), ..Faults::default() });
        let error = pulled.expect_err("refused").to_string();
        assert!(error.contains(&status.to_string()) && error.contains(words), "{error}");
        assert_eq!(case.hub.take().hub.len(), 1, "{status} is not asked again");
    }
    // The same of the host of the downloads, and without its signature.
    for status in [401, 403, 404, 416] {
        let (_, pulled) = fault(Faults { status: Some((status, "", 99)), ..Faults::default() });
        let error = pulled.expect_err("refused").to_string();
        assert!(error.contains(&status.to_string()) && !error.contains("signature="), "{error}");
    }
}

#[test]
fn a_busy_hub_is_asked_again_when_it_says() {
    let busy = Some((429, "Retry-After: 1\r\n", 1));
    let case = Case::with(Faults { status: busy, ..Faults::default() });
    let begin = Instant::now();
    case.check(&case.pull("org/m-GGUF").expect("after a second"));
    assert!(begin.elapsed() >= Duration::from_secs(1), "{:?}", begin.elapsed());
    // The same of the listing.
    let case = Case::with(Faults { hub_status: Some((429, "Retry-After: 1\r\n", 1)), ..Faults::default() });
    let begin = Instant::now();
    case.check(&case.pull("org/m-GGUF").expect("after a second"));
    assert!(begin.elapsed() >= Duration::from_secs(1), "{:?}", begin.elapsed());
    // Longer than anybody waits.
    let (_, pulled) = fault(Faults { status: Some((429, "Retry-After: 4000\r\n", 1)), ..Faults::default() });
    assert!(matches!(&pulled, Err(Error::Busy { status: 429, .. })), "{pulled:?}");
    assert!(pulled.expect_err("busy").to_string().contains("4000 s"));
    // Servers that are down for a moment.
    let (case, pulled) = fault(Faults { status: Some((503, "", 2)), ..Faults::default() });
    case.check(&pulled.expect("later"));
    let (_, pulled) = fault(Faults { status: Some((503, "", 99)), ..Faults::default() });
    assert!(matches!(pulled, Err(Error::Busy { status: 503, .. })));
}

#[test]
fn a_server_that_ignores_ranges_sends_the_file_once() {
    let (case, pulled) = fault(Faults { ignore_range: true, ..Faults::default() });
    case.check(&pulled.expect("as a whole"));
    let seen = case.hub.take();
    assert_eq!((seen.bytes, seen.cdn.len()), (SIZE as u64, 1));
    // Cut, it sends everything again, and the bytes are still right.
    let (case, pulled) = fault(Faults { ignore_range: true, cut: Some((0.37, 2)), ..Faults::default() });
    case.check(&pulled.expect("as a whole"));
}

#[test]
fn lying_lengths_are_refused() {
    for (longer, ignore_range) in [(1, false), (-1, false), (1, true), (-1, true)] {
        let (_, pulled) = fault(Faults { longer, ignore_range, ..Faults::default() });
        let error = pulled.expect_err("another length");
        assert!(matches!(error, Error::Changed { .. }), "{longer} {ignore_range}: {error}");
    }
}

#[test]
fn paths_that_lead_elsewhere_are_refused() {
    for path in ["../../x-Q4_K_M.gguf", "/tmp/x-Q4_K_M.gguf", "a/../../x.gguf", "..\\x.gguf"] {
        let (case, pulled) = fault(Faults { listed_path: Some(path), ..Faults::default() });
        assert!(matches!(&pulled, Err(Error::Path(found)) if found == path), "{pulled:?}");
        assert_eq!(case.hub.take().cdn.len(), 0);
        assert_eq!(std::fs::read_dir(&case.cache.0).expect("the cache").count(), 0, "nothing is written");
    }
}

#[test]
fn redirects_that_do_not_end_are_left() {
    let (case, pulled) = fault(Faults { redirect_loop: true, ..Faults::default() });
    assert!(matches!(pulled, Err(Error::Redirect { .. })));
    assert_eq!(case.hub.take().hub.len(), 11);
}

#[test]
fn a_signature_that_expires_is_asked_for_again() {
    let case = Case::with(Faults { signature_lasts: Some(2), ..Faults::default() });
    let options = Options { connections: 1, ..case.options() };
    case.check(&case.pull_with("org/m-GGUF", options).expect("new signatures"));
    assert_eq!(case.hub.take().hub.len(), 1 + SIZE.div_ceil(400_000).div_ceil(2));
}

#[test]
fn offline_nothing_is_sent() {
    let case = Case::new();
    let offline = || Options { offline: true, ..case.options() };
    let error = case.pull_with("org/m-GGUF", offline()).expect_err("nothing is there");
    assert!(matches!(error, Error::Offline { .. }) && error.to_string().contains("offline"), "{error}");
    case.pull("org/m-GGUF").expect("it is there");
    case.hub.take();
    case.check(&case.pull_with("org/m-GGUF", offline()).expect("from the cache"));
    assert!(case.pull_with("org/m-GGUF:Q8_0", offline()).is_err());
    let seen = case.hub.take();
    assert_eq!((seen.hub.len(), seen.cdn.len()), (0, 0));
}

#[test]
fn a_hub_that_is_away_leaves_the_cache_in_use() {
    let case = Case::new();
    let away = || Options { endpoint: "http://127.0.0.1:9".to_owned(), ..case.options() };
    assert!(matches!(case.pull_with("org/m-GGUF", away()), Err(Error::Connection { .. })));
    case.pull("org/m-GGUF").expect("it is there");
    case.check(&case.pull_with("org/m-GGUF", away()).expect("from the cache"));
}

#[test]
fn files_that_nothing_verifies_are_not_taken() {
    let cache = Folder::new();
    let hub = StandIn::start("org/m-GGUF", vec![("m-Q4_K_M.GGUF", b"small".to_vec())]);
    hub.set(Faults { no_sums: true, ..Faults::default() });
    let options = Options { endpoint: hub.endpoint.clone(), ..Options::new(&cache.0) };
    let client = gristmill_hub::Hub::new(options).expect("a client");
    let pulled = client.pull(&crate::reference("org/m-GGUF"), &|_| ());
    assert!(matches!(pulled, Err(Error::Unverifiable { .. })), "{pulled:?}");
}

#[test]
fn endpoints_that_are_no_addresses_are_refused() {
    for endpoint in ["", "huggingface.co", "ftp://hub", "file:///etc", "http://"] {
        let options = Options { endpoint: endpoint.to_owned(), ..Options::new("/nowhere") };
        assert!(matches!(gristmill_hub::Hub::new(options), Err(Error::Endpoint(_))), "{endpoint}");
    }
}
