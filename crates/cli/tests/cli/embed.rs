//! `embed`: vectors of texts, from the command line, a file and stdin.

use std::fs;

use serde_json::Value;

use super::{gristmill, path};

/// The vectors that a run prints.
#[track_caller]
fn vectors(arguments: &[&str], stdin: &str) -> Vec<Vec<f32>> {
    let out = gristmill(&[&["embed"], arguments].concat(), stdin.as_bytes()).success();
    let vector = |line: &str| line.split(' ').map(|number| number.parse().expect("a number")).collect();
    out.lines().map(vector).collect()
}

#[test]
fn texts_become_vectors() {
    let file = path("texts.txt");
    fs::write(&file, "abc\nwheat and rye\n").expect("a written file");
    let both = vectors(&["MODEL", "abc", "wheat and rye"], "");
    assert_eq!(both.len(), 2);
    for vector in &both {
        let length: f32 = vector.iter().map(|x| x * x).sum();
        assert!((length - 1.0).abs() < 1e-5, "{length}");
    }
    assert_ne!(both[0], both[1]);
    // A vector does not depend on other texts.
    assert_eq!(vectors(&["MODEL", "abc"], "")[0], both[0]);
    assert_eq!(vectors(&["MODEL", "-f", &file], ""), both);
    assert_eq!(vectors(&["MODEL"], "abc\nwheat and rye"), both);
    assert_eq!(vectors(&["MODEL", "abc", "-f", "-"], "wheat and rye\n"), both);
    // More than are computed at once.
    let many = vectors(&["MODEL"], &"abc\nwheat and rye\n".repeat(70));
    assert!(many.len() == 140 && many.chunks(2).all(|pair| pair == both));

    let json = gristmill(&["embed", "--json", "-q", "MODEL", "abc", "wheat and rye"], b"").success();
    for ((line, vector), text) in json.lines().zip(&both).zip(["abc", "wheat and rye"]) {
        let line: Value = serde_json::from_str(line).expect("an object");
        assert_eq!(line["text"], text);
        let numbers = line["embedding"].as_array().expect("a list").iter();
        let numbers: Vec<f32> = numbers.map(|number| number.as_f64().expect("a number") as f32).collect();
        assert_eq!(&numbers, vector);
    }
}

#[test]
fn texts_that_are_refused() {
    let refused = |arguments: &[&str], stdin: &str, message: &str| {
        let ended = gristmill(&[&["embed", "MODEL"], arguments].concat(), stdin.as_bytes());
        assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{arguments:?}");
        assert!(ended.last_line().contains(message), "{message} in {}", ended.err);
    };
    refused(&[], "", "there is no text");
    refused(&["--ctx", "8", "abc", "a text that is too long"], "", "text 2: ");
    refused(&["-f", "/nothing/there"], "", "cannot read /nothing/there");
}
