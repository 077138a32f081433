//! Names of models: `ORG/REPO[:QUANT|:FILE][@REVISION]`, alone, after `hf:`, or as an address of the hub.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use crate::Error;

/// The tags that are taken without a tag, the first that is there.
pub const USUAL: [&str; 3] = ["Q4_K_M", "UD-Q4_K_XL", "Q8_0"];

/// A mark before a name.
const MARKS: [&str; 2] = ["hf://", "hf:"];

/// The hosts of the public hub.
const HOSTS: [&str; 3] = ["huggingface.co/", "www.huggingface.co/", "hf.co/"];

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
    /// The usual one: Q4_K_M, then UD-Q4_K_XL, then Q8_0.
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
        let of_address = after_host(text).map(|rest| of_address(rest).ok_or_else(|| refuse(ADDRESS))).transpose()?;
        let marked = || MARKS.iter().find_map(|mark| text.strip_prefix(mark)).unwrap_or(text);
        let name = of_address.as_deref().unwrap_or_else(marked);
        let (name, revision) = name.split_once('@').map_or((name, MAIN), |(name, revision)| (name, revision));
        let (repo, pick) = name.split_once(':').map_or((name, None), |(repo, pick)| (repo, Some(pick)));
        let (owner, model) = repo.split_once('/').ok_or_else(|| refuse("ORG/REPO has a slash"))?;
        if ![owner, model].into_iter().all(is_name) || repo.len() > LONGEST {
            return Err(refuse("ORG and REPO have letters, digits, '.', '-' and '_', without '..' or '--'"));
        }
        // Written down, it would be read as an address.
        if HOSTS.iter().any(|host| host.strip_suffix('/') == Some(owner)) {
            return Err(refuse("ORG is the host of the hub, which must be before ORG/REPO once"));
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
            Some(_) => return Err(refuse("after the colon must be a quantisation or a file that ends in .gguf")),
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

impl Reference {
    /// Whether a word can only name a model of the hub: it starts with `hf:` or with the host of the hub.
    pub fn is_marked(word: &str) -> bool {
        MARKS.iter().any(|mark| word.starts_with(mark)) || after_host(word).is_some()
    }

    /// Whether a word has the form of a name without a mark. A path can have it too.
    pub fn is_bare(word: &str) -> bool {
        let is_worded = |part: &str| part.bytes().any(|b| b.is_ascii_alphabetic());
        !Reference::is_marked(word)
            && word.parse::<Reference>().is_ok_and(|name| {
                let path = name.pick == Pick::Usual && is_gguf(word);
                !path && name.repo.split('/').all(is_worded)
            })
    }
}

const ADDRESS: &str =
    "an address must name a repository, a revision (/tree/REVISION) or a file (/blob/REVISION/FILE.gguf)";

/// The rest of an address of the hub after its host.
fn after_host(text: &str) -> Option<&str> {
    let name = ["https://", "http://"].iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(text);
    HOSTS.iter().find_map(|host| name.strip_prefix(host))
}

/// The name in the rest of an address: `ORG/REPO…`, `ORG/REPO/tree/REVISION` or `ORG/REPO/blob/REVISION/FILE`.
fn of_address(rest: &str) -> Option<String> {
    let path = rest.split(['?', '#']).next().unwrap_or(rest).trim_end_matches('/');
    let mut parts = path.splitn(5, '/');
    let (owner, model) = (parts.next()?, parts.next()?);
    let revision = |revision: &str| revision.replace("%2F", "/");
    match (parts.next(), parts.next(), parts.next()) {
        (None, ..) => Some(format!("{owner}/{model}")),
        (Some("tree"), Some(tree), None) => Some(format!("{owner}/{model}@{}", revision(tree))),
        (Some("blob" | "resolve"), Some(tree), Some(file)) if is_gguf(file) => {
            Some(format!("{owner}/{model}:{file}@{}", revision(tree)))
        }
        _ => None,
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
    fn addresses_of_the_hub_are_names() {
        for (address, name) in [
            ("hf.co/a/b", "a/b"),
            ("hf.co/a/b:Q4_K_M", "a/b:Q4_K_M"),
            ("huggingface.co/a/b@v1", "a/b@v1"),
            ("hf://a/b", "a/b"),
            ("https://huggingface.co/a/b/", "a/b"),
            ("https://huggingface.co/a/b?not-for-all-audiences=true#files", "a/b"),
            ("https://huggingface.co/a/b/tree/main", "a/b"),
            ("https://www.huggingface.co/a/b/tree/refs%2Fpr%2F1", "a/b@refs/pr/1"),
            ("http://hf.co/a/b/blob/v1/Q8_0/m.gguf", "a/b:Q8_0/m.gguf@v1"),
            ("https://huggingface.co/a/b/resolve/main/m.gguf?download=true", "a/b:m.gguf"),
        ] {
            let read = address.parse::<Reference>().expect(address);
            assert_eq!((read.to_string().as_str(), Reference::is_marked(address)), (name, true), "{address}");
        }
        let wrong = ["hf.co/", "hf.co/a", "https://huggingface.co/a/b/discussions", "hf.co/a/b/blob/main/m.bin"];
        for address in wrong.into_iter().chain(["hf.co/hf.co/a", "hf:hf.co/a", "https://hf.co/www.huggingface.co/a"]) {
            assert!(Reference::is_marked(address) && address.parse::<Reference>().is_err(), "{address}");
        }
    }

    #[test]
    fn bare_names_have_the_form_of_repositories() {
        for word in ["Qwen/Qwen3-8B-GGUF", "01-ai/Yi-6B", "a/b:Q4_K_M", "a/b:m.gguf", "a/b@v1"] {
            assert!(Reference::is_bare(word), "{word}");
        }
        for word in ["hf:a/b", "hf.co/a/b", "models/m.gguf", "./a", "../a/b", "/a/b", "a b/c", "Why?", "24/7", "a/b/c"]
        {
            assert!(!Reference::is_bare(word), "{word}");
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
