//! Names of models: `ORG/REPO[:QUANT|:FILE][@REVISION]`, with or without `hf:` in front.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use crate::Error;

/// The start of a model argument that names a model of the hub.
pub const PREFIX: &str = "hf:";

/// The revision without `@REVISION`.
pub const MAIN: &str = "main";

/// The longest name of a repository, by the hub's rules.
const LONGEST: usize = 96;

/// A model of the hub by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// `ORG/REPO`.
    pub repo: String,
    /// The model within the repository.
    pub pick: Pick,
    /// A branch, a tag or a commit.
    pub revision: String,
}

/// Which model of a repository is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pick {
    /// The usual one: Q4_K_M, then Q8_0.
    Usual,
    /// The one with this tag in its name.
    Tag(String),
    /// The one in this file, or with this file among its parts.
    File(String),
}

impl FromStr for Reference {
    type Err = Error;

    fn from_str(text: &str) -> Result<Reference, Error> {
        let refuse = |reason| Error::Reference { text: text.to_owned(), reason };
        let name = text.strip_prefix(PREFIX).unwrap_or(text);
        let (name, revision) = name.split_once('@').map_or((name, MAIN), |(name, revision)| (name, revision));
        let (repo, pick) = name.split_once(':').map_or((name, None), |(repo, pick)| (repo, Some(pick)));
        let (owner, model) = repo.split_once('/').ok_or_else(|| refuse("ORG/REPO has a slash"))?;
        if ![owner, model].into_iter().all(is_name) || repo.len() > LONGEST {
            return Err(refuse("ORG and REPO have letters, digits, '.', '-' and '_', without '..' or '--'"));
        }
        if !is_path(revision) {
            return Err(refuse("the revision after @ is a branch, a tag or a commit"));
        }
        let pick = match pick {
            None => Pick::Usual,
            Some(file) if is_gguf(file) && is_path(file) => Pick::File(file.to_owned()),
            Some(tag) if !tag.is_empty() && tag.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) => {
                Pick::Tag(tag.to_owned())
            }
            Some(_) => return Err(refuse("after the colon stands a quantisation or a file that ends in .gguf")),
        };
        Ok(Reference { repo: repo.to_owned(), pick, revision: revision.to_owned() })
    }
}

impl Display for Reference {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.write_str(&self.repo)?;
        match &self.pick {
            Pick::Usual => Ok(()),
            Pick::Tag(pick) | Pick::File(pick) => write!(f, ":{pick}"),
        }?;
        if self.revision == MAIN { Ok(()) } else { write!(f, "@{}", self.revision) }
    }
}

/// A name of an owner or of a repository.
fn is_name(name: &str) -> bool {
    let known = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let edge = |b: Option<&u8>| b.is_some_and(|b| !b"-.".contains(b));
    let bytes = name.as_bytes();
    name.bytes().all(known) && edge(bytes.first()) && edge(bytes.last()) && !name.contains("--") && !name.contains("..")
}

/// A path within a folder: its parts are names, none leads upwards, and no system reads it differently.
pub(crate) fn is_path(path: &str) -> bool {
    let bad = |c: char| c.is_control() || "\\:*?\"<>|".contains(c);
    let part = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.ends_with([' ', '.']);
    path.len() <= 1024 && path.split('/').all(part) && !path.contains(bad)
}

/// Whether a file is named like one with a model.
pub(crate) fn is_gguf(path: &str) -> bool {
    path.len() > 5 && path.as_bytes()[path.len() - 5..].eq_ignore_ascii_case(b".gguf")
}

/// A whole commit.
pub(crate) fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && revision.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_model_and_a_revision() {
        let read = |text: &str| text.parse::<Reference>().expect(text);
        let usual = read("hf:Qwen/Qwen3-8B-GGUF");
        assert_eq!(
            (usual.repo.as_str(), &usual.pick, usual.revision.as_str()),
            ("Qwen/Qwen3-8B-GGUF", &Pick::Usual, MAIN)
        );
        let tag = read("a/b:q4_k_m@refs/pr/1");
        assert_eq!((tag.pick, tag.revision.as_str()), (Pick::Tag("q4_k_m".to_owned()), "refs/pr/1"));
        assert_eq!(read("a/b:Q8_0/m.GGUF").pick, Pick::File("Q8_0/m.GGUF".to_owned()));
        for text in ["a/b", "a/b:Q4_0", "a/b:x.gguf@v1"] {
            assert_eq!(read(text).to_string(), text);
        }
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let wrong = [
            "",
            "hf:",
            "b",
            "/b",
            "a/",
            "a/b/c",
            "../b",
            "a/..",
            "a--b/c",
            "a/b:",
            "a/b:../x.gguf",
            "a/b:/x.gguf",
            "a/b@",
            "a/b@../x",
            "a/b@/x",
            "a b/c",
            "a/b:x y",
            "a/b:C:x.gguf",
            "a/b:.gguf/",
            "é/b",
            "a/b@x\n",
        ];
        for text in wrong.iter().chain([&format!("a/{}", "b".repeat(100)).as_str()]) {
            assert!(matches!(text.parse::<Reference>(), Err(Error::Reference { .. })), "{text}");
        }
    }
}
