//! The data of `dist`, and its install script against a local server.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use super::artifacts::{ARTIFACTS, Inputs};
use super::bare::Proof;
use super::check::newest_glibc;
use super::product::Release;
use super::reproduce::differing;
use super::targets::{System, TARGETS};
use super::tree::Item;
use super::{archive, formula, install, sums, tree, wanted};
use crate::root;

fn release() -> Release {
    Release { version: "1.2.3".to_owned(), time: 1_700_000_000 }
}

/// A new folder for a test.
fn folder(name: &str) -> PathBuf {
    let folder = root().join("target/dist-tests").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn the_tables_have_no_name_twice() {
    let artifacts: BTreeSet<&str> = ARTIFACTS.iter().map(|artifact| artifact.name).collect();
    assert_eq!(artifacts.len(), ARTIFACTS.len());
    let places = |name: &str| ARTIFACTS.iter().position(|artifact| artifact.name == name).unwrap();
    for earlier in ["source", "archive", "library", "deb", "rpm", "wheel", "container", "sbom"] {
        assert!(places(earlier) < places("sums"), "{earlier} has a sum");
    }
    assert!(places("archive") < places("install"), "the script has the sums of archives");
    for target in TARGETS.into_iter().filter(|target| target.system == System::Linux) {
        assert!(!target.deb.is_empty() && !target.rpm.is_empty() && target.triple.starts_with(target.uname.1));
        assert_eq!(target.zig(), format!("{}.2.28", target.triple));
    }
}

#[test]
fn wrong_words_are_refused_by_name() {
    assert!(wanted(&["--only", "snap"]).unwrap_err().contains("found snap"));
    assert!(wanted(&["--target"]).unwrap_err().contains("no value"));
    assert!(wanted(&["--fast"]).unwrap_err().contains("--fast"));
    let wanted = wanted(&["--target", "a", "--only", "deb", "--no-build"]).unwrap();
    assert_eq!((wanted.targets, wanted.only, wanted.packages_only), (vec!["a"], vec!["deb"], true));
}

#[test]
fn the_newest_glibc_is_found() {
    let text = "Name: GLIBC_2.9  Flags: none\n Name: GLIBC_2.28 Flags\n GLIBC_2.2.5\n GLIBCXX_3.4";
    assert_eq!(newest_glibc(text), Some((2, 28)));
    assert_eq!(newest_glibc("GLIBC_2.34 (4)"), Some((2, 34)));
    assert_eq!(newest_glibc("nothing"), None);
}

#[test]
fn an_installation_that_prints_something_else_is_no_proof() {
    let kernels = "ok     kernels compiled ahead       /usr/share/gristmill/kernels, by NVRTC 12.9: sm_75, sm_120";
    assert!(Proof::Kernels.holds(kernels) && !Proof::Kernels.holds(&kernels.replace("sm_120", "sm_90a")));
    assert!(!Proof::Kernels.holds(&kernels.replace("ok ", "- ")) && !Proof::Kernels.holds(""));
    let story = "a story of 50 bytes, which is shorter than it is. ".repeat(2);
    assert!(Proof::Story.holds(&story) && !Proof::Story.holds(&story[1..]));
    // Of the program and of Python.
    assert!(Proof::Python.holds(&story.repeat(2)) && !Proof::Python.holds(&story));
}

#[test]
fn files_that_differ_are_named() {
    let list = |sums: &[(&str, &str)]| sums.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect::<Vec<_>>();
    let first = list(&[("a", "1"), ("b", "2"), ("only first", "3")]);
    assert_eq!(differing(&first, &list(&[("a", "1"), ("b", "3"), ("c", "4")])), ["b", "c"]);
    assert!(differing(&first, &list(&[("a", "1")])).is_empty());
}

/// The same files, written in two folders at different times and with different modes of new files.
#[test]
fn an_archive_has_the_same_bytes_in_any_folder() {
    let items = || vec![Item::text("b/deep/file", "b"), Item::text("a", "a").executable()];
    let make = |name: &str, umask: &str| {
        let folder = folder(name);
        let stage = folder.join("stage");
        tree::write(&stage, &items(), &release()).unwrap();
        super::sh_in(&folder, &format!("umask {umask}; touch stage/a --date=@1700000000")).unwrap();
        let to = folder.join("archive.tar.gz");
        archive::tar_gz(&stage, &to, &release()).unwrap();
        fs::read(to).unwrap()
    };
    let first = make("archive-one", "022");
    sleep(Duration::from_millis(1_100));
    assert_eq!(first, make("archive-another-name", "077"));
}

/// Every placeholder of the templates is filled.
#[test]
fn descriptions_for_package_managers_are_complete() {
    let out = folder("formulas");
    let release = release();
    for name in ["gristmill-1.2.3-x86_64-unknown-linux-gnu.tar.gz", "gristmill-1.2.3-source.tar.gz"] {
        fs::write(out.join(name), name).unwrap();
    }
    let stage = folder("formulas-stage");
    let inputs = Inputs { release: &release, built: &[], out: &out, stage: &stage };
    formula::homebrew(&inputs).unwrap();
    formula::windows(&inputs).unwrap();
    let formula = fs::read_to_string(out.join("gristmill.rb")).unwrap();
    let sum = sums::sum(&out.join("gristmill-1.2.3-x86_64-unknown-linux-gnu.tar.gz")).unwrap();
    assert!(
        formula.contains(&sum) && formula.contains("not-built") && formula.contains("v1.2.3/gristmill-1.2.3-source")
    );
    let mut texts = vec![formula];
    let scoop = stage.join("windows/scoop/gristmill.json");
    for file in [scoop.clone(), stage.join("windows/winget/gristmill.installer.yaml")] {
        texts.push(fs::read_to_string(file).unwrap());
    }
    for text in texts {
        assert!(text.lines().all(|line| !line.contains('@') || line.contains("url ")), "{text}");
    }
    let json = Command::new("python3").args(["-m", "json.tool"]).arg(scoop).stdout(Stdio::null()).status().unwrap();
    assert!(json.success());
}

/// A server of a folder, which ends with the test.
struct Server(Child, u16);

impl Server {
    fn start(folder: &Path) -> Server {
        let code = "import http.server, sys\n\
                    handler = lambda *a: http.server.SimpleHTTPRequestHandler(*a, directory=sys.argv[1])\n\
                    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)\n\
                    open(sys.argv[1] + '/port', 'w').write(str(server.server_port))\n\
                    server.serve_forever()";
        let child = Command::new("python3").args(["-c", code]).arg(folder).stderr(Stdio::null()).spawn().unwrap();
        let mut server = Server(child, 0);
        for _ in 0..200 {
            if let Some(port) = fs::read_to_string(folder.join("port")).ok().and_then(|text| text.parse().ok()) {
                server.1 = port;
                return server;
            }
            sleep(Duration::from_millis(50));
        }
        panic!("the server does not start");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The install script installs an archive as it was published, and nothing else.
#[test]
fn the_install_script_verifies_what_it_fetches() {
    let (here, release) = (folder("install"), release());
    let machine = |flag: &str| {
        let output = Command::new("uname").arg(flag).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let (system, machine) = (machine("-s"), machine("-m"));
    let name = format!("gristmill-1.2.3-{machine}");
    let program = "#!/bin/sh\necho gristmill 1.2.3\n";
    let archive_of = |program: &str, to: &Path| {
        let stage = here.join("stage");
        let _ = fs::remove_dir_all(&stage);
        tree::write(&stage.join(&name), &[Item::text("gristmill", program).executable()], &release).unwrap();
        archive::tar_gz(&stage, to, &release).unwrap();
    };
    let served = folder("install-served");
    let archive = served.join(format!("{name}.tar.gz"));
    archive_of(program, &archive);
    let line = format!("{system} {machine} {} {name}.tar.gz", sums::sum(&archive).unwrap());
    let other = format!("Plan9 mips {} other.tar.gz", "0".repeat(64));
    let script = here.join("install.sh");
    fs::write(&script, install::script(&release, &[other, line]).unwrap()).unwrap();
    assert!(
        !fs::read_to_string(&script).unwrap().contains('@')
            || !fs::read_to_string(&script).unwrap().contains("@VERSION")
    );
    let server = Server::start(&served);
    let address = format!("http://127.0.0.1:{}", server.1);
    let install = |to: &str, from: &str| -> (Output, PathBuf) {
        let to = here.join(to);
        let mut command = Command::new("sh");
        command.arg(&script).arg(&to).env("GRISTMILL_DOWNLOADS", from).env("no_proxy", "127.0.0.1");
        (command.output().unwrap(), to)
    };
    let error = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();

    let (output, to) = install("a folder", &address);
    assert!(output.status.success(), "{}", error(&output));
    let printed = Command::new(to.join("gristmill")).output().unwrap().stdout;
    assert_eq!(String::from_utf8(printed).unwrap(), "gristmill 1.2.3\n");
    assert_eq!(fs::read_dir(&to).unwrap().count(), 1, "nothing is left over");

    let refused = |name: &str, words: &str| {
        let (output, to) = install(name, &address);
        assert!(!output.status.success() && error(&output).contains(words), "{name}: {}", error(&output));
        assert!(!to.exists(), "{name}: nothing is installed");
    };
    let good = fs::read(&archive).unwrap();
    fs::write(&archive, &good[..good.len() / 2]).unwrap();
    refused("truncated", "damaged or forged");
    archive_of("#!/bin/sh\necho forged\n", &archive);
    refused("forged", "damaged or forged");
    fs::remove_file(&archive).unwrap();
    refused("missing", "cannot be fetched");

    // A script that arrives in part.
    let whole = fs::read_to_string(&script).unwrap();
    fs::write(&script, &whole[..whole.len() * 4 / 5]).unwrap();
    let (_, to) = install("part", &address);
    assert!(!to.exists());
}
