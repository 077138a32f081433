//! Two processes: one that is killed, and two at once.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use gristmill_hub::{Hub, Options};

use crate::standin::Faults;
use crate::{Case, SIZE, reference};

const ENDPOINT: &str = "GRISTMILL_TEST_ENDPOINT";
const CACHE: &str = "GRISTMILL_TEST_CACHE";

/// A pull in a process of its own, which runs the test below.
fn pull_in_a_process(case: &Case) -> Child {
    Command::new(std::env::current_exe().expect("the test"))
        .args(["--exact", "killed::pulls_for_another_test", "--ignored", "--nocapture"])
        .env(ENDPOINT, &case.hub.endpoint)
        .env(CACHE, &case.cache.0)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts")
}

#[test]
#[ignore = "started by other tests"]
fn pulls_for_another_test() {
    let [endpoint, cache] = [ENDPOINT, CACHE].map(|name| std::env::var(name).expect("another test sets it"));
    let options = Options { endpoint, piece: 400_000, ..Options::new(PathBuf::from(cache)) };
    Hub::new(options).expect("a client").pull(&reference("org/m-GGUF"), &|_| ()).expect("it is there");
}

fn wait_for(mut reached: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !reached() {
        assert!(begin.elapsed() < Duration::from_secs(60), "not within a minute");
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_killed_download_goes_on_and_fetches_at_most_1_mib_twice() {
    // Slow, so that no more than a little waits in the sockets.
    let case = Case::with(Faults { rate: Some(1_000_000), ..Faults::default() });
    let mut sent = 0;
    for share in [0.3, 0.6] {
        let mut child = pull_in_a_process(&case);
        wait_for(|| {
            sent += case.hub.take().bytes;
            sent as f64 > share * SIZE as f64
        });
        child.kill().and_then(|()| child.wait()).expect("SIGKILL");
    }
    // The mock may still be sending into closed connections.
    sleep(Duration::from_millis(200));
    sent += case.hub.take().bytes;
    case.hub.set(Faults::default());
    case.check(&case.pull("org/m-GGUF").expect("the rest"));
    let rest = case.hub.take().bytes;
    let twice = sent + rest - SIZE as u64;
    assert!(rest < SIZE as u64 / 2, "it went on where it was killed: {rest} of {SIZE} bytes came at last");
    assert!(twice <= 2 << 20, "{twice} bytes came twice, after two kills");
}

#[test]
fn two_pulls_at_once_download_once() {
    let case = Case::with(Faults { rate: Some(2_000_000), ..Faults::default() });
    let mut children = [(); 2].map(|()| pull_in_a_process(&case));
    for child in &mut children {
        assert!(child.wait().expect("it ends").success());
    }
    assert_eq!(case.hub.take().bytes, SIZE as u64, "each byte came once");
    case.hub.set(Faults::default());
    case.check(&case.pull("org/m-GGUF").expect("it is there"));
}

/// A full disk, where the system lets the test make one: root on Linux, in a mount namespace of its own.
#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_said_and_freed_space_is_used() {
    let case = Case::new();
    let mount = format!("mount -t tmpfs -o size=2m none {0} && exec \"$@\"", case.cache.0.display());
    let run = |script: &str, words: &[&str]| {
        Command::new("unshare").args(["--mount", "--map-root-user", "sh", "-c", script, "sh"]).args(words).output()
    };
    match run(&mount, &["true"]) {
        Ok(done) if done.status.success() => {}
        _ => return eprintln!("skipped: no mount namespaces"),
    }
    let test = std::env::current_exe().expect("the test").display().to_string();
    let done = Command::new("unshare")
        .args(["--mount", "--map-root-user", "sh", "-c", &mount, "sh", &test])
        .args(["--exact", "killed::pulls_for_another_test", "--ignored", "--nocapture"])
        .env(ENDPOINT, &case.hub.endpoint)
        .env(CACHE, &case.cache.0)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
    assert!(!done.status.success() && said.contains("Space {"), "{said}");
    assert_eq!(case.hub.take().cdn.len(), 0, "it is noticed before the download");
    assert!(!Path::new(&case.cache.0).join("models--org--m-GGUF").exists());
}
