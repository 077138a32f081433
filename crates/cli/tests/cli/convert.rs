//! `convert` on a golden folder of the conformance tests.

use std::fs;
use std::path::{Path, PathBuf};

use super::gristmill;

fn folder() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/golden/convert/qwen3moe").display().to_string()
}

/// A new empty folder for the output of a test.
fn scratch(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("convert-{test}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a temporary folder");
    folder
}

#[test]
fn a_folder_becomes_a_file_that_runs() {
    let out = scratch("runs").join("out.gguf").display().to_string();
    let ended = gristmill(&["convert", &folder(), "-o", &out], b"");
    assert!(ended.err.contains("out.gguf") && ended.err.contains("27 tensors"), "{}", ended.err);
    assert_eq!(ended.success(), "");
    let report = gristmill(&["inspect", &out], b"").success();
    assert!(report.contains("architecture  qwen3moe") && report.contains("qwen2, 288 tokens"), "{report}");
    assert!(!report.contains("cannot run") && report.contains("BF16"), "{report}");
    gristmill(&["run", "-m", &out, "--raw", "The mill", "-n", "3", "--temp", "0"], b"").success();

    // An existing output needs --force.
    let again = gristmill(&["convert", &folder(), "-o", &out, "--type", "q4_k_m"], b"");
    assert_eq!(again.code, Some(1));
    assert!(again.last_line().contains("exists") && again.last_line().contains("--force"), "{}", again.err);
    let forced = gristmill(&["convert", &folder(), "-o", &out, "--type", "q4_k_m", "--force"], b"");
    assert!(forced.err.contains("instead of Q4_K, because their rows are not multiples of 256"), "{}", forced.err);
    forced.success();
    assert!(gristmill(&["inspect", &out], b"").success().contains("Q5_0"));
}

#[test]
fn refused_outputs() {
    let scratch = scratch("refused");
    let copy = scratch.join("model");
    fs::create_dir(&copy).expect("a folder");
    for entry in fs::read_dir(folder()).expect("the golden folder") {
        let path = entry.expect("an entry").path();
        fs::copy(&path, copy.join(path.file_name().expect("a name"))).expect("a copy");
    }
    let shard = copy.join("model-00001-of-00003.safetensors");
    let before = fs::read(&shard).expect("a readable path");
    let (copy, shard_path) = (copy.display().to_string(), shard.display().to_string());
    let onto = gristmill(&["convert", &copy, "-o", &shard_path, "--force"], b"");
    assert!(onto.last_line().contains("the output is the input"), "{}", onto.err);
    assert_eq!(fs::read(&shard).expect("a readable path"), before);

    // The other files of the input, and a folder, are refused too.
    for name in ["config.json", "tokenizer.json", "model.safetensors.index.json"] {
        let path = Path::new(&copy).join(name);
        let before = fs::read(&path).expect("a readable path");
        let onto = gristmill(&["convert", &copy, "-o", &path.display().to_string(), "--force"], b"");
        assert!(onto.last_line().contains("the output is the input"), "{}", onto.err);
        assert_eq!(fs::read(&path).expect("a readable path"), before);
    }
    let into = gristmill(&["convert", &copy, "-o", &copy, "--force"], b"");
    assert!(into.last_line().contains("a folder or a device"), "{}", into.err);

    let nowhere = scratch.join("no/such/out.gguf").display().to_string();
    assert_eq!(gristmill(&["convert", &copy, "-o", &nowhere], b"").code, Some(1));
    let kind = gristmill(&["convert", &copy, "-o", "x.gguf", "--type", "q9"], b"");
    assert!(kind.last_line().contains("q9") && kind.last_line().contains("Q4_K_M"), "{}", kind.err);
    assert_eq!(gristmill(&["convert", &copy], b"").code, Some(2));
}

/// A limit on the size of files simulates a full disk: the write fails in the middle.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_leaves_no_partial_file() {
    let scratch = scratch("full");
    let script = format!(
        "trap '' XFSZ; ulimit -f 64; exec {} convert {} -o {}/out.gguf --type f32",
        env!("CARGO_BIN_EXE_gristmill"),
        folder(),
        scratch.display()
    );
    let ended = std::process::Command::new("sh").args(["-c", &script]).output().expect("sh runs");
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{errors}");
    assert!(errors.contains("out.gguf: cannot write") && !errors.contains(".partial"), "{errors}");
    assert_eq!(fs::read_dir(&scratch).expect("a readable path").count(), 0, "a file remains");
}
