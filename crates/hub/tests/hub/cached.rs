//! The contents of the cache, and their removal.

use std::fs;

use gristmill_hub::{Cache, Error, Options};

use crate::standin::{COMMIT, sha256};
use crate::{Case, noise, reference};

#[test]
fn models_are_listed_by_the_names_that_find_them() {
    let case = Case::new();
    let cache = Cache::new(&case.cache.0);
    assert_eq!(cache.models().expect("an empty cache"), []);
    case.pull("org/m-GGUF").expect("one");
    case.pull("org/m-GGUF:Q8_0").expect("another");
    let models = cache.models().expect("two");
    let names: Vec<String> = models.iter().map(|model| model.reference.to_string()).collect();
    assert_eq!(names, ["org/m-GGUF:Q4_K_M", "org/m-GGUF:Q8_0"]);
    assert_eq!((models[1].files.len(), models[1].size, models[1].tag.as_deref()), (2, 120_003, Some("Q8_0")));
    assert!(models.iter().all(|model| model.last_used.is_some()));
    let offline = Options { offline: true, ..case.options() };
    for (name, model) in names.iter().zip(&models) {
        assert_eq!(case.pull_with(name, offline.clone()).expect(name), model.files);
    }
}

#[test]
fn removing_frees_what_no_snapshot_needs() {
    let case = Case::new();
    let cache = Cache::new(&case.cache.0);
    let path = case.pull("org/m-GGUF").expect("one")[0].clone();
    case.pull("org/m-GGUF:Q8_0").expect("another");
    let folder = case.cache.0.join("models--org--m-GGUF");
    // Another commit has the same content.
    let other = folder.join("snapshots").join("f".repeat(40));
    fs::create_dir_all(&other).expect("a folder");
    let sum = sha256(&case.bytes);
    let blob = folder.join("blobs").join(&sum);
    link(&sum, &other.join("m-Q4_K_M.gguf"));

    let removed = cache.remove(&reference(&format!("org/m-GGUF:Q4_K_M@{COMMIT}"))).expect("one snapshot's");
    assert_eq!((removed.files, removed.bytes), (1, 0), "the other snapshot needs the content");
    assert!(!path.exists() && blob.is_file());
    let removed = cache.remove(&reference("org/m-GGUF:q4_k_m")).expect("everywhere");
    assert!(removed.files == 1 && removed.bytes >= case.bytes.len() as u64, "{removed:?}");
    assert!(!blob.exists() && !other.exists());
    assert_eq!(cache.models().expect("one is left").len(), 1);
    assert!(matches!(cache.remove(&reference("org/m-GGUF:Q4_K_M")), Err(Error::NotCached { .. })));
    cache.remove(&reference("org/m-GGUF")).expect("the rest");
    assert!(!folder.exists());
    assert!(matches!(cache.remove(&reference("org/m-GGUF")), Err(Error::NotCached { .. })));
}

#[test]
fn what_another_process_downloads_is_not_removed() {
    let case = Case::new();
    case.pull("org/m-GGUF").expect("one");
    let sum = sha256(&case.bytes);
    let lock = case.cache.0.join(format!(".locks/models--org--m-GGUF/{sum}.lock"));
    let held = fs::File::open(lock).expect("the lock");
    held.lock().expect("nobody has it");
    let cache = Cache::new(&case.cache.0);
    assert!(matches!(cache.remove(&reference("org/m-GGUF")), Err(Error::Locked { .. })));
    drop(held);
    case.pull("org/m-GGUF").expect("the content is still there");
    assert_eq!(case.hub.take().bytes, case.bytes.len() as u64);
}

#[test]
fn links_without_content_are_no_models() {
    let case = Case::new();
    case.pull("org/m-GGUF").expect("one");
    let blobs = case.cache.0.join("models--org--m-GGUF/blobs");
    fs::remove_dir_all(&blobs).expect("removed");
    assert_eq!(Cache::new(&case.cache.0).models().expect("none"), []);
    case.check(&case.pull("org/m-GGUF").expect("downloaded again"));
}

#[test]
fn foreign_folders_are_left_alone() {
    let case = Case::new();
    for name in ["datasets--a--b", "models--", "models--x", "models--..--x", "CACHEDIR.TAG"] {
        fs::create_dir_all(case.cache.0.join(name).join("snapshots").join("f".repeat(40))).expect("a folder");
    }
    fs::write(case.cache.0.join("models--x/snapshots").join("f".repeat(40)).join("a.gguf"), noise(5)).expect("a file");
    assert_eq!(Cache::new(&case.cache.0).models().expect("none"), []);
}

/// Where links fail, other programs keep copies; they are found and removed too.
#[test]
fn copies_serve_as_links_do() {
    let case = Case::new();
    let path = case.pull("org/m-GGUF").expect("one")[0].clone();
    fs::remove_file(&path).expect("the link");
    fs::write(&path, &case.bytes).expect("a copy");
    assert_eq!(case.pull("org/m-GGUF").expect("the copy"), [path]);
    let removed = Cache::new(&case.cache.0).remove(&reference("org/m-GGUF")).expect("removed");
    assert!(removed.bytes >= 2 * case.bytes.len() as u64, "{removed:?}");
}

#[cfg(unix)]
fn link(sum: &str, to: &std::path::Path) {
    std::os::unix::fs::symlink(format!("../../blobs/{sum}"), to).expect("a link");
}

#[cfg(windows)]
fn link(sum: &str, to: &std::path::Path) {
    std::os::windows::fs::symlink_file(format!("..\\..\\blobs\\{sum}"), to).expect("a link");
}
