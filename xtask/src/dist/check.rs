//! `dist check`: each Linux artifact is installed on a bare root of Debian, which has no compiler, and runs README's first
//! command there.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::archive::{self, file_stem};
use super::build::Built;
use super::install::SCRIPT;
use super::product::{NAME, Release};
use super::sums::{self, SUMS};
use super::targets::{GLIBC, System, TARGETS, Target};
use super::{run, sh_in};
use crate::root;

/// The distribution of the bare root.
const SUITE: &str = "bookworm";
/// README's first command.
const COMMAND: &str = "gristmill run \"Once upon a time\"";
/// The fewest bytes of a story.
const LEAST_STORY: usize = 100;

/// A way to install an artifact on a bare root: lines of a shell there, where `/artifacts` has all artifacts.
struct Installation {
    artifact: String,
    line: String,
    program: &'static str,
}

/// Checks all artifacts that are there, and fails if there are none.
pub(super) fn check(release: &Release, out: &Path) -> Result<(), String> {
    super::tools::install()?;
    check_sums(out)?;
    let readme = fs::read_to_string(root().join("README.md")).map_err(|error| format!("README.md: {error}"))?;
    if !readme.lines().any(|line| line.trim() == COMMAND) {
        return Err(format!("README.md: has no line `{COMMAND}`"));
    }
    let mut checked = 0;
    for target in TARGETS.into_iter().filter(|target| target.system == System::Linux) {
        let built = Built::new(target);
        let files = [built.program(), built.folder.join("libgristmill.so")];
        files.iter().filter(|file| file.is_file()).try_for_each(|file| check_glibc(file))?;
        let present = |installation: &Installation| out.join(&installation.artifact).is_file();
        for installation in installations(release, target).iter().filter(|installation| present(installation)) {
            let story = match built.runs_here() {
                true => on_bare_root(installation, out)?,
                false => emulated(target, installation, out)?,
            };
            println!("{}: {}", installation.artifact, story.lines().next().unwrap_or_default());
            checked += 1;
        }
    }
    if checked == 0 {
        Err(format!("{}: has no artifact to check; run cargo xtask dist", out.display()))
    } else {
        Ok(())
    }
}

fn installations(release: &Release, target: Target) -> Vec<Installation> {
    let (version, stem) = (&release.version, file_stem(NAME, release, target.triple));
    let archive = format!("{stem}.tar.gz");
    let (deb, rpm) = (format!("{NAME}_{version}_{}.deb", target.deb), format!("{NAME}-{version}-1.{}.rpm", target.rpm));
    vec![
        Installation { line: format!("dpkg --install /artifacts/{deb}"), program: "/usr/bin/gristmill", artifact: deb },
        // Debian has no database of rpm's packages.
        Installation {
            line: format!("cd / && rpm2cpio /artifacts/{rpm} | cpio --extract --make-directories --quiet"),
            program: "/usr/bin/gristmill",
            artifact: rpm,
        },
        Installation {
            line: format!("GRISTMILL_DOWNLOADS=/artifacts sh /artifacts/{SCRIPT} /usr/local/bin"),
            program: "/usr/local/bin/gristmill",
            artifact: archive,
        },
    ]
}

/// Installs an artifact on a new root and runs the program there.
fn on_bare_root(installation: &Installation, out: &Path) -> Result<String, String> {
    let bare =
        bare_root(env::consts::ARCH, if installation.artifact.ends_with(".rpm") { "rpm2cpio,cpio" } else { "" })?;
    let result = (|| {
        let artifacts = bare.join("artifacts");
        fs::create_dir_all(&artifacts).map_err(|error| format!("{}: {error}", artifacts.display()))?;
        for name in [installation.artifact.as_str(), SCRIPT] {
            fs::copy(out.join(name), artifacts.join(name)).map_err(|error| format!("{name}: {error}"))?;
        }
        let line = format!("! command -v cc gcc clang rustc && {} >&2 && {COMMAND}", installation.line);
        let chroot = |line: &str| {
            Command::new("chroot")
                .arg(&bare)
                .args(["sh", "-euc", line])
                .env_clear()
                .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
                .env("HOME", "/root")
                .output()
        };
        let output = chroot(&line).map_err(|error| format!("chroot: cannot be started: {error}"))?;
        story(installation, &output)
    })();
    fs::remove_dir_all(&bare).map_err(|error| format!("{}: {error}", bare.display()))?;
    result
}

/// Unpacks an artifact of another architecture into a root of it, and runs the program in an emulator.
fn emulated(target: Target, installation: &Installation, out: &Path) -> Result<String, String> {
    let bare = bare_root(target.image, "")?;
    let result = (|| {
        let artifact = out.join(&installation.artifact);
        let program = match installation.artifact.rsplit('.').next() {
            Some("deb") => {
                run("dpkg-deb", &["--extract", &artifact.display().to_string(), &bare.display().to_string()])?;
                bare.join(&installation.program[1..])
            }
            Some("rpm") => {
                sh_in(
                    &bare,
                    &format!("rpm2cpio {} | cpio --extract --make-directories --quiet", archive::quoted(&artifact)),
                )?;
                bare.join(&installation.program[1..])
            }
            _ => {
                archive::unpack(&artifact, &bare)?;
                bare.join(installation.artifact.trim_end_matches(".tar.gz")).join(target.program())
            }
        };
        let mut emulator = Command::new(format!("qemu-{}-static", target.uname.1));
        let output = emulator.arg("-L").arg(&bare).arg(program).args(["run", "Once upon a time"]).output();
        story(
            installation,
            &output.map_err(|error| format!("{emulator:?}: cannot be started: {error}; install qemu-user-static"))?,
        )
    })();
    fs::remove_dir_all(&bare).map_err(|error| format!("{}: {error}", bare.display()))?;
    result
}

fn story(installation: &Installation, output: &std::process::Output) -> Result<String, String> {
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match output.status.success() && text.len() >= LEAST_STORY {
        true => Ok(text),
        false => Err(format!(
            "{}: {COMMAND} failed, {}, and printed {text:?}\n{}",
            installation.artifact,
            output.status,
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}

/// A new root with Debian's essential packages of an architecture, from the sources of this system's apt.
fn bare_root(architecture: &str, packages: &str) -> Result<PathBuf, String> {
    let bare = root().join("target/dist/root");
    if bare.exists() {
        fs::remove_dir_all(&bare).map_err(|error| format!("{}: {error}", bare.display()))?;
    }
    let debian = match architecture {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let is_own = architecture == env::consts::ARCH;
    // Packages of another architecture cannot be configured here: their files are unpacked.
    let variant = if is_own { "--variant=essential" } else { "--variant=extract" };
    let packages = match (packages, is_own) {
        ("", true) => String::new(),
        ("", false) => "--include=libc6".to_owned(),
        (packages, _) => format!("--include={packages}"),
    };
    let sources = "$(find /etc/apt -name '*.list' -o -name '*.sources')";
    let line = format!(
        "mmdebstrap --quiet --mode=root {variant} --architectures={debian} {packages} {SUITE} {} {sources}",
        archive::quoted(&bare)
    );
    sh_in(root(), &line)?;
    Ok(bare)
}

/// Compares the files with their sums.
fn check_sums(out: &Path) -> Result<(), String> {
    let path = out.join(SUMS);
    let text =
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}; run cargo xtask dist", path.display()))?;
    for line in text.lines() {
        let (expected, name) = line.split_once("  ").ok_or_else(|| format!("{SUMS}: is malformed at {line:?}"))?;
        let found = sums::sum(&out.join(name))?;
        if found != expected {
            return Err(format!(
                "{name}: is damaged (found SHA-256 {found}, expected {expected}); run cargo xtask dist"
            ));
        }
    }
    Ok(())
}

/// Refuses a file that needs a newer glibc.
fn check_glibc(file: &Path) -> Result<(), String> {
    let output = Command::new("readelf").args(["--version-info", "--wide"]).arg(file).output();
    let output = output.map_err(|error| format!("readelf: cannot be started: {error}; install binutils"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let newest = newest_glibc(&text).ok_or_else(|| format!("{}: names no version of glibc", file.display()))?;
    let most = number(GLIBC).unwrap_or_default();
    match newest <= most {
        true => Ok(()),
        false => Err(format!("{}: needs a newer glibc (found {newest:?}, expected at most {most:?})", file.display())),
    }
}

/// The newest version of glibc that the output of readelf names.
pub(super) fn newest_glibc(text: &str) -> Option<(u32, u32)> {
    let versions = text.split("GLIBC_").skip(1).filter_map(|rest| {
        number(rest.split(|character: char| character != '.' && !character.is_ascii_digit()).next()?)
    });
    versions.max()
}

fn number(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.').map(str::parse::<u32>);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}
