//! Errors and fallbacks with a missing, old or broken driver, compiler or device, which stub libraries simulate. The
//! stubs compute nothing; the op suite tests results.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use super::{Ended, FOLDER, gristmill_with};

/// A folder with the stubs of `libcuda.so` and NVRTC.
static LIBRARIES: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = FOLDER.join("libraries");
    fs::create_dir_all(&folder).expect("a temporary folder");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/stub");
    for (library, source) in [("libcuda.so", "cuda.c"), ("libnvrtc.so.13", "nvrtc.c")] {
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(folder.join(library)).arg(sources.join(source));
        assert!(compiler.status().expect("a C compiler").success(), "{source}");
    }
    folder
});

/// A folder with the stub driver alone.
static DRIVER_ALONE: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = FOLDER.join("driver alone");
    fs::create_dir_all(&folder).expect("a temporary folder");
    fs::copy(LIBRARIES.join("libcuda.so"), folder.join("libcuda.so")).expect("the stub driver");
    folder
});

/// A home folder that cannot be written.
const NO_HOME: &str = "/dev/null/home";

/// An empty home folder.
fn home(name: &str) -> PathBuf {
    let home = FOLDER.join(name);
    let _ = fs::remove_dir_all(&home);
    fs::create_dir_all(&home).expect("a temporary folder");
    home
}

/// Runs the program with the stubs in these modes.
fn on(modes: &str, home: impl AsRef<Path>, arguments: &[&str]) -> Ended {
    with(&LIBRARIES, modes, home, arguments)
}

/// Runs the program with the libraries of a folder.
fn with(libraries: &Path, modes: &str, home: impl AsRef<Path>, arguments: &[&str]) -> Ended {
    let variables = [
        ("LD_LIBRARY_PATH", libraries.as_os_str()),
        ("STUB_MODES", modes.as_ref()),
        ("HOME", home.as_ref().as_os_str()),
        // Hides other caches and other NVRTCs.
        ("XDG_CACHE_HOME", "".as_ref()),
        ("VIRTUAL_ENV", "".as_ref()),
    ];
    gristmill_with(&variables, arguments, b"")
}

fn run(modes: &str, device: &str) -> Ended {
    on(modes, NO_HOME, &["run", "-m", "MODEL", "-n", "3", "--temp", "0", "--device", device, "hello"])
}

/// Fails unless the last line is an error with all of these words, and stdout is empty.
#[track_caller]
fn refused(ended: &Ended, words: &[&str]) {
    let error = ended.last_line();
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{}", ended.err);
    assert!(error.starts_with("error: ") && !ended.err.contains("panicked"), "{}", ended.err);
    assert!(words.iter().all(|word| error.contains(word)), "{error:?} lacks one of {words:?}");
}

#[test]
fn unusable_devices_are_refused_or_skipped() {
    for (modes, words) in [
        ("old-driver", ["driver is too old", "11.4", "12.0 or newer"]),
        ("no-device", ["no such device", "CUDA_VISIBLE_DEVICES", "`cpu`"]),
        ("old-device", ["device is too old", "6.1", "7.5"]),
    ] {
        refused(&run(modes, "cuda"), &words);
        refused(&run(modes, "cuda:0"), &words);
        // `auto` prints why it uses the CPU, if there is a driver.
        let auto = run(modes, "auto");
        let said = auto.err.contains(words[0]) && auto.err.contains("the CPU is used");
        assert!(said, "{}", auto.err);
        assert!(!auto.success().is_empty());
    }
    refused(&run("", "cuda:1"), &["no such device", "there are 1"]);
}

#[test]
fn missing_old_and_failing_compilers() {
    // A CUDA toolkit has its own NVRTC.
    if !["/usr/local/cuda", "/opt/cuda"].iter().any(|folder| Path::new(folder).exists()) {
        let alone = with(&DRIVER_ALONE, "", NO_HOME, &["run", "-m", "MODEL", "--device", "cuda", "hello"]);
        refused(&alone, &["NVRTC, was not found", "pip install nvidia-cuda-nvrtc"]);
        refused(&run("old-nvrtc", "cuda"), &["NVRTC", "libnvrtc.so.13", "11.2", "older than 12", "install"]);
        assert!(run("old-nvrtc", "auto").err.contains("the CPU is used"));
    }
    refused(&run("refuses", "cuda"), &["CUDA device 0", "activations.gpu", "code 6", "the test says no"]);
    refused(&run("new-code", "cuda"), &["CUDA device 0", "activations.gpu", "driver may be older than NVRTC"]);
}

#[test]
fn too_little_memory() {
    refused(&run("little-memory", "cuda"), &["the model needs", "1.05 MB", "use a smaller"]);
    refused(&run("no-memory", "cuda"), &["cannot allocate", "weights", "use a smaller"]);
}

#[test]
fn a_lost_device() {
    refused(
        &run("lost-device", "cuda"),
        &["CUDA device 0", "unspecified launch failure", "lost", "start again", "doctor"],
    );
}

#[test]
fn the_kernel_cache() {
    let run = |modes: &str, home: &Path| {
        on(modes, home, &["run", "-v", "-m", "MODEL", "-n", "3", "--temp", "0", "--device", "cuda", "hello"])
    };
    let home = home("home");
    let first = run("", &home);
    assert!(first.err.contains("kernels: ") && !first.err.contains("cannot be kept"), "{}", first.err);
    first.success();
    // All kernels are in the cache.
    run("refuses", &home).success();
    let cache = home.join(".cache/gristmill/kernels");
    let mut files = 0;
    for entry in fs::read_dir(&cache).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        files += 1;
    }
    assert!(files > 5);
    refused(&run("refuses", &home), &["the test says no"]);
    run("", &home).success();
    run("refuses", &home).success();

    // A cache that cannot be written is reported once.
    let ended = run("", Path::new(NO_HOME));
    assert_eq!(ended.err.matches("cannot be kept in /dev/null/home").count(), 1, "{}", ended.err);
    ended.success();
}

/// A package of kernels is written without a driver, and used instead of NVRTC.
#[test]
fn kernels_compiled_ahead() {
    let (home, folder) = (home("ahead"), FOLDER.join("kernels ahead"));
    let _ = fs::remove_dir_all(&folder);
    let kernels = folder.to_str().unwrap();
    let compile = |modes: &str| on(modes, &home, &["kernels", "-m", "MODEL", "--arch", "sm_90,8.0", "-o", kernels]);
    let written = compile("no-device").success();
    assert!(written.contains("sm_90a: ") && written.contains("sm_80: ") && written.contains(", 0 were in the folder"));
    // Nothing has to be compiled again.
    assert!(compile("refuses").success().contains("sm_90a: 0 kernels compiled"));
    refused(&on("", &home, &["kernels", "-m", "MODEL", "-o", "/dev/null/kernels"]), &["/dev/null/kernels", "sm_75"]);

    let run = |libraries: &Path, modes: &str| {
        let words =
            ["run", "-v", "-m", "MODEL", "-n", "3", "--temp", "0", "--device", "cuda", "--kernels", kernels, "hello"];
        with(libraries, modes, NO_HOME, &words)
    };
    let ahead = run(&LIBRARIES, "refuses");
    let used = ahead.err.lines().find(|line| line.starts_with("kernels: 0 of the cache, ")).expect(&ahead.err);
    assert!(used.contains("compiled ahead (") && used.ends_with(", 0 compiled now"), "{used}");
    ahead.success();
    run(&DRIVER_ALONE, "").success();
    let doctor = with(&DRIVER_ALONE, "", NO_HOME, &["doctor", "--kernels", kernels]);
    let line = |what: &str| doctor.out.lines().find(|line| line.contains(what)).expect(&doctor.out).to_owned();
    let found = line("kernels compiled ahead");
    assert!(
        found.starts_with("ok ") && found.ends_with(": sm_80, sm_90a") && found.contains("by NVRTC 13.2"),
        "{found}"
    );
    // The device is opened with them, but the checks of operations need NVRTC.
    assert!(line("FAILED NVRTC").contains("was not found") && line("cuda:0 ").starts_with("ok "), "{}", doctor.out);
    assert!(line("cuda:0: operations").starts_with("- ") && !doctor.out.contains("cuda:0: matmul"), "{}", doctor.out);
    let nowhere = ["run", "-m", "MODEL", "--kernels", "no/such/folder", "hello"];
    refused(&on("", NO_HOME, &nowhere), &["--kernels no/such/folder", "gristmill kernels"]);
    // The driver refuses them, but not those that are compiled instead.
    let instead = run(&LIBRARIES, "only-okay");
    let warning = instead.err.lines().find(|line| line.contains("compiled ahead cannot be used")).expect(&instead.err);
    assert!(warning.starts_with("warning: ") && warning.contains("are compiled: CUDA device 0: "), "{warning}");
    assert!(instead.err.contains("0 of the cache, 0 compiled ahead ("), "{}", instead.err);
    instead.success();
    refused(&run(&LIBRARIES, "new-code"), &["driver may be older than NVRTC"]);
    refused(&run(&DRIVER_ALONE, "new-code"), &["not compiled ahead", "NVRTC, was not found"]);
    let of_device = folder.join("sm_90a-nvrtc13.2");
    let files: Vec<PathBuf> = fs::read_dir(&of_device).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() > 5);
    // A damaged file.
    let bytes = fs::read(&files[0]).unwrap();
    fs::write(&files[0], &bytes[..bytes.len() - 1]).unwrap();
    let doctor = on("no-device", &home, &["doctor", "--kernels", kernels]);
    let damaged = doctor.out.lines().find(|line| line.contains("kernels compiled ahead")).expect(&doctor.out);
    assert!(damaged.starts_with("FAILED ") && damaged.contains(": 1 of ") && damaged.contains("delete"), "{damaged}");
    assert_eq!(doctor.code, Some(1));
    fs::write(&files[0], &bytes).unwrap();
    // Kernels of another source have other names.
    for file in files {
        fs::rename(&file, file.with_extension("other")).unwrap();
    }
    refused(&run(&LIBRARIES, "refuses"), &["the test says no"]);
    refused(&run(&DRIVER_ALONE, ""), &["not compiled ahead", "sm_90a-nvrtc13.2", "NVRTC, was not found"]);
    let compiled = run(&LIBRARIES, "");
    assert!(compiled.err.contains("kernels: 0 of the cache, 0 compiled ahead ("), "{}", compiled.err);
    compiled.success();
}

#[test]
fn the_doctor_finds_wrong_results() {
    let report = FOLDER.join("stub.md");
    let ended = on("", home("doctor"), &["doctor", "--report", report.to_str().unwrap()]);
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    assert!(ended.last_line().contains("checks failed"), "{}", ended.err);
    for line in ["cuda:0: kernels", "NVIDIA driver", "NVRTC", "cache of kernels", "cuda:0: refuse_memory"] {
        assert!(ended.out.lines().any(|l| l.starts_with("ok ") && l.contains(line)), "{line}: {}", ended.out);
    }
    for precision in ["exact", "fast"] {
        assert!(ended.out.contains(&format!("FAILED cuda:0: model, {precision} ")), "{}", ended.out);
    }
    for part in ["matmul", "attention", "sample", "qkv_write"] {
        let wanted = format!("FAILED cuda:0: {part} ");
        let line = ended.out.lines().find(|line| line.starts_with(&wanted)).unwrap_or_else(|| panic!("{}", ended.out));
        assert!(line.contains("to repeat: seed"), "{line}");
    }
    assert!(fs::read_to_string(&report).unwrap().contains("| FAILED | cuda:0: matmul |"));

    // A cache that cannot be written, and a device that is lost during the checks.
    let few = on("refuses", NO_HOME, &["doctor"]);
    assert!(few.out.contains("FAILED cuda:0: kernels ") && few.out.contains("the test says no"), "{}", few.out);
    let unkept = on("refuses", NO_HOME, &["doctor", "--all"]);
    assert!(unkept.out.contains("FAILED cache of kernels") && unkept.out.contains(" ~/.cache"), "{}", unkept.out);
    assert!(
        unkept.out.contains("FAILED cuda:0: a kernel") && unkept.out.contains("the test says no"),
        "{}",
        unkept.out
    );
    let lost = on("lost-device", NO_HOME, &["doctor"]);
    assert_eq!(lost.code, Some(1));
    assert!(lost.out.lines().last().unwrap().contains("not run: CUDA device 0"), "{}", lost.out);
}

/// The quick suite on the CPU. Without a device, an unwritable cache is no failure.
#[test]
fn the_doctor_without_a_device() {
    let folder = FOLDER.join("no folder");
    let refusal = on("no-device", NO_HOME, &["doctor", "--report", folder.join("x.md").to_str().unwrap()]);
    refused(&refusal, &["--report", "no folder", "name a file"]);

    let report = FOLDER.join("report.md");
    fs::write(&report, "old content").unwrap();
    let ended = on("no-device", NO_HOME, &["doctor", "--report", report.to_str().unwrap()]);
    // The lines of failed checks, with their seeds, are on stdout.
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{}", ended.out);
    let out = ended.out;
    assert!(
        out.ends_with("everything that was checked works; --all checks all kernels and formats, in minutes\n"),
        "{out}"
    );
    for line in [
        "ok     CPU ",
        "ok     memory ",
        "-      devices ",
        "-      cache of kernels ",
        "-      kernels compiled ahead ",
        "ok     cpu: matmul ",
    ] {
        assert!(out.contains(line), "{line}: {out}");
    }
    let page = fs::read_to_string(&report).unwrap();
    assert!(page.starts_with(&format!("# gristmill {}", env!("CARGO_PKG_VERSION"))) && page.ends_with(" 0 failed.\n"));
    assert_eq!(page.matches("| ok | cpu: ").count(), gristmill_suite::ops::ALL.len() + 2);
}
