//! Default sampling settings.

use std::collections::HashSet;
use std::fs;

use super::tiny::{Random, Tiny};
use super::{gristmill, path, speech};

/// The settings that `--verbose` prints, and stderr.
#[track_caller]
fn settings(arguments: &[&str]) -> (String, String) {
    let err = gristmill(&[&["run", "-n", "1", "-v"], arguments].concat(), b"").err;
    let line = err.lines().find_map(|line| line.strip_prefix("sampling: ")).unwrap_or_else(|| panic!("{err}"));
    let line = line.strip_suffix(", presence-penalty 0, frequency-penalty 0").unwrap_or_else(|| panic!("{line}"));
    (line.to_owned(), err.clone())
}

#[test]
fn the_command_line_overrides_the_file() {
    let mut tiny = Tiny::llama();
    speech::teach(&mut tiny);
    tiny.set("general.sampling.temp", 0.25_f32);
    tiny.set("general.sampling.top_k", 7_i32);
    tiny.set("general.sampling.top_p", 0.5_f32);
    tiny.set("general.sampling.min_p", 0.125_f32);
    tiny.set("general.sampling.penalty_repeat", 1.5_f32);
    let model = path("recommends.gguf");
    fs::write(&model, tiny.bytes(&mut Random::fresh())).unwrap();
    let all = "temperature 0.25, top-k 7, top-p 0.5, min-p 0.125, repeat-penalty 1.5";
    assert_eq!(settings(&[&model, "x"]).0, all);
    let given = ["--temp", "0.5", "--top-k", "0", "--top-p", "1", "--min-p", "0", "--repeat-penalty", "1"];
    let expected = "temperature 0.5, top-k 0, top-p 1, min-p 0, repeat-penalty 1";
    assert_eq!(settings(&[&[model.as_str(), "x"], &given[..]].concat()).0, expected);
    // As other programs write all tokens, and the most likely one.
    let (line, _) = settings(&[&model, "x", "--top-k", "-1", "--top-p", "0"]);
    assert!(line.contains("top-k 0, ") && line.contains(&format!("top-p {}, ", f32::MIN_POSITIVE)), "{line}");
    assert_eq!(settings(&[&model, "x", "--temp", "2"]).0, all.replace("temperature 0.25", "temperature 2"));
    assert_eq!(settings(&["MODEL", "x"]).0, "temperature 0.7, top-k 40, top-p 0.95, min-p 0.05, repeat-penalty 1");
    // The same holds for a chat.
    let chat = gristmill(&["chat", &model, "-n", "1", "-v"], b"x\n").err;
    assert!(chat.contains(&format!("sampling: {all}")), "{chat}");

    // Values out of range are reported and left out.
    tiny.set("general.sampling.temp", -1_f32);
    tiny.set("general.sampling.top_k", -1_i32);
    tiny.set("general.sampling.min_p", "small");
    fs::write(&model, tiny.bytes(&mut Random::fresh())).unwrap();
    let (line, err) = settings(&[&model, "x"]);
    assert_eq!(line, "temperature 0.7, top-k 0, top-p 0.5, min-p 0.05, repeat-penalty 1.5");
    for key in ["general.sampling.temp", "general.sampling.min_p"] {
        assert!(err.lines().any(|line| line.contains(key) && line.contains("left out")), "{key}: {err}");
    }
}

/// With its default settings, the built-in model repeats less than 2% of the runs of four words in a story.
#[test]
fn stories_repeat_little() {
    let (mut again, mut all) = (0, 0);
    for seed in 1..=20 {
        let story = gristmill(&["run", "-q", "--seed", &seed.to_string(), "Once upon a time"], b"").success();
        let words: Vec<String> = story.split(|c: char| !c.is_alphabetic()).map(str::to_lowercase).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).filter(|word| !word.is_empty()).collect();
        let mut known = HashSet::new();
        all += words.windows(4).count();
        again += words.windows(4).filter(|run| !known.insert(run.to_vec())).count();
    }
    assert!(all > 1_000 && again * 100 < all * 2, "{again} of {all}");
}
