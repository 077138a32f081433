//! Which files of a repository make up the model that is meant.

use std::collections::BTreeMap;

use crate::Error;
use crate::listing::RemoteFile;
use crate::reference::{Pick, Reference, is_gguf};

/// The tags that are taken without a tag, the first that is there.
pub const USUAL: [&str; 2] = ["Q4_K_M", "Q8_0"];

/// A model of a repository: its parts in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice<'a> {
    /// The files, of a split model in order.
    pub files: Vec<&'a RemoteFile>,
    /// Parts that the names select.
    parts: usize,
}

impl Choice<'_> {
    /// Bytes of all files.
    pub fn size(&self) -> u64 {
        self.files.iter().map(|file| file.size).fold(0, u64::saturating_add)
    }

    /// The path of the first part.
    pub fn path(&self) -> &str {
        self.files.first().map_or("", |file| &file.path)
    }

    fn has_tag(&self, tag: &str) -> bool {
        has_tag(self.path(), tag)
    }

    /// Whether the tag ends the name.
    fn ends_with(&self, tag: &str) -> bool {
        let stem = stem(self.path()).to_ascii_uppercase();
        let rest = stem.strip_suffix(&tag.to_ascii_uppercase());
        rest.is_some_and(|rest| !rest.ends_with(|c: char| c.is_ascii_alphanumeric()))
    }
}

/// The models of a repository in the order of their names. Projectors and importance matrices are none.
pub fn models(files: &[RemoteFile]) -> Vec<Choice<'_>> {
    let mut models: BTreeMap<(&str, usize), Vec<(usize, &RemoteFile)>> = BTreeMap::new();
    for file in files.iter().filter(|file| is_model(&file.path)) {
        let (name, number, parts) = split(&file.path).unwrap_or((&file.path, 1, 1));
        models.entry((name, parts)).or_default().push((number, file));
    }
    let choice = |((_, parts), mut files): ((&str, usize), Vec<(usize, _)>)| {
        files.sort_by_key(|(number, _)| *number);
        files.dedup_by_key(|(number, _)| *number);
        Choice { files: files.into_iter().map(|(_, file)| file).collect(), parts }
    };
    models.into_iter().map(choice).collect()
}

/// The model that a reference means.
///
/// # Errors
/// If there is none or several, with the choices, or parts are missing.
pub fn choose<'a>(files: &'a [RemoteFile], reference: &Reference) -> Result<Choice<'a>, Error> {
    let repo = || reference.repo.clone();
    let models = models(files);
    if models.is_empty() {
        return Err(Error::NoModels { repo: repo() });
    }
    let missing = |wanted: &str| Error::NoSuchModel { repo: repo(), wanted: wanted.to_owned(), choices: list(&models) };
    let choice = match &reference.pick {
        Pick::File(path) => models.iter().find(|model| named(model, path)).ok_or_else(|| missing(path))?,
        Pick::Tag(tag) => {
            let tagged = tagged(&models, tag);
            match (tagged.first(), tagged.len()) {
                (Some(&one), 1) => one,
                (None, _) => return Err(missing(tag)),
                _ => {
                    let several: Vec<Choice> = tagged.into_iter().cloned().collect();
                    return Err(Error::Ambiguous { repo: repo(), wanted: tag.clone(), choices: list(&several) });
                }
            }
        }
        Pick::Usual => match (usual(&models), models.as_slice()) {
            (Some(choice), _) | (None, [choice]) => choice,
            _ => return Err(Error::Choose { repo: repo(), choices: list(&models) }),
        },
    };
    match (choice.files.len(), choice.parts) {
        (found, parts) if found == parts => Ok(choice.clone()),
        (found, parts) => Err(Error::Parts { repo: repo(), file: choice.path().to_owned(), found, parts }),
    }
}

/// Models with a tag; if several have it, those that end with it.
fn tagged<'a, 'b>(models: &'b [Choice<'a>], tag: &str) -> Vec<&'b Choice<'a>> {
    let all: Vec<_> = models.iter().filter(|model| model.has_tag(tag)).collect();
    let ending: Vec<_> = all.iter().copied().filter(|model| model.ends_with(tag)).collect();
    if all.len() > 1 && ending.len() == 1 { ending } else { all }
}

/// The model that is taken without a tag.
fn usual<'a, 'b>(models: &'b [Choice<'a>]) -> Option<&'b Choice<'a>> {
    USUAL.iter().find_map(|tag| match tagged(models, tag).as_slice() {
        [one] => Some(*one),
        _ => None,
    })
}

fn named(model: &Choice, path: &str) -> bool {
    model.files.iter().any(|file| file.path == path || file.path.rsplit('/').next() == Some(path))
}

/// `a-Q4_0.gguf (4.50 GB), …`.
fn list(models: &[Choice]) -> String {
    let one = |model: &Choice| format!("{} ({})", model.path(), crate::bytes(model.size()));
    models.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn is_model(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    is_gguf(path) && !name.contains("mmproj") && !name.contains("imatrix.")
}

/// The name of a file without folder, ending and number of the part.
fn stem(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    match split(name) {
        Some((stem, ..)) => stem,
        None => name.get(..name.len().saturating_sub(5)).unwrap_or(name),
    }
}

/// Takes `NAME-00002-of-00003.gguf` apart into name, number and parts.
fn split(path: &str) -> Option<(&str, usize, usize)> {
    let stem = path.get(..path.len().checked_sub(5)?)?;
    let (rest, parts) = stem.rsplit_once("-of-")?;
    let (name, number) = rest.rsplit_once('-')?;
    let read = |digits: &str| (digits.len() == 5).then(|| digits.parse::<usize>().ok())?;
    let (number, parts) = (read(number)?, read(parts)?);
    (1..=parts).contains(&number).then_some((name, number, parts))
}

/// Whether a tag is in a path, without regard to case, between characters that belong to no tag.
fn has_tag(path: &str, tag: &str) -> bool {
    let (path, tag) = (path.to_ascii_uppercase(), tag.to_ascii_uppercase());
    path.match_indices(&tag).any(|(at, _)| {
        let before = path[..at].chars().next_back();
        let after = path[at + tag.len()..].chars().next();
        !before.is_some_and(|c| c.is_ascii_alphanumeric())
            && !after.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

/// The quantisation in a file's name, such as `Q4_K_M` or `MXFP4`: the last part of the name that looks like one.
pub fn tag_of(path: &str) -> Option<String> {
    let mut parts = stem(path).split(['-', '.']);
    let known = |part: &&str| {
        let part = part.to_ascii_uppercase();
        let digits = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
        let numbered = ["IQ", "TQ", "Q"].iter().any(|start| part.strip_prefix(start).is_some_and(digits));
        let floats = ["MXFP4", "NVFP4"].iter().any(|start| part.starts_with(start));
        numbered || floats || ["F32", "F16", "BF16"].contains(&part.as_str())
    };
    parts.rfind(known).map(str::to_ascii_uppercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(paths: &[&str]) -> Vec<RemoteFile> {
        let file = |path: &&str| RemoteFile { path: path.to_string(), size: 1_500_000_000, sha256: None };
        paths.iter().map(file).collect()
    }

    fn pick(paths: &[&str], text: &str) -> Result<Vec<String>, Error> {
        let files = files(paths);
        let reference = text.parse().expect(text);
        choose(&files, &reference).map(|choice| choice.files.iter().map(|file| file.path.clone()).collect())
    }

    const MANY: [&str; 8] = [
        "README.md",
        "m-Q4_K_M.gguf",
        "m-Q4_K.gguf",
        "m-IQ4_XS.gguf",
        "m-Q8_0.gguf",
        "mmproj-m-Q8_0.gguf",
        "m-BF16.gguf",
        "imatrix.gguf",
    ];

    #[test]
    fn a_tag_stands_alone_in_the_name() {
        for (tag, file) in
            [("q4_k_m", "m-Q4_K_M.gguf"), ("Q4_K", "m-Q4_K.gguf"), ("iq4_xs", "m-IQ4_XS.gguf"), ("BF16", "m-BF16.gguf")]
        {
            assert_eq!(pick(&MANY, &format!("a/b:{tag}")).expect(tag), [file]);
        }
        for tag in ["Q4", "F16", "4_XS", "Q4_K_"] {
            assert!(matches!(pick(&MANY, &format!("a/b:{tag}")), Err(Error::NoSuchModel { .. })), "{tag}");
        }
        assert_eq!(pick(&MANY, "a/b:m-Q8_0.gguf").expect("it is there"), ["m-Q8_0.gguf"]);
        assert!(pick(&MANY, "a/b:mmproj-m-Q8_0.gguf").is_err(), "a projector is no model");
    }

    #[test]
    fn the_usual_is_q4_k_m_then_q8_0_then_the_only_one() {
        assert_eq!(pick(&MANY, "a/b").expect("Q4_K_M"), ["m-Q4_K_M.gguf"]);
        assert_eq!(pick(&MANY[3..], "a/b").expect("Q8_0"), ["m-Q8_0.gguf"]);
        assert_eq!(pick(&["x.gguf"], "a/b").expect("one"), ["x.gguf"]);
        let error = pick(&["m-Q2_K.gguf", "m-Q6_K.gguf"], "a/b").expect_err("two").to_string();
        assert!(error.contains("m-Q2_K.gguf (1.50 GB), m-Q6_K.gguf (1.50 GB)"), "{error}");
        assert!(matches!(pick(&["x.bin"], "a/b"), Err(Error::NoModels { .. })));
    }

    #[test]
    fn all_parts_of_a_split_model_are_taken() {
        let parts =
            ["Q8_0/m-Q8_0-00002-of-00003.gguf", "Q8_0/m-Q8_0-00001-of-00003.gguf", "Q8_0/m-Q8_0-00003-of-00003.gguf"];
        for name in ["a/b:Q8_0", "a/b:Q8_0/m-Q8_0-00002-of-00003.gguf", "a/b:m-Q8_0-00003-of-00003.gguf"] {
            assert_eq!(pick(&parts, name).expect(name), [parts[1], parts[0], parts[2]]);
        }
        assert!(matches!(pick(&parts[..2], "a/b:Q8_0"), Err(Error::Parts { found: 2, parts: 3, .. })));
    }

    #[test]
    fn several_that_fit_are_listed_unless_one_ends_with_the_tag() {
        assert_eq!(pick(&["m-Q4_0.gguf", "m-Q4_0-pure.gguf"], "a/b:Q4_0").expect("it ends so"), ["m-Q4_0.gguf"]);
        assert!(matches!(pick(&["m-Q4_0.gguf", "n-Q4_0.gguf"], "a/b:Q4_0"), Err(Error::Ambiguous { .. })));
    }

    #[test]
    fn tags_are_found_in_names() {
        for (path, tag) in [
            ("a/Qwen3-8B-Q4_K_M.gguf", Some("Q4_K_M")),
            ("gpt-oss-20b-MXFP4_MOE.gguf", Some("MXFP4_MOE")),
            ("Nemotron-3-Nano-NVFP4.gguf", Some("NVFP4")),
            ("m.Q8_0.gguf", Some("Q8_0")),
            ("m-UD-IQ2_XXS-00001-of-00002.gguf", Some("IQ2_XXS")),
            ("Qwen3-8B-f16.gguf", Some("F16")),
            ("Qwen3-8B.gguf", None),
            (".gguf", None),
        ] {
            assert_eq!(tag_of(path).as_deref(), tag, "{path}");
        }
    }
}
