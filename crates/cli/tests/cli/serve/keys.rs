//! The file of keys: what is refused, and reading it again.

use std::fs;
use std::time::{Duration, Instant};

use super::{Serving, rest};
use crate::path;

fn status(server: &Serving, key: &str) -> String {
    let reply = rest(server.post(&format!("x-api-key: {key}\r\n"), r#"{"prompt": "a", "max_tokens": 1}"#));
    reply.get(9..12).unwrap_or_default().to_owned()
}

fn wait_until(what: &str, ready: impl Fn() -> bool) {
    let start = Instant::now();
    while !ready() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what} does not happen");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_hangup_reads_the_keys_again() {
    let (file, log) = (path("reloaded-keys"), path("reloaded.log"));
    let _ = fs::remove_file(&log);
    fs::write(&file, "# the team's\nfirst anna rpm=100\nsecond\n").expect("a written file");
    let mut server = Serving::new(&["--keys", &file, "--access-log", &log]);
    assert_eq!(["first", "second", "third"].map(|key| status(&server, key)), ["200", "200", "401"]);
    fs::write(&file, "third anna\n").expect("a written file");
    server.hang_up();
    wait_until("the change of keys", || status(&server, "third") == "200");
    assert_eq!(["first", "second"].map(|key| status(&server, key)), ["401", "401"]);
    for wrong in ["", "third anna rpm=none\n", "a b c\n", "fourth\nfourth x\n", "third ben\n\nfourth ben rpm=5\n"] {
        fs::write(&file, wrong).expect("a written file");
        server.hang_up();
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(["third", "fourth"].map(|key| status(&server, key)), ["200", "401"], "{wrong:?}");
    }
    let lines = server.lines();
    let errors: Vec<&String> = lines.iter().filter(|line| line.contains("ERROR the keys are unchanged")).collect();
    assert_eq!(errors.len(), 5, "{lines:?}");
    for (error, problem) in errors.iter().zip([
        "there are no keys",
        "line 1 rpm: the limit",
        "line 1 has more",
        "line 2 has the key",
        "line 3 has other limits than line 1 with the same name",
    ]) {
        assert!(error.contains(problem), "{error}");
    }
    let log = fs::read_to_string(&log).expect("a log");
    assert!(log.contains(", key anna, id ") && log.contains(", key key-1, id "), "{log}");
    assert!(["first", "second", "third"].iter().all(|key| !log.contains(&format!("{key}\n"))), "{log}");
}
