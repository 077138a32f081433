//! A file with cases of earlier runs and the sources that they ran, because the search for such cases takes longest.
//! They are only hints: each case is run again before it counts.

use super::cases::{Cases, Only, Seen};
use gpu_sim::Language;
use gristmill_cuda::family::Family;
use gristmill_kernels::act::Precision;
use gristmill_kernels::format::Format;
use gristmill_suite::ops::ALL;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

const LANGUAGES: [Language; 2] = [Language::Cuda, Language::Metal];
const PRECISIONS: [Precision; 2] = [Precision::Exact, Precision::Fast];

/// A case that ran these sources.
pub(super) struct Remembered {
    pub(super) cases: Cases,
    files: Vec<String>,
}

impl Remembered {
    pub(super) fn runs(&self, file: &str) -> bool {
        self.files.iter().any(|known| known == file)
    }
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/barriers/cases.tsv")
}

/// The remembered cases; lines of another version of the suite are left out.
pub(super) fn read() -> Vec<Remembered> {
    std::fs::read_to_string(path()).unwrap_or_default().lines().filter_map(|line| line.parse().ok()).collect()
}

/// Adds those cases that reach a line which no quicker one reaches, and at least one of each part and limit.
///
/// # Errors
/// The file cannot be written.
pub(super) fn add(seen: &[Seen]) -> Result<(), String> {
    let mut lines: BTreeSet<String> = read().iter().map(Remembered::to_string).collect();
    let (mut reached, mut ways) = (BTreeSet::new(), Vec::new());
    // The quickest are first.
    for Seen { cases, files, lines: at, .. } in seen {
        let way = (cases.language, cases.part, cases.only);
        let is_new = !ways.contains(&way) || at.iter().any(|line| !reached.contains(line));
        if is_new {
            ways.push(way);
            reached.extend(at.iter().cloned());
            let files = files.iter().map(|&file| file.to_owned()).collect();
            lines.insert(Remembered { cases: *cases, files }.to_string());
        }
    }
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    // Another process may do the same: a file appears whole.
    let (path, own) = (path(), path().with_extension(std::process::id().to_string()));
    let folder = path.parent().unwrap_or(Path::new("."));
    let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&own, text));
    let outcome = written.and_then(|()| std::fs::rename(&own, &path));
    outcome.map_err(|error| format!("cannot write {}: {error}", path.display()))
}

impl fmt::Display for Only {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Any => write!(f, "any"),
            Self::Deterministic => write!(f, "deterministic"),
            Self::Family(family) => write!(f, "{family}"),
            Self::These(format, precision) => write!(f, "{format} {precision:?}"),
        }
    }
}

impl FromStr for Only {
    type Err = ();

    fn from_str(word: &str) -> Result<Self, ()> {
        let formats = Format::ALL.iter().flat_map(|&format| PRECISIONS.map(|precision| Self::These(format, precision)));
        let families = Family::ALL.map(Self::Family);
        let all = [Self::Any, Self::Deterministic].into_iter().chain(families).chain(formats);
        all.into_iter().find(|only| only.to_string() == word).ok_or(())
    }
}

impl fmt::Display for Remembered {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Cases { language, part, only, one_in, seed } = self.cases;
        write!(f, "{language:?}\t{part}\t{only}\t{one_in}\t{seed}\t{}", self.files.join(" "))
    }
}

impl FromStr for Remembered {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let [language, part, only, one_in, seed, files] =
            line.split('\t').collect::<Vec<_>>().try_into().map_err(drop)?;
        let cases = Cases {
            language: LANGUAGES.into_iter().find(|known| format!("{known:?}") == language).ok_or(())?,
            part: ALL.iter().find(|(known, _)| *known == part).ok_or(())?.0,
            only: only.parse()?,
            one_in: one_in.parse().map_err(drop)?,
            seed: seed.parse().map_err(drop)?,
        };
        Ok(Self { cases, files: files.split(' ').map(str::to_owned).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let only =
            [Only::Any, Only::Deterministic, Only::Family(Family::Mma), Only::These(Format::Q4_K, Precision::Fast)];
        for only in only {
            let cases = Cases { language: Language::Metal, part: "attend", only, one_in: 12, seed: u64::MAX };
            let files = vec!["attention.h".to_owned(), "norm.h".to_owned()];
            let line = Remembered { cases, files }.to_string();
            let read: Remembered = line.parse().unwrap_or_else(|()| panic!("{line}"));
            assert_eq!(read.to_string(), line);
            assert!(read.runs("norm.h") && !read.runs("norm"));
        }
        for wrong in ["", "Cuda\tattend", "Cuda\tno part\tany\t1\t2\tnorm.h", "Cuda\tattend\tany\tx\t2\tnorm.h"] {
            assert!(wrong.parse::<Remembered>().is_err(), "{wrong}");
        }
    }
}
