//! `--image`, `--mmproj` and the tower in the model's folder, with the tiny tower of LFM2-VL.

use std::fs;
use std::path::{Path, PathBuf};

use crate::tiny::{Random, Tiny};
use crate::{Ended, gristmill, path, speech};

const TOWER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/golden/vision/lfm2-vl-f32.mmproj.gguf");

/// A folder with a model that can read images, as `NAME.gguf`, and pictures of one colour.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("images").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a temporary folder");
    let mut tiny = Tiny::qwen3();
    speech::teach_images(&mut tiny);
    fs::write(folder.join(format!("{name}.gguf")), tiny.bytes(&mut Random::fresh())).expect("a written model");
    for (name, colour) in [("dark.bmp", 0), ("light.bmp", 255)] {
        fs::write(folder.join(name), bmp(colour)).expect("a written image");
    }
    folder
}

/// A BMP of 64 × 64 pixels of one colour.
fn bmp(colour: u8) -> Vec<u8> {
    let mut file = b"BM\0\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x40\0\0\0\x40\0\0\0\x01\0\x18\0".to_vec();
    file.resize(54, 0);
    file.resize(54 + 64 * 64 * 3, colour);
    file
}

fn run(folder: &Path, model: &str, more: &[&str]) -> Ended {
    let at = |word: &str| match word.ends_with(".bmp") || word.ends_with(".gguf") {
        true => folder.join(word).display().to_string(),
        false => word.to_owned(),
    };
    let fixed = ["run", "-m", model, "--temp", "0", "-n", "8", "--threads", "2", "--ctx", "400"];
    let words: Vec<String> = fixed.iter().chain(more).map(|word| at(word)).collect();
    gristmill(&words.iter().map(String::as_str).collect::<Vec<_>>(), b"")
}

#[test]
fn run_shows_images_to_the_model() {
    let folder = folder("seer");
    fs::copy(TOWER, folder.join("mmproj-F16.gguf")).expect("a tower");
    let seen = |more: &[&str]| {
        let ended = run(&folder, "seer.gguf", &[&["--json"][..], more].concat());
        let report: serde_json::Value = serde_json::from_str(&ended.success()).expect("JSON");
        (report["prompt_tokens"].as_u64().expect("a number"), report["text"].as_str().expect("a text").to_owned())
    };
    let (words, _) = seen(&["abc"]);
    let (dark, light) = (seen(&["--image", "dark.bmp", "abc"]), seen(&["--image", "light.bmp", "abc"]));
    assert_eq!((dark.0, light.0), (words + 66, words + 66), "64 tokens and two marks");
    // What a model of random weights says of them may be the same.
    let both = seen(&["--image", "dark.bmp", "--image", "light.bmp", "abc"]);
    assert_eq!(both.0, words + 2 * 66);
    // The file in the folder, and the same that is named.
    let tower = folder.join("mmproj-F16.gguf").display().to_string();
    assert_eq!(seen(&["--mmproj", &tower, "--image", "dark.bmp", "abc"]), dark);
    let without = run(&folder, "seer.gguf", &["--mmproj", "none", "--image", "dark.bmp", "abc"]);
    assert!(without.code == Some(1) && without.last_line().contains("reads no images"), "{}", without.err);
}

/// `fit` counts the tower that lies next to the model.
#[test]
fn fit_counts_the_tower() {
    let folder = folder("counted");
    fs::copy(TOWER, folder.join("mmproj-F16.gguf")).expect("a tower");
    let model = folder.join("counted.gguf").display().to_string();
    let report = |more: &[&str]| -> serde_json::Value {
        let fixed = ["fit", &model, "--bandwidth", "30", "--json", "--ctx", "64"];
        serde_json::from_str(&gristmill(&[&fixed[..], more].concat(), b"").success()).expect("JSON")
    };
    let (with, without) = (report(&[]), report(&["--mmproj", "none"]));
    let number = |value: &serde_json::Value| value.as_u64().expect("a number");
    assert_eq!(number(&without["images"]), 0);
    let images = number(&with["images"]);
    assert!(images > fs::metadata(TOWER).expect("a tower").len(), "{with}");
    let memory = |report: &serde_json::Value| number(&report["formats"][0]["memory_bytes"]);
    assert_eq!(memory(&with), memory(&without) + images);
    let text = gristmill(&["fit", &model, "--bandwidth", "30"], b"").success();
    assert!(text.contains("for the vision tower and the largest image"), "{text}");
}

/// `bench --image` measures the tower alone, of a model with its tower or of a synthetic one.
#[test]
fn bench_measures_the_tower() {
    let folder = folder("measured");
    fs::copy(TOWER, folder.join("mmproj-F16.gguf")).expect("a tower");
    let model = folder.join("measured.gguf").display().to_string();
    let ended = gristmill(&["bench", &model, "--image", "64x64", "--repeats", "1", "--json"], b"");
    let report: serde_json::Value = serde_json::from_str(&ended.success()).expect("JSON");
    assert_eq!((report["tokens"].as_u64(), report["patches"].as_u64()), (Some(64), Some(256)), "{report}");
    assert!(report["tower_seconds"].as_f64() > Some(0.0), "{report}");
    let refused = gristmill(&["bench", &model, "--image", "64", "--repeats", "1"], b"");
    assert!(refused.code == Some(2) && refused.err.contains("WIDTHxHEIGHT"), "{}", refused.err);
    let without = gristmill(&["bench", &model, "--image", "64x64", "--mmproj", "none"], b"");
    assert!(without.last_line().contains("no vision tower"), "{}", without.err);
}

#[test]
fn towers_and_images_that_do_not_fit() {
    let folder = folder("other");
    // It belongs to another model by its name.
    fs::copy(TOWER, folder.join("mmproj-lfm2-F16.gguf")).expect("a tower");
    let refused = run(&folder, "other.gguf", &["--image", "dark.bmp", "abc"]);
    assert!(refused.last_line().contains("reads no images; send text only"), "{}", refused.err);
    // By its name it belongs to the model, but it is none that runs: the model does without.
    fs::write(folder.join("mmproj-other.gguf"), crate::header("clip")).expect("a file");
    let warned = run(&folder, "other.gguf", &["abc"]);
    assert!(
        warned.err.contains("warning: the model reads no images, because its tower is not loaded"),
        "{}",
        warned.err
    );
    warned.success();
    for (arguments, part) in [
        (&["--mmproj", "mmproj-other.gguf", "abc"][..], "--mmproj: "),
        (&["--mmproj", "other.gguf", "abc"], "the file is no vision tower"),
        (&["--mmproj", "absent.gguf", "abc"], "--mmproj "),
        (&["--image", "absent.bmp", "abc"], "absent.bmp: "),
        (&["--image", "other.gguf", "abc"], "is no image that can be read"),
    ] {
        let ended = run(&folder, "other.gguf", arguments);
        assert!(ended.code == Some(1) && ended.last_line().contains(part), "{arguments:?}: {}", ended.err);
    }
    let raw = run(&folder, "other.gguf", &["--raw", "--image", "dark.bmp", "abc"]);
    assert_eq!(raw.code, Some(2), "{}", raw.err);
}

#[test]
fn chat_shows_an_image_with_the_next_message() {
    let folder = folder("talker");
    fs::copy(TOWER, folder.join("mmproj-talker-F32.gguf")).expect("a tower");
    let model = folder.join("talker.gguf").display().to_string();
    let dark = folder.join("dark.bmp").display().to_string();
    let lines = format!("/image {dark}\nabc\n/image '{dark}'\n/image nothing.png\nagain\n/stats\n");
    let ended = gristmill(&["chat", &model, "--temp", "0", "-n", "4", "--ctx", "600"], lines.as_bytes());
    assert_eq!(ended.err.matches("the next message has this image of 64 × 64 pixels").count(), 2, "{}", ended.err);
    assert!(ended.err.contains("error: nothing.png: "), "{}", ended.err);
    let used = ended.err.lines().find_map(|line| line.split_once("prompt ")?.1.split(' ').next()?.parse::<u32>().ok());
    assert!(used.is_some_and(|tokens| tokens > 2 * 66), "{}", ended.err);
    // Another model says so at once.
    let blind = gristmill(&["chat", &path("model.gguf"), "-n", "2"], b"/image x.png\n");
    assert!(blind.err.contains("reads no images"), "{}", blind.err);
}
