//! Which files of a repository make up the model that is meant.

use std::collections::BTreeMap;

use gristmill_files::gguf::FileKind;

use crate::Error;
use crate::listing::RemoteFile;
use crate::reference::{Pick, Reference, USUAL, is_gguf};

/// Returns the kind of a file by its header; `None` if the header does not show one.
pub(crate) type Judge<'j> = &'j mut dyn FnMut(&RemoteFile) -> Result<Option<FileKind>, Error>;

/// GGUF files of a repository that belong together: one file, or the parts of a split model in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice<'a> {
    /// The files, of a split model in order.
    pub files: Vec<&'a RemoteFile>,
    /// What they are: by their name, until their header has been read.
    pub kind: FileKind,
    /// Parts that the names select.
    parts: usize,
}

/// The model that a reference means, and the other files of its repository.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Picked<'a> {
    /// The model.
    pub model: Choice<'a>,
    /// The other language models, as far as their names show.
    pub others: Vec<Choice<'a>>,
    /// Files that are no language models: draft models, projectors and others.
    pub companions: Vec<Choice<'a>>,
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

    /// How late a choice is tried: names without a mark first, then those of models that may be drafts.
    pub fn rank(&self) -> usize {
        match FileKind::of_name(self.path()) {
            FileKind::LanguageModel => 0,
            FileKind::Draft => 1,
            _ => LAST_RANK,
        }
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

    fn is_named(&self, path: &str) -> bool {
        self.files.iter().any(|file| file.path == path || file.path.rsplit('/').next() == Some(path))
    }
}

const LAST_RANK: usize = 2;

/// Headers that are read to choose among several models.
const FEW: usize = 16;

/// All GGUF files of a repository in the order of their names, with the kinds that their names suggest.
pub fn choices(files: &[RemoteFile]) -> Vec<Choice<'_>> {
    let mut choices: BTreeMap<(&str, usize), Vec<(usize, &RemoteFile)>> = BTreeMap::new();
    for file in files.iter().filter(|file| is_gguf(&file.path)) {
        let (name, number, parts) = split(&file.path).unwrap_or((&file.path, 1, 1));
        choices.entry((name, parts)).or_default().push((number, file));
    }
    let choice = |((name, parts), mut files): ((&str, usize), Vec<(usize, _)>)| {
        files.sort_by_key(|(number, _)| *number);
        files.dedup_by_key(|(number, _)| *number);
        Choice { files: files.into_iter().map(|(_, file)| file).collect(), kind: FileKind::of_name(name), parts }
    };
    choices.into_iter().map(choice).collect()
}

/// The files with this path or name, whatever they are.
pub(crate) fn named<'a>(files: &'a [RemoteFile], path: &str) -> Option<Choice<'a>> {
    choices(files).into_iter().find(|choice| choice.is_named(path))
}

/// The model that a reference means. Names sort the candidates, and the header of the first one decides whether it is a
/// language model. A file that the reference names can be a draft model too.
///
/// # Errors
/// If there is none or several, with the choices, or parts are missing; those of `judge`.
pub(crate) fn choose<'a>(files: &'a [RemoteFile], reference: &Reference, judge: Judge) -> Result<Picked<'a>, Error> {
    let repo = || reference.repo.clone();
    let mut candidates = choices(files);
    let mut companions = Vec::new();
    if candidates.is_empty() {
        return Err(Error::NoModels { repo: repo() });
    }
    let mut are_judged = false;
    loop {
        let index = match candidate(&candidates, reference) {
            Ok(index) => index,
            Err(Error::NoModels { repo }) => {
                return Err(Error::NoLanguageModel { repo, found: list_kinds(&companions) });
            }
            Err(Error::Choose { .. } | Error::Ambiguous { .. }) if !are_judged => {
                // Their headers may leave one.
                judge_first(&mut candidates, &mut companions, judge)?;
                are_judged = true;
                continue;
            }
            Err(error) => return Err(error),
        };
        let mut model = candidates.remove(index);
        if model.files.len() != model.parts {
            let (file, found, parts) = (model.path().to_owned(), model.files.len(), model.parts);
            return Err(Error::Parts { repo: repo(), file, found, parts });
        }
        model.kind = model.files.first().map_or(Ok(None), |file| judge(file))?.unwrap_or(model.kind);
        match (&reference.pick, model.kind) {
            (_, FileKind::LanguageModel) | (Pick::File(_), FileKind::Draft) => {
                let rank = model.rank();
                let (others, marked): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|it| it.rank() <= rank);
                companions.extend(marked);
                return Ok(Picked { model, others, companions });
            }
            (Pick::File(_), kind) => {
                return Err(Error::NotAModel { repo: repo(), file: model.path().to_owned(), kind });
            }
            _ => companions.push(model),
        }
    }
}

/// Moves candidates of the lowest rank to the companions, if their headers are those of other kinds and they are few.
fn judge_first<'a>(
    candidates: &mut Vec<Choice<'a>>,
    companions: &mut Vec<Choice<'a>>,
    judge: Judge,
) -> Result<(), Error> {
    let lowest = candidates.iter().map(Choice::rank).min().unwrap_or(0);
    if candidates.iter().filter(|choice| choice.rank() == lowest).count() > FEW {
        return Ok(());
    }
    for mut choice in std::mem::take(candidates) {
        if choice.rank() == lowest {
            choice.kind = choice.files.first().map_or(Ok(None), |file| judge(file))?.unwrap_or(choice.kind);
        }
        let is_candidate = choice.rank() > lowest || choice.kind == FileKind::LanguageModel;
        if is_candidate { &mut *candidates } else { &mut *companions }.push(choice);
    }
    Ok(())
}

/// Quantisations of a projector, the first that a repository has. F16 is what the towers were published in, or close to
/// it, and below 8 bits a tower reads small text worse.
const PROJECTOR_TAGS: [&str; 4] = ["F16", "BF16", "Q8_0", "F32"];

/// The projector among files that are no language models, which a model needs to read images.
pub fn projector<'c, 'a>(companions: &'c [Choice<'a>]) -> Option<&'c Choice<'a>> {
    let projectors = || companions.iter().filter(|choice| choice.kind == FileKind::Projector);
    let tagged = PROJECTOR_TAGS.iter().find_map(|tag| projectors().find(|choice| choice.has_tag(tag)));
    tagged.or_else(|| projectors().min_by_key(|choice| choice.size()))
}

/// The same by names alone, without headers.
///
/// # Errors
/// Those of [`Hub::choose`](crate::Hub::choose).
pub fn choose_by_name<'a>(files: &'a [RemoteFile], reference: &Reference) -> Result<Picked<'a>, Error> {
    choose(files, reference, &mut |_| Ok(None))
}

/// The index of the candidate that a reference means by the names: of the lowest rank that has one.
fn candidate(candidates: &[Choice], reference: &Reference) -> Result<usize, Error> {
    let repo = || reference.repo.clone();
    let missing = |wanted: &str| {
        let lowest = candidates.iter().map(Choice::rank).min().unwrap_or(0);
        let listed: Vec<&Choice> = candidates.iter().filter(|choice| choice.rank() == lowest).collect();
        Error::NoSuchModel { repo: repo(), wanted: wanted.to_owned(), choices: list(&listed) }
    };
    if let Pick::File(path) = &reference.pick {
        return candidates.iter().position(|choice| choice.is_named(path)).ok_or_else(|| missing(path));
    }
    for rank in 0..=LAST_RANK {
        let models: Vec<&Choice> = candidates.iter().filter(|choice| choice.rank() == rank).collect();
        let found = match &reference.pick {
            Pick::Tag(tag) => match tagged(&models, tag).as_slice() {
                [] => continue,
                [one] => *one,
                several => {
                    return Err(Error::Ambiguous { repo: repo(), wanted: tag.clone(), choices: list(several) });
                }
            },
            _ => match (usual(&models), models.as_slice()) {
                (_, []) => continue,
                (Some(choice), _) | (None, &[choice]) => choice,
                _ => return Err(Error::Choose { repo: repo(), choices: list(&models) }),
            },
        };
        return candidates.iter().position(|choice| choice == found).ok_or_else(|| missing(found.path()));
    }
    match &reference.pick {
        Pick::Tag(tag) if !candidates.is_empty() => Err(missing(tag)),
        _ => Err(Error::NoModels { repo: repo() }),
    }
}

/// Models with a tag; if several have it, the one that ends with it.
fn tagged<'a, 'b>(models: &[&'b Choice<'a>], tag: &str) -> Vec<&'b Choice<'a>> {
    let all: Vec<_> = models.iter().copied().filter(|model| model.has_tag(tag)).collect();
    let ending: Vec<_> = all.iter().copied().filter(|model| model.ends_with(tag)).collect();
    if all.len() > 1 && ending.len() == 1 { ending } else { all }
}

/// The model that is taken without a tag.
fn usual<'a, 'b>(models: &[&'b Choice<'a>]) -> Option<&'b Choice<'a>> {
    USUAL.iter().find_map(|tag| match tagged(models, tag).as_slice() {
        [one] => Some(*one),
        _ => None,
    })
}

/// `a-Q4_0.gguf (4.50 GB), …`.
fn list(models: &[&Choice]) -> String {
    let one = |model: &&Choice| format!("{} ({})", model.path(), crate::bytes::bytes(model.size()));
    models.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// `mmproj-F16.gguf (projector), …`.
fn list_kinds(choices: &[Choice]) -> String {
    let one = |choice: &Choice| format!("{} ({})", choice.path(), choice.kind);
    choices.iter().map(one).collect::<Vec<_>>().join(", ")
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
        let file = |path: &&str| RemoteFile { path: path.to_string(), size: 1_500_000_000, sum: None };
        paths.iter().map(file).collect()
    }

    fn pick(paths: &[&str], text: &str) -> Result<Vec<String>, Error> {
        pick_by(paths, text, |_| None)
    }

    /// The same with headers of these kinds.
    fn pick_by(paths: &[&str], text: &str, header: fn(&str) -> Option<FileKind>) -> Result<Vec<String>, Error> {
        let files = files(paths);
        let reference = text.parse().expect(text);
        let picked = choose(&files, &reference, &mut |file| Ok(header(&file.path)))?;
        Ok(picked.model.files.iter().map(|file| file.path.clone()).collect())
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
        assert!(matches!(pick(&MANY, "a/b:mmproj-m-Q8_0.gguf"), Err(Error::NotAModel { .. })), "a projector");
    }

    #[test]
    fn the_usual_is_q4_k_m_then_ud_q4_k_xl_then_q8_0_then_the_only_one() {
        assert_eq!(pick(&MANY, "a/b").expect("Q4_K_M"), ["m-Q4_K_M.gguf"]);
        assert_eq!(pick(&MANY[3..], "a/b").expect("Q8_0"), ["m-Q8_0.gguf"]);
        let unsloth = ["m-BF16.gguf", "m-Q8_0.gguf", "m-UD-Q4_K_XL.gguf", "m-UD-Q8_K_XL.gguf"];
        assert_eq!(pick(&unsloth, "a/b").expect("UD-Q4_K_XL"), ["m-UD-Q4_K_XL.gguf"]);
        assert_eq!(pick(&["x.gguf"], "a/b").expect("one"), ["x.gguf"]);
        let error = pick(&["m-Q2_K.gguf", "m-Q6_K.gguf"], "a/b").expect_err("two").to_string();
        assert!(error.contains("m-Q2_K.gguf (1.50 GB), m-Q6_K.gguf (1.50 GB)"), "{error}");
        assert!(matches!(pick(&["x.bin"], "a/b"), Err(Error::NoModels { .. })));
    }

    /// Layouts of published repositories, and the file that is the model.
    const PUBLISHED: [(&[&str], &str); 10] = [
        (
            &[
                "gemma-4-12B-it-qat-UD-Q4_K_XL.gguf",
                "mtp-gemma-4-12B-it.gguf",
                "mmproj-BF16.gguf",
                "MTP/gemma-4-12B-it-Q8_0-MTP.gguf",
                "MTP/gemma-4-12B-it-BF16-MTP.gguf",
            ],
            "gemma-4-12B-it-qat-UD-Q4_K_XL.gguf",
        ),
        (
            &["gemma-4-E2B-it-Q8_0.gguf", "gemma-4-E2B-it-BF16.gguf", "MTP/gemma-4-E2B-it-Q8_0-MTP.gguf"],
            "gemma-4-E2B-it-Q8_0.gguf",
        ),
        (
            &["ornith-9b-mtp-kl-BF16.gguf", "ornith-9b-mtp-kl-Q4_K_M.gguf", "mtp-ornith-9b-mtp-kl-Q8_0.gguf"],
            "ornith-9b-mtp-kl-Q4_K_M.gguf",
        ),
        (&["mtp-gemma-4-E4B-it-Q8_0.gguf", "gemma-4-E4B-it-Q6_K.gguf", "mmproj-F16.gguf"], "gemma-4-E4B-it-Q6_K.gguf"),
        (&["m-Q6_K.gguf", "mmproj-m-Q8_0.gguf"], "m-Q6_K.gguf"),
        (&["m-Q4_K_XL.gguf", "m-eagle3-Q8_0.gguf", "m-dflash-Q8_0.gguf"], "m-Q4_K_XL.gguf"),
        (&["m-Q6_K.gguf", "m-draft-Q4_K_M.gguf"], "m-Q6_K.gguf"),
        (&["m-Q6_K.gguf", "m.imatrix.gguf", "imatrix_unsloth.gguf", "m-imatrix.gguf"], "m-Q6_K.gguf"),
        (&["m-Q6_K.gguf", "adapter-F16-LoRA.gguf"], "m-Q6_K.gguf"),
        (&["m-Q6_K.gguf", "vocoder-m-Q8_0.gguf"], "m-Q6_K.gguf"),
    ];

    #[test]
    fn files_next_to_a_model_are_not_taken_for_it() {
        for (files, model) in PUBLISHED {
            assert_eq!(pick(files, "a/b").expect(model), [model], "{files:?}");
            let companions = files.iter().filter(|path| FileKind::of_name(path) != FileKind::LanguageModel);
            for path in companions {
                let named = pick(files, &format!("a/b:{path}"));
                match FileKind::of_name(path) {
                    FileKind::Draft => assert_eq!(named.expect(path), [*path], "a draft model can be named"),
                    _ => assert!(matches!(named, Err(Error::NotAModel { .. })), "{path}"),
                }
            }
        }
        let tag = pick(&["m-Q6_K.gguf", "mmproj-m-Q8_0.gguf"], "a/b:Q8_0").expect_err("a projector").to_string();
        assert!(tag.contains("no `Q8_0`; it has: m-Q6_K.gguf"), "{tag}");
    }

    #[test]
    fn the_header_overrules_the_name() {
        use FileKind::{Draft, Imatrix, LanguageModel};
        // All names have the mark, or only one has the tag: models by their headers.
        let models = |_: &str| Some(LanguageModel);
        for (files, name, model) in [
            (&["m-draft-Q4_K_M.gguf", "m-draft-Q8_0.gguf"][..], "a/b", "m-draft-Q4_K_M.gguf"),
            (&["m-lora-Q8_0.gguf", "imatrix.gguf"], "a/b", "m-lora-Q8_0.gguf"),
            (&["m-Q8_0.gguf", "m-IQ4_XS-imatrix.gguf"], "a/b:IQ4_XS", "m-IQ4_XS-imatrix.gguf"),
            (&["m-Q8_0.gguf", "m-Q4_K_M-MTP.gguf"], "a/b:m-Q4_K_M-MTP.gguf", "m-Q4_K_M-MTP.gguf"),
        ] {
            assert_eq!(pick_by(files, name, models).expect(model), [model], "{files:?}");
        }
        // The name has no mark, but the header is that of another kind.
        let files = ["m-Q4_K_M.gguf", "m-Q8_0.gguf", "x.gguf"];
        let first_is_draft = |path: &str| Some(if path.contains("Q4_K_M") { Draft } else { LanguageModel });
        assert_eq!(pick_by(&files, "a/b", first_is_draft).expect("the next"), ["m-Q8_0.gguf"]);
        let tag = pick_by(&files, "a/b:Q4_K_M", first_is_draft).expect_err("a draft model").to_string();
        assert!(tag.contains("it has: m-Q8_0.gguf (1.50 GB), x.gguf"), "{tag}");
        let none = pick_by(&files, "a/b", |_| Some(Imatrix)).expect_err("no model");
        assert!(matches!(none, Error::NoLanguageModel { .. }), "{none:?}");
        // Names leave several, headers one.
        let tower = |path: &str| Some(if path == "tower-F16.gguf" { FileKind::Projector } else { LanguageModel });
        assert_eq!(pick_by(&["m-Q6_K.gguf", "tower-F16.gguf"], "a/b", tower).expect("one"), ["m-Q6_K.gguf"]);
        let several = pick_by(&["m-Q5_K.gguf", "m-Q6_K.gguf", "tower-F16.gguf"], "a/b", tower).expect_err("two");
        assert!(several.to_string().ends_with("m-Q5_K.gguf (1.50 GB), m-Q6_K.gguf (1.50 GB)"), "{several}");
        let none = pick_by(&files[..1], "a/b", |_| Some(Imatrix)).expect_err("no model").to_string();
        assert!(none.contains("no language model") && none.contains("m-Q4_K_M.gguf (importance matrix)"), "{none}");
    }

    #[test]
    fn the_files_next_to_the_model_are_returned() {
        let files = files(&["m-Q4_K_M.gguf", "m-Q8_0.gguf", "mtp-m.gguf", "mmproj-F16.gguf", "README.md"]);
        let reference = "a/b".parse().expect("a name");
        let picked = choose(&files, &reference, &mut |_| Ok(None)).expect("a model");
        let paths = |choices: &[Choice]| choices.iter().map(|it| it.path().to_owned()).collect::<Vec<_>>();
        assert_eq!((picked.model.path(), paths(&picked.others)), ("m-Q4_K_M.gguf", vec!["m-Q8_0.gguf".to_owned()]));
        assert_eq!(list_kinds(&picked.companions), "mmproj-F16.gguf (projector), mtp-m.gguf (draft model)");
    }

    #[test]
    fn one_projector_belongs_to_a_model() {
        let of = |paths: &[&str]| {
            let files = files(paths);
            let picked = choose(&files, &"a/b".parse().expect("a name"), &mut |_| Ok(None)).expect("a model");
            projector(&picked.companions).map(|choice| choice.path().to_owned())
        };
        for (paths, expected) in [
            (&["m-Q4_K_M.gguf", "mmproj-BF16.gguf", "mmproj-F16.gguf", "mmproj-F32.gguf"][..], Some("mmproj-F16.gguf")),
            (&["m-Q4_K_M.gguf", "mmproj-F32.gguf", "mmproj-Q8_0.gguf"], Some("mmproj-Q8_0.gguf")),
            (&["m-Q4_K_M.gguf", "mmproj-m.gguf"], Some("mmproj-m.gguf")),
            (&["m-Q4_K_M.gguf", "mtp-m-F16.gguf"], None),
        ] {
            assert_eq!(of(paths).as_deref(), expected);
        }
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
