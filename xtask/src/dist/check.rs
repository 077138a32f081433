//! `dist check`: each Linux artifact is installed on a bare root of Debian, which has no compiler, and runs there.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::archive::file_stem;
use super::bare::{self, COMMAND, Installation, Proof};
use super::build::Built;
use super::install::SCRIPT;
use super::product::{NAME, Release};
use super::sums::{self, SUMS};
use super::targets::{GLIBC, System, TARGETS, Target};
use super::wheel;
use crate::root;

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
        for installation in &installations(release, target) {
            if !installation.artifacts.iter().all(|artifact| out.join(artifact).is_file()) {
                continue;
            }
            let printed = match built.runs_here() {
                true => bare::installed(installation, out)?,
                false if installation.proof == Proof::Kernels => continue,
                false => bare::emulated(target, installation, out)?,
            };
            println!("{}: {}", installation.artifacts[0], printed.lines().next().unwrap_or_default());
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
    let (kernels, kernels_deb) =
        (format!("{NAME}-kernels-{version}.tar.gz"), format!("{NAME}-kernels_{version}_all.deb"));
    let script = format!("GRISTMILL_DOWNLOADS=/artifacts sh /artifacts/{SCRIPT} /usr/local/bin");
    let wheel = wheel::name(release, target);
    vec![
        Installation {
            line: format!("dpkg --install /artifacts/{deb}"),
            artifacts: vec![deb.clone()],
            packages: "",
            proof: Proof::Story,
        },
        // Debian has no database of rpm's packages.
        Installation {
            line: format!("cd / && rpm2cpio /artifacts/{rpm} | cpio --extract --make-directories --quiet"),
            artifacts: vec![rpm],
            packages: "rpm2cpio,cpio",
            proof: Proof::Story,
        },
        Installation {
            line: script.clone(),
            artifacts: vec![archive.clone(), SCRIPT.to_owned()],
            packages: "",
            proof: Proof::Story,
        },
        Installation {
            line: format!("python3 -m venv /venv && /venv/bin/pip install --quiet --no-index /artifacts/{wheel}"),
            artifacts: vec![wheel],
            packages: "python3-venv",
            proof: Proof::Python,
        },
        Installation {
            line: format!("dpkg --install /artifacts/{deb} /artifacts/{kernels_deb}"),
            artifacts: vec![kernels_deb, deb],
            packages: "",
            proof: Proof::Kernels,
        },
        Installation {
            line: format!("{script} && tar -xzf /artifacts/{kernels} -C /usr/local"),
            artifacts: vec![kernels, archive, SCRIPT.to_owned()],
            packages: "",
            proof: Proof::Kernels,
        },
    ]
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
