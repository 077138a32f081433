//! Serves files as a hub would, for `cargo xtask prove hub` and `prove guides`:
//! `standin (ORG/REPO FILE...)... [--rate BYTES_PER_SECOND]`, where each FILE is an absolute path, or NAME=PATH for a file
//! of another name in the repository. Prints the address, then after each line on stdin what was asked since the last one.

#[path = "../tests/hub/standin.rs"]
mod standin;

use std::io::BufRead;
use std::path::Path;

use standin::{COMMIT, Faults, StandIn};

fn main() {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let mut faults = Faults::default();
    if let Some(at) = words.iter().position(|word| word == "--rate") {
        faults.rate = words.get(at + 1).map(|rate| rate.parse().expect("--rate takes a number"));
        words.drain(at..words.len().min(at + 2));
    }
    let hub = StandIn::start("none/none", Vec::new());
    let mut rest = &words[..];
    while let Some((repo, others)) = rest.split_first() {
        let count = others.iter().take_while(|word| file(word).is_some()).count();
        let files = others[..count].iter().filter_map(|word| file(word));
        hub.add(repo, files.map(|(name, path)| (name, read(path))).collect());
        rest = &others[count..];
    }
    hub.set(faults);
    println!("{} {COMMIT}", hub.endpoint);
    for _ in std::io::stdin().lock().lines() {
        let seen = hub.take();
        println!("hub={} cdn={} bytes={}", seen.hub.len(), seen.cdn.len(), seen.bytes);
    }
}

/// The name in the repository, and the path.
fn file(word: &str) -> Option<(&str, &str)> {
    if Path::new(word).is_absolute() {
        return Some((Path::new(word).file_name()?.to_str()?, word));
    }
    word.split_once('=').filter(|(_, path)| Path::new(path).is_absolute())
}

fn read(path: &str) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}
