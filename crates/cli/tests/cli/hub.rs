//! Models of the hub by name, from a mock on loopback ports.

#[allow(dead_code)]
#[path = "../../../hub/tests/hub/standin.rs"]
mod standin;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) use standin::Faults;
use standin::{COMMIT, StandIn};

use super::{Ended, gristmill_with, path};

/// A mock with the tiny model, and a cache of the test's own.
pub(crate) struct Case {
    pub(crate) hub: StandIn,
    pub(crate) cache: PathBuf,
}

impl Case {
    fn new(name: &str) -> Case {
        Case::with(name, fs::read(path("model.gguf")).expect("the model"))
    }

    /// With this file as the model.
    pub(crate) fn with(name: &str, model: Vec<u8>) -> Case {
        let files = vec![("tiny-Q4_K_M.gguf", model.clone()), ("tiny-Q6_K.gguf", model), ("README.md", Vec::new())];
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("hub-{name}"));
        let _ = fs::remove_dir_all(&cache);
        Case { hub: StandIn::start("org/tiny-GGUF", files), cache }
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        self.run_with(&[], arguments)
    }

    fn run_with(&self, variables: &[(&str, &str)], arguments: &[&str]) -> Ended {
        let cache: OsString = self.cache.clone().into();
        let endpoint = OsString::from(&self.hub.endpoint);
        let mut all: Vec<(&str, &OsStr)> = vec![("HF_HUB_CACHE", &cache), ("HF_ENDPOINT", &endpoint)];
        all.extend(["HF_HOME", "HF_TOKEN", "HF_HUB_OFFLINE", "XDG_CACHE_HOME"].map(|name| (name, OsStr::new(""))));
        all.extend(variables.iter().map(|(name, value)| (*name, OsStr::new(*value))));
        gristmill_with(&all, arguments, b"")
    }

    fn asked(&self) -> usize {
        let seen = self.hub.take();
        seen.hub.len() + seen.cdn.len()
    }
}

#[test]
fn a_model_is_pulled_listed_used_and_removed() {
    let case = Case::new("pull");
    let pulled = case.run(&["pull", "org/tiny-GGUF"]);
    assert!(
        pulled.err.contains("SHA-256 verified") && pulled.err.contains("downloading tiny-Q4_K_M.gguf"),
        "{}",
        pulled.err
    );
    let file = pulled.success().trim().to_owned();
    assert!(Path::new(&file).ends_with(format!("snapshots/{COMMIT}/tiny-Q4_K_M.gguf")), "{file}");
    assert!(case.asked() > 0);

    let here = case.run(&["run", "-m", "hf:org/tiny-GGUF", "-n", "3", "--seed", "1", "a"]).success();
    let there = case.run(&["run", "-m", &file, "-n", "3", "--seed", "1", "a"]).success();
    assert_eq!(here, there);
    for words in [
        &["inspect", "hf:org/tiny-GGUF:q4_k_m"][..],
        &["tokenize", "hf:org/tiny-GGUF", "a"],
        &["perplexity", "-m", "hf:org/tiny-GGUF", "--ctx", "8", "-f", "Cargo.toml"],
        &["experts", "hf:org/tiny-GGUF", "--ctx", "8", "-f", "Cargo.toml"],
        &["bench", "hf:org/tiny-GGUF", "-p", "4", "-n", "2", "-r", "1"],
        &["embed", "--offline", "hf:org/tiny-GGUF", "a"],
    ] {
        case.run(words).success();
    }
    assert_eq!(case.asked(), 0, "all of it from the cache");

    let models = case.run(&["models"]).success();
    assert!(models.starts_with("org/tiny-GGUF:Q4_K_M  Q4_K_M  ") && models.lines().count() == 1, "{models}");
    let json: serde_json::Value = serde_json::from_str(&case.run(&["models", "--json"]).success()).expect("JSON");
    assert_eq!((json[0]["name"].as_str(), json[0]["files"][0].as_str()), (Some("org/tiny-GGUF:Q4_K_M"), Some(&*file)));
    case.run(&["rm", "org/tiny-GGUF:Q4_K_M"]).success();
    assert_eq!(case.run(&["models"]).success(), "");
    assert_eq!(case.run(&["rm", "org/tiny-GGUF"]).code, Some(1));
}

/// A repository without GGUF files is a folder, which every command takes by its name.
#[test]
fn a_folder_is_pulled_and_used() {
    let case = Case::new("folder");
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/golden/convert/qwen3moe");
    let names: Vec<String> = fs::read_dir(&golden)
        .expect("the folder")
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    let files = names.iter().map(|name| (name.as_str(), fs::read(golden.join(name)).expect("a file")));
    case.hub.add("org/tiny", files.chain([("README.md", Vec::new())]).collect());
    let pulled = case.run(&["pull", "org/tiny"]);
    assert!(pulled.err.contains("config.json: ") && pulled.err.contains("SHA-1 of Git verified"), "{}", pulled.err);
    assert_eq!(pulled.err.matches("downloading ").count(), pulled.err.matches("SHA-256 verified").count());
    assert!(pulled.last_line().ends_with("gristmill chat org/tiny"), "{}", pulled.err);
    let folder = pulled.success().trim().to_owned();
    assert!(
        Path::new(&folder).ends_with(format!("snapshots/{COMMIT}")) && !Path::new(&folder).join("README.md").exists()
    );
    case.asked();

    let run = ["-q", "-n", "3", "--temp", "0", "--raw", "a"];
    let expected = case.run(&[&["run", &golden.display().to_string()], &run[..]].concat()).success();
    for model in ["hf:org/tiny", "org/tiny", &folder] {
        assert_eq!(case.run(&[&["run", model], &run[..]].concat()).success(), expected, "{model}");
    }
    let quantised = [&["run", "hf:org/tiny", "--quantize", "Q8_0"], &run[..]].concat();
    case.run(&quantised).success();
    let refused = case.run(&[&["run", "hf:org/tiny-GGUF", "--quantize", "Q8_0"], &run[..]].concat());
    assert!(refused.code == Some(1) && refused.last_line().contains("is a GGUF file"), "{}", refused.err);
    assert_eq!(case.asked(), 0, "all of it from the cache");
    let inspected = case.run(&["inspect", "org/tiny"]).success();
    assert!(inspected.contains("tiny") && !inspected.contains(COMMIT), "{inspected}");

    let models = case.run(&["models"]).success();
    assert!(models.starts_with("org/tiny  safetensors  ") && models.lines().count() == 1, "{models}");
    case.run(&["rm", "org/tiny"]).success();
    assert_eq!(case.run(&["models"]).success(), "");
    // A model that is missing is downloaded when it is named.
    assert_eq!(case.run(&[&["run", "hf:org/tiny"], &run[..]].concat()).success(), expected);
}

/// README.md has a row for each recommended model, with the printed command.
#[test]
fn recommended_models_are_those_of_the_page() {
    let case = Case::new("recommended");
    let text = case.run(&["models", "--recommended"]).success();
    let json: serde_json::Value =
        serde_json::from_str(&case.run(&["models", "--recommended", "--json"]).success()).expect("JSON");
    assert_eq!(case.asked(), 0);
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md")).expect("the page");
    let models = json.as_array().expect("models");
    assert!(models.len() == 5 && text.lines().all(|line| line.len() <= 80), "{text}");
    for model in models {
        let number = |key: &str| model[key].as_f64().expect("a number") / 1e9;
        let (memory, download) = (number("memory_bytes"), number("download_bytes"));
        let (title, command) = (
            model["model"].as_str().expect("a name"),
            format!("gristmill chat {}", model["name"].as_str().expect("a name")),
        );
        assert!(download < memory && text.contains(&format!("  {command}\n")), "{text}");
        let row = format!("| {memory} GB | {title} ({download:.1} GB) | `{command}` |");
        assert!(page.contains(&row), "README.md lacks {row}");
    }
    assert_eq!(page.matches("| `gristmill chat hf:").count(), models.len());
}

/// Every command takes the name that `pull` takes.
#[test]
fn one_name_serves_all_commands() {
    let case = Case::new("one-name");
    let absent = case.run(&["run", "org/tiny-GGUF:Q4_K_M", "hi"]);
    assert!(
        absent.code == Some(1) && absent.last_line().contains("gristmill pull org/tiny-GGUF:Q4_K_M"),
        "{}",
        absent.err
    );
    assert!(case.run(&["chat", "org/tiny-GGUF"]).last_line().contains("gristmill pull org/tiny-GGUF"));
    assert_eq!(case.asked(), 0, "a bare name may be a mistaken path: nothing is sent");

    let name = "https://huggingface.co/org/tiny-GGUF/blob/main/tiny-Q4_K_M.gguf";
    case.run(&["pull", name]).success();
    case.asked();
    let expected = case.run(&["run", "-m", "hf:org/tiny-GGUF", "-n", "2", "--seed", "1", "a"]).success();
    for name in ["org/tiny-GGUF", "org/tiny-GGUF:Q4_K_M", "hf.co/org/tiny-GGUF:q4_k_m", name] {
        for words in [&["run", name][..], &["run", "-m", name]] {
            let ended = case.run(&[words, &["-n", "2", "--seed", "1", "a"]].concat());
            assert_eq!(ended.success(), expected, "{words:?}");
        }
        for words in [
            &["chat", name][..],
            &["inspect", name],
            &["tokenize", name, "a"],
            &["embed", name, "a"],
            &["perplexity", name, "--ctx", "8", "-f", "Cargo.toml"],
            &["experts", name, "--ctx", "8", "-f", "Cargo.toml"],
            &["bench", name, "-p", "4", "-n", "2", "-r", "1"],
            &["run", "-q", "--draft-model", name, "-m", name, "-n", "1", "yes/no"],
            &["models", name],
        ] {
            case.run(words).success();
        }
        let refused = case.run(&["serve", name, "--host", "192.0.2.1", "--allow-unauthenticated"]);
        assert!(refused.err.contains("cannot listen on 192.0.2.1"), "{}", refused.err);
        case.run(&["quantize", name, &path("by-name.gguf"), "Q8_0", "-f"]).success();
    }
    assert_eq!(case.asked(), 0, "all of it from the cache");
    assert_eq!(case.run(&["models", "org/other"]).code, Some(1));
    case.run(&["fit", "org/tiny-GGUF", "--bandwidth", "30"]).success();
    case.run(&["rm", name]).success();
    assert_eq!(case.run(&["models"]).success(), "");
}

#[test]
fn a_model_is_downloaded_when_it_is_named() {
    let case = Case::new("named");
    let run = case.run(&["run", "hf:org/tiny-GGUF:Q6_K", "-q", "-n", "2", "a"]);
    assert_eq!(run.err, "", "quiet");
    run.success();
    assert!(case.asked() > 0);
    let draft = ["run", "hf:org/tiny-GGUF:Q6_K", "--offline", "--draft-model", "hf:org/tiny-GGUF:Q4_K_M", "a"];
    let failed = case.run(&draft);
    assert!(failed.code == Some(1) && failed.err.contains("nothing is downloaded offline"), "{}", failed.err);
    assert_eq!(case.asked(), 0, "--offline counts for the draft model too");
    case.run(&["quantize", "hf:org/tiny-GGUF:Q6_K", &path("from-hub.gguf"), "Q8_0", "-f"]).success();
}

/// A pull says how it continues after an interruption, and what to type after it.
#[test]
#[cfg(unix)]
fn an_interrupted_pull_says_what_it_keeps() {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    let case = Case::with("interrupted", vec![0; 4 << 20]);
    case.hub.set(Faults { rate: Some(400_000), ..Faults::default() });
    let mut pull = Command::new(env!("CARGO_BIN_EXE_gristmill"));
    pull.args(["pull", "org/tiny-GGUF"]).env("HF_HUB_CACHE", &case.cache).env("HF_ENDPOINT", &case.hub.endpoint);
    let child = pull.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let start = Instant::now();
    while case.hub.sent() < 300_000 {
        assert!(start.elapsed() < Duration::from_secs(30), "nothing is downloaded");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().is_ok_and(|status| status.success()));
    let ended = child.wait_with_output().expect("it ends");
    let err = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.signal(), Some(2), "{err}");
    let resumes = "the same command resumes the download";
    assert!(err.contains("downloading tiny-Q4_K_M.gguf: 4.2 MB; ") && err.contains(resumes), "{err}");
    let last = err.lines().last().unwrap_or_default();
    assert!(last.starts_with("stopped: ") && last.ends_with(&format!("are kept; {resumes}")), "{err}");
    case.hub.set(Faults::default());
    let pulled = case.run(&["pull", "org/tiny-GGUF"]);
    assert!(pulled.err.starts_with("resuming tiny-Q4_K_M.gguf: "), "{}", pulled.err);
    assert!(pulled.last_line().ends_with("gristmill chat org/tiny-GGUF"), "{}", pulled.err);
    pulled.success();
}

#[test]
fn refusals_of_the_hub_are_in_words() {
    let case = Case::new("refusals");
    for (status, header, words) in [
        (401, "", ["org/tiny-GGUF: does not exist, or is private", "set HF_TOKEN"]),
        (403, "", ["org/tiny-GGUF: the token in HF_TOKEN may not read it", "huggingface.co/settings/tokens"]),
        (401, "X-Error-Code: GatedRepo\r\n", ["requires an agreement", "open https://huggingface.co/org/tiny-GGUF"]),
        (403, "X-Error-Code: GatedRepo\r\n", ["requires an agreement", "open https://huggingface.co/org/tiny-GGUF"]),
    ] {
        case.hub.set(Faults { hub_status: Some((status, header, 1)), ..Faults::default() });
        let failed = case.run(&["pull", "org/tiny-GGUF"]);
        let told = words.iter().all(|word| failed.last_line().contains(word));
        assert!(failed.code == Some(1) && told, "{status}: {}", failed.err);
    }
    let failed = case.run(&["pull", "org/tiny-GGUF", "--endpoint", "http://127.0.0.1:9"]);
    let words = ["cannot reach http://127.0.0.1:9/", "this machine is online", "--offline"];
    assert!(failed.code == Some(1) && words.iter().all(|word| failed.last_line().contains(word)), "{}", failed.err);
}

#[test]
fn offline_and_wrong_names_say_what_to_do() {
    let case = Case::new("offline");
    for words in [&["pull", "--offline", "org/tiny-GGUF"][..], &["inspect", "--offline", "hf:org/tiny-GGUF"]] {
        let failed = case.run(words);
        assert!(failed.code == Some(1) && failed.last_line().contains("is not in the cache"), "{}", failed.err);
    }
    let failed = case.run_with(&[("HF_HUB_OFFLINE", "1")], &["inspect", "hf:org/tiny-GGUF"]);
    assert!(failed.last_line().contains("offline"), "{}", failed.err);
    assert_eq!(case.asked(), 0);
    let failed = case.run(&["pull", "org/tiny-GGUF:Q2_K"]);
    assert!(failed.last_line().contains("it has: tiny-Q4_K_M.gguf ("), "{}", failed.err);
    assert_eq!(case.run(&["pull", "tiny"]).code, Some(2), "wrong usage");
    let failed = case.run(&["pull", "org/other"]);
    assert!(failed.last_line().contains("not found (404)"), "{}", failed.err);
    let failed = case.run(&["pull", "org/tiny-GGUF", "--endpoint", "nowhere"]);
    assert!(failed.last_line().contains("not the address of a hub"), "{}", failed.err);
}

#[test]
fn the_token_of_the_environment_or_its_file_is_used_and_never_printed() {
    let case = Case::new("token");
    case.hub.set(Faults { token: Some("hf_secret"), ..Faults::default() });
    let failed = case.run(&["pull", "-v", "org/tiny-GGUF"]);
    assert!(failed.code == Some(1) && failed.last_line().contains("HF_TOKEN"), "{}", failed.err);
    let pulled = case.run_with(&[("HF_TOKEN", "hf_secret")], &["pull", "-v", "org/tiny-GGUF"]);
    assert!(!pulled.err.contains("hf_secret"), "{}", pulled.err);
    pulled.success();
    let home = case.cache.join("home");
    fs::create_dir_all(&home).expect("a folder");
    fs::write(home.join("token"), "hf_secret\n").expect("a token");
    let home = home.display().to_string();
    case.run_with(&[("HF_HOME", &home)], &["pull", "org/tiny-GGUF:Q6_K"]).success();
    let seen = case.hub.take();
    // A listing, a header and a file; then a listing, because the content is in the cache.
    assert!(seen.hub_tokens.len() == 4 && seen.cdn_tokens.is_empty(), "{seen:?}");
}

#[test]
fn fit_says_which_format_of_a_model_to_take() {
    let case = Case::new("fit");
    let machine = ["--memory", "24", "--bandwidth", "30"];
    let words = |model: &'static str| [&["fit", model][..], &machine, &["--json"]].concat();
    let read = |ended: Ended| serde_json::from_str::<serde_json::Value>(&ended.success()).expect("JSON");

    let big = read(case.run(&words("qwen3-30b-a3b")));
    assert_eq!((big["experts"][0].as_u64(), big["experts"][1].as_u64()), (Some(128), Some(8)));
    let row = |report: &serde_json::Value, format: &str| {
        let rows = report["formats"].as_array().expect("rows").clone();
        rows.into_iter().find(|row| row["format"] == format).expect("the format")
    };
    let q4 = row(&big, "Q4_K_M");
    // The published file of this model has 18.6 GB, and a token reads 8 of 128 experts of it.
    let bytes = q4["file_bytes"].as_f64().expect("bytes");
    assert!((18.0e9..19.0e9).contains(&bytes), "{q4}");
    let active = q4["bytes_per_token"].as_f64().expect("bytes");
    assert!((1.6e9..2.4e9).contains(&active), "{q4}");
    assert!((q4["tokens_per_second"].as_f64().expect("a rate") - 30e9 / active).abs() < 1e-6);
    assert!(q4["fits"] == true && row(&big, "Q8_0")["fits"] == false, "{big}");
    assert!(big["recommended"].is_string());

    assert!(q4.get("slots").is_none(), "there is no GPU, {q4}");

    // A GPU of 12 GB: 71 of 128 experts fit (docs/benchmarks.md). Texts with more reuse find more of them.
    let gpu = ["fit", "qwen3-30b-a3b", "--memory", "12", "--bandwidth", "3300", "--host-bandwidth", "83"];
    let plan = row(&read(case.run(&[&gpu[..], &["--json"]].concat())), "Q4_K_M")["slots"].clone();
    assert!((66..=76).contains(&plan["slots"].as_u64().expect("slots")) && plan["experts"] == 128, "{plan}");
    let expected = plan["expected"].as_array().expect("localities").clone();
    let hits: Vec<f64> = expected.iter().map(|it| it["hits"].as_f64().expect("a share")).collect();
    assert!(hits.len() == 3 && hits[0] < hits[1] && hits[1] < hits[2] && hits[2] < 1.0, "{plan}");
    let text = case.run(&gpu).success();
    assert!(text.contains("with experts in host memory") && text.contains("strong"), "{text}");
    assert_eq!(case.run(&gpu[..4].iter().chain(&gpu[6..]).copied().collect::<Vec<_>>()).code, Some(2));

    let oss = read(case.run(&words("gpt-oss-20b")));
    assert_eq!(oss["formats"][0]["format"], "MXFP4_MOE", "larger formats gain nothing");

    // The cache of latent attention has one row of 512 + 64 elements for all 128 heads.
    let latent = read(case.run(&[&words("deepseek-v3")[..], &["--ctx", "4096"]].concat()));
    let state = latent["state"].as_u64().expect("bytes");
    assert!((1.0..1.01).contains(&(state as f64 / (61.0 * 576.0 * 2.0 * 4096.0))), "{state}");
    let text = case.run(&[&["fit", "deepseek-v3", "--ctx", "4096"][..], &machine].concat()).success();
    assert!(text.contains("\ncache: 28") && text.contains(" MB for 4096 tokens, 70."), "{text}");

    // The hub's own files, of which the start is read.
    let hub = read(case.run(&words("hf:org/tiny-GGUF")));
    let formats: Vec<&str> =
        hub["formats"].as_array().expect("rows").iter().filter_map(|r| r["format"].as_str()).collect();
    assert_eq!(formats, ["Q4_K_M", "Q6_K"]);
    assert!(case.run(&["models"]).success().is_empty(), "nothing goes into the cache");
    let file = case.run(&[&["fit", &path("model.gguf")][..], &machine].concat()).success();
    assert!(file.contains("this file") && file.contains("use "), "{file}");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/golden/convert/qwen3moe");
    let folder = case.run(&[&["fit", folder][..], &machine].concat()).success();
    assert!(folder.contains("this folder") && folder.contains("Q8_0"), "{folder}");
    let failed = case.run(&["fit", "no-such-model"]);
    assert!(failed.code == Some(1) && failed.last_line().contains("qwen3-30b-a3b"), "{}", failed.err);
    assert_eq!(case.run(&["fit", "qwen3-8b", "--memory", "0"]).code, Some(2));
}

/// The layout of a published repository: one language model, and files that belong to it.
#[test]
fn files_next_to_a_model_are_named_and_only_its_projector_is_downloaded() {
    let case = Case::new("companions");
    let model = fs::read(path("model.gguf")).expect("the model");
    let files = vec![
        ("m-UD-Q4_K_XL.gguf", model.clone()),
        ("MTP/m-Q8_0-MTP.gguf", crate::header("gemma4-assistant")),
        ("m-Q4_K_M.gguf", crate::header("eagle3")),
        ("mmproj-F16.gguf", crate::header("clip")),
        ("imatrix_unsloth.gguf", crate::header("imatrix")),
    ];
    case.hub.add("org/companions-GGUF", files);
    let pulled = case.run(&["pull", "org/companions-GGUF"]);
    let named = ["no language models: ", "MTP/m-Q8_0-MTP.gguf (draft model)", "m-Q4_K_M.gguf (draft model)"];
    assert!(named.iter().all(|part| pulled.err.contains(part)), "{}", pulled.err);
    assert!(!pulled.err.contains("mmproj-F16.gguf (projector)"), "{}", pulled.err);
    assert!(pulled.success().trim().ends_with("m-UD-Q4_K_XL.gguf"));
    assert_eq!(case.hub.take().cdn.len(), 2, "the model and its projector");
    let fit = case.run(&["fit", "org/companions-GGUF", "--bandwidth", "30", "--memory", "8"]);
    assert!(fit.err.contains("imatrix_unsloth.gguf (importance matrix)"), "{}", fit.err);
    assert!(fit.success().contains("\nQ4_K_XL "));

    // A draft model can be named, other files are refused before they are downloaded.
    case.hub.take();
    let refused = case.run(&["pull", "org/companions-GGUF:mmproj-F16.gguf"]);
    assert!(refused.code == Some(1) && refused.last_line().contains("(found: projector)"), "{}", refused.err);
    assert_eq!(case.hub.take().bytes, 0);
    let draft = case.run(&["pull", "org/companions-GGUF:MTP/m-Q8_0-MTP.gguf"]);
    assert!(draft.last_line().contains("--draft-model"), "{}", draft.err);
    draft.success();
    let models = case.run(&["models"]);
    assert!(models.err.contains("MTP/m-Q8_0-MTP.gguf: no language model (draft model"), "{}", models.err);
    assert_eq!(models.success().lines().count(), 1);
    case.run(&["run", "--offline", "org/companions-GGUF", "-n", "1", "a"]).success();
    let none = case.run(&["run", "hf:org/companions-GGUF:imatrix_unsloth.gguf", "a"]);
    assert!(none.code == Some(1) && none.last_line().contains("importance matrix"), "{}", none.err);
    case.run(&["rm", "org/companions-GGUF:MTP/m-Q8_0-MTP.gguf"]).success();
}
