//! The model of a command: a file, named by `-m` or by the first word, or the built-in model.

use std::ffi::OsStr;
use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};

use clap::Args;
use gristmill_convert::quantize::{Mix, QuantizeError};
use gristmill_convert::{ConvertOptions, is_model_folder, open_folder};
use gristmill_engine::machine;
use gristmill_files::gguf::{GgufError, GgufFile};
use gristmill_hub::{Pick, Reference};

use crate::failure::Failure;
use crate::hub;
use crate::verbosity::Verbosity;

/// The built-in model; `model/README.md` describes it.
static STORIES: &[u8] = include_bytes!("../model/gristmill-stories.gguf");

/// A small model of the hub that answers, in messages about the built-in one. The download has about 0.6 GB.
pub(crate) const ANSWERS: &str = "hf:Qwen/Qwen3-0.6B-GGUF:Q8_0";

/// The model, for a command without other positional arguments.
#[derive(Args)]
pub(crate) struct ModelArg {
    /// The model: a GGUF file (any part of a split model), a folder of Hugging Face or MLX, or a model of the hub.
    /// ORG/REPO[:QUANT] must be in the cache (`gristmill pull`); hf:ORG/REPO[:QUANT] is downloaded if it is missing
    /// [default: the built-in model, which tells short stories].
    #[arg(value_name = "MODEL")]
    path: Option<PathBuf>,
    #[command(flatten)]
    option: ModelOption,
}

/// The model, as an option.
#[derive(Args, Clone)]
pub(crate) struct ModelOption {
    /// The same as MODEL, as an option.
    #[arg(short, long, value_name = "MODEL", help_heading = "Model")]
    pub(crate) model: Option<PathBuf>,
    /// The model from the environment or the user's file, used if the command line names no model.
    #[arg(long, value_name = "MODEL", hide = true)]
    pub(crate) default_model: Option<PathBuf>,
    /// Download nothing. Only models in the cache can be used.
    #[arg(long, help_heading = "Model")]
    pub(crate) offline: bool,
}

impl ModelArg {
    /// The named file, or the built-in model.
    pub(crate) fn source(&self) -> Result<Source<'_>, Failure> {
        match (self.path.as_deref(), self.option.model.as_deref()) {
            (Some(path), Some(model)) => {
                let (path, model) = (path.display(), model.display());
                Err(Failure::new(format!("both {path} and -m {model} name the model; name one of them")))
            }
            (path, model) => Ok(self.option.of(path.or(model))),
        }
    }
}

/// The format that the weights of a folder are loaded in.
#[derive(Args, Clone, Copy)]
pub(crate) struct QuantizeArg {
    /// Quantise the weights of an unquantised folder when they are loaded, to a mix or format of `gristmill quantize`.
    /// No file is written [default: keep their formats].
    #[arg(long, value_name = "FORMAT", value_parser = mix, help_heading = "Model")]
    quantize: Option<Mix>,
}

fn mix(name: &str) -> Result<Mix, QuantizeError> {
    Mix::parse(name)
}

impl QuantizeArg {
    /// The model with its weights in this format. A model that is no folder is refused.
    pub(crate) fn of<'a>(&self, source: Source<'a>) -> Result<Source<'a>, Failure> {
        let Some(mix) = self.quantize else { return Ok(source) };
        match source {
            Source::File(path) if is_model_folder(path) => Ok(Source::Quantised(path, mix)),
            Source::Hub(name) if may_be_folder(&name.parse()?) => Ok(Source::HubQuantised(name, mix)),
            // Opening it says what is wrong.
            Source::File(path) if !path.is_file() => Ok(source),
            _ => Err(is_no_folder(mix, &source)),
        }
    }
}

/// Whether a repository can be a folder, by its name. With a quantisation or a file, the model is a GGUF file.
fn may_be_folder(reference: &Reference) -> bool {
    reference.pick == Pick::Usual && !reference.repo.to_ascii_lowercase().ends_with("gguf")
}

fn is_no_folder(mix: Mix, source: &Source) -> Failure {
    let name = mix.name();
    let remedy = "leave it out, or write another file with gristmill quantize";
    Failure::new(format!("--quantize {name} is for folders, and {source} is a GGUF file; {remedy}"))
}

/// The text that a command takes after the model.
#[derive(Clone, Copy)]
pub(crate) struct TextArgument {
    /// `prompt`.
    pub(crate) name: &'static str,
    /// How to pass a text that looks like a model.
    pub(crate) alternative: &'static str,
}

impl ModelOption {
    /// The named model, or the built-in one.
    pub(crate) fn of<'a>(&'a self, model: Option<&'a Path>) -> Source<'a> {
        if self.offline {
            hub::stay_offline();
        }
        Source::of(model.or(self.default_model.as_deref()))
    }

    /// Splits positional arguments into model and text. The first word is the model if it is named like a GGUF file or
    /// like a model of the hub, or if it is an existing file or folder.
    pub(crate) fn split<'a>(
        &'a self,
        text: TextArgument,
        first: Option<&'a OsStr>,
        more: impl IntoIterator<Item = &'a String>,
    ) -> Result<(Source<'a>, Option<&'a str>), Failure> {
        let (source, words) = self.split_words(text, first, more)?;
        Ok((source, one_word(&words, text.name)?))
    }

    /// The same as [`split`](Self::split), for a command that takes several texts.
    pub(crate) fn split_words<'a>(
        &'a self,
        text: TextArgument,
        first: Option<&'a OsStr>,
        more: impl IntoIterator<Item = &'a String>,
    ) -> Result<(Source<'a>, Vec<&'a str>), Failure> {
        let model = self.model.as_deref();
        let TextArgument { name, alternative } = text;
        let Some(first) = first else { return Ok((self.of(model), Vec::new())) };
        let mut words: Vec<&str> = more.into_iter().map(String::as_str).collect();
        let path = Path::new(first);
        // Next to `-m`, a word like ORG/REPO is the text: it may be "yes/no".
        let is_text = model.is_some() && first.to_str().is_some_and(Reference::is_bare) && !path.exists();
        let Some(kind) = kind(path).filter(|_| !is_text) else {
            let first = first.to_str().ok_or_else(|| Failure::new(format!("the {name} is not UTF-8 text")))?;
            if model.is_none() && looks_like_model(first) {
                return Err(Failure::new(format!(
                    "`{first}` looks like a model, but is no file, folder or model of the hub; name its file, or a model \
                     of the hub such as {ANSWERS}; {alternative}"
                )));
            }
            words.insert(0, first);
            return Ok((self.of(model), words));
        };
        let word = path.display();
        if let Some(model) = model {
            let model = model.display();
            return Err(Failure::new(format!(
                "`{word}` is {kind}, so it names the model, and so does -m {model}; name one of them, or {alternative}"
            )));
        }
        let source = self.of(Some(path));
        // A word that only looks like a model may be the text.
        let checked = match source {
            Source::File(_) if !is_gguf(path) && !is_model_folder(path) => {
                GgufFile::open(path).map(drop).map_err(Failure::from)
            }
            Source::Hub(name) if Reference::is_bare(name) => hub::cached(name).map(drop),
            _ => Ok(()),
        };
        let taken = || format!("`{word}` is {kind}, so it is used as the model; {alternative}");
        checked.map_err(|failure| failure.with_note(&taken()))?;
        Ok((source, words))
    }
}

/// The property that makes a word a model.
fn kind(path: &Path) -> Option<&'static str> {
    match () {
        () if hub::name(path).is_some() => Some("named like a model of the hub"),
        () if is_gguf(path) => Some("named like a GGUF file"),
        () if path.is_dir() => Some("a folder"),
        () if path.exists() => Some("a file"),
        () => None,
    }
}

fn is_gguf(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
}

/// Families whose names other programs use for a model, without a version.
const FAMILIES: [&str; 14] = [
    "codellama",
    "deepseek",
    "gemma",
    "gpt-oss",
    "granite",
    "llama",
    "mistral",
    "mixtral",
    "olmo",
    "phi",
    "qwen",
    "qwq",
    "smollm",
    "tinyllama",
];

/// Whether a word that is no file and no model of the hub is more likely a model than a text: a path, a name with a tag as
/// in `qwen3:4b`, or one with a version or size as in `llama3.2`.
fn looks_like_model(word: &str) -> bool {
    let is_name =
        |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-+".contains(c));
    let has_letter = word.contains(|c: char| c.is_ascii_alphabetic());
    let separators = |c| c == '/' || c == '\\';
    if word.contains(separators) {
        let is_path_text = |c: char| c.is_alphanumeric() || "/\\._-+:~@".contains(c);
        let is_anchored = ["./", "../", "~/", ".\\", "..\\"].iter().any(|start| word.starts_with(start));
        return has_letter && word.chars().all(is_path_text) && (is_anchored || word.matches(separators).count() > 1);
    }
    let (name, tag) = word.split_once(':').map_or((word, None), |(name, tag)| (name, Some(tag)));
    let is_family = FAMILIES.iter().any(|family| name.eq_ignore_ascii_case(family));
    let letters = name.chars().take_while(char::is_ascii_alphabetic).count();
    let has_version = word.len() > 3 && letters > 1 && word.contains(|c: char| c.is_ascii_digit());
    is_name(name) && tag.is_none_or(is_name) && (is_family || has_version || tag == Some("latest"))
}

/// The only word, if there is one.
fn one_word<'a>(words: &[&'a str], name: &str) -> Result<Option<&'a str>, Failure> {
    match words {
        [] => Ok(None),
        [word] => Ok(Some(word)),
        _ => {
            let count = words.len();
            let all = words.join(" ");
            let quoted = format!("the {name} is {count} words; put quotes around it: \"{all}\"");
            // The second word is a whole prompt, so the first may be a model by the name of another program.
            match words {
                [first, second] if second.contains(char::is_whitespace) && !first.contains(char::is_whitespace) => {
                    Err(Failure::new(format!("{quoted} (if {first} is the model, name its file or hf:ORG/REPO)")))
                }
                _ => Err(Failure::new(quoted)),
            }
        }
    }
}

/// The built-in model.
pub(crate) fn built_in() -> Result<GgufFile, GgufError> {
    GgufFile::from_static(STORIES)
}

/// A folder as a model that runs. In the cache of the hub, the name of the folder is a commit, so the model has a `name`.
fn folder(path: &Path, mix: Option<Mix>, name: Option<String>, log: &Verbosity) -> Result<GgufFile, Failure> {
    let options = ConvertOptions { mix, name, ..ConvertOptions::default() };
    let (file, notes) = open_folder(path, &options, machine::physical_cores())?;
    notes.iter().for_each(|note| log.info(format_args!("note: {note}")));
    Ok(file)
}

/// A model of the hub: a file, or a folder.
fn of_hub(name: &str, mix: Option<Mix>, log: &Verbosity) -> Result<GgufFile, Failure> {
    let path = hub::path(name, log)?;
    match mix {
        _ if is_model_folder(&path) => {
            let Reference { repo, .. } = name.parse()?;
            let repo = repo.rsplit('/').next().map(str::to_owned);
            folder(&path, mix, repo, log)
        }
        Some(mix) => Err(is_no_folder(mix, &Source::Hub(name))),
        None => Ok(GgufFile::open(path)?),
    }
}

/// A model before it is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'a> {
    File(&'a Path),
    /// A folder, whose weights are quantised when they are loaded.
    Quantised(&'a Path, Mix),
    /// The name of a model of the hub, which is found or downloaded when it is opened.
    Hub(&'a str),
    /// The same of a folder, whose weights are quantised when they are loaded.
    HubQuantised(&'a str, Mix),
    BuiltIn,
}

impl<'a> Source<'a> {
    /// A file or a model of the hub, or the built-in model for `None`.
    pub(crate) fn of(path: Option<&'a Path>) -> Source<'a> {
        path.map_or(Source::BuiltIn, |path| hub::name(path).map_or(Source::File(path), Source::Hub))
    }

    /// Maps the file, which is downloaded before if the hub has it and the cache has not; or reads a folder.
    pub(crate) fn open(self, log: &Verbosity) -> Result<GgufFile, Failure> {
        Ok(match self {
            Source::File(path) if is_model_folder(path) => folder(path, None, None, log)?,
            Source::Quantised(path, mix) => folder(path, Some(mix), None, log)?,
            Source::File(path) if !path.exists() => {
                return Err(Failure::new(format!(
                    "{}: no such file or folder; check the path, or name a model of the hub such as {ANSWERS}",
                    path.display()
                )));
            }
            Source::File(path) => GgufFile::open(path)?,
            Source::Hub(name) => of_hub(name, None, log)?,
            Source::HubQuantised(name, mix) => of_hub(name, Some(mix), log)?,
            Source::BuiltIn => built_in()?,
        })
    }
}

impl Display for Source<'_> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            Source::File(path) | Source::Quantised(path, _) => path.display().fmt(f),
            Source::Hub(name) | Source::HubQuantised(name, _) => f.write_str(name),
            Source::BuiltIn => f.write_str("the built-in model"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: TextArgument = TextArgument { name: "prompt", alternative: "use -p" };

    /// Model and prompt of a command line, or the error message.
    fn split(model: Option<&str>, words: &[&str]) -> Result<(String, Option<String>), String> {
        let option = ModelOption { model: model.map(PathBuf::from), default_model: None, offline: false };
        let more: Vec<String> = words.iter().skip(1).map(ToString::to_string).collect();
        match option.split(TEXT, words.first().map(|first| OsStr::new(*first)), &more) {
            Ok((source, text)) => Ok((source.to_string(), text.map(str::to_owned))),
            Err(Failure::Message(message)) => Err(message),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_word_that_looks_like_a_model_and_is_none_is_an_error() {
        for word in [
            "qwen3:4b",
            "llama3.2",
            "llama3.2:latest",
            "Qwen3-0.6B-Q4_K_M",
            "./nodir/x",
            "../models/x",
            "~/models/x",
            "/nodir/x",
            "models/qwen/x",
            "C:\\models\\x",
            "mistral",
            "Gemma",
            "gpt-oss:20b",
            "phi4",
            "deepseek-r1",
            "nomic-embed-text:latest",
            "https://example.com/m",
        ] {
            for words in [&[word][..], &[word, "Why?"]] {
                let error = split(None, words).unwrap_err();
                let parts = [word, "looks like a model", "hf:", "use -p"];
                assert!(parts.iter().all(|part| error.contains(part)), "{error}");
            }
            // With the model named, it is the text.
            assert_eq!(split(Some("b.gguf"), &[word]).expect(word).1.as_deref(), Some(word));
        }
        for word in [
            "Hello",
            "Once-upon-a-time",
            "24/7",
            "2+2=",
            "</s>",
            "<|im_start|>",
            "/no_think",
            "mp3",
            "H2O",
            "12:30",
            "a",
            "1",
            "Why?",
            "Note:",
            "e.g.",
            "3.14",
            "C:",
            "héllo",
            "Once upon a time in 2024",
            "v1",
            "x/",
            "#1",
        ] {
            assert_eq!(split(None, &[word]).expect(word).1.as_deref(), Some(word));
        }
    }

    #[test]
    fn the_first_word_is_the_model_if_it_looks_like_one() {
        let built_in = "the built-in model".to_owned();
        let split_into = |model: &str, text: Option<&str>| Ok((model.to_owned(), text.map(str::to_owned)));
        assert_eq!(split(None, &[]), split_into(&built_in, None));
        assert_eq!(split(None, &["Why?"]), split_into(&built_in, Some("Why?")));
        assert_eq!(split(None, &[""]), split_into(&built_in, Some("")));
        assert_eq!(split(None, &["a.gguf", "Why?"]), split_into("a.gguf", Some("Why?")));
        assert_eq!(split(None, &["a.GGUF"]), split_into("a.GGUF", None));
        assert_eq!(
            split(None, &["Why?", "a.gguf"]).unwrap_err(),
            "the prompt is 2 words; put quotes around it: \"Why? a.gguf\""
        );
        assert!(split(None, &["granite-code", "Why not?"]).unwrap_err().contains("(if granite-code is the model"));
        assert!(split(None, &["a.gguf", "Once", "upon"]).unwrap_err().contains("\"Once upon\""));
        assert_eq!(split(Some("b.gguf"), &["Why?"]), split_into("b.gguf", Some("Why?")));
        let both = split(Some("b.gguf"), &["a.gguf", "Why?"]).unwrap_err();
        assert!(["`a.gguf`", "-m b.gguf", "one of them", "use -p"].iter().all(|word| both.contains(word)), "{both}");
        assert_eq!(split(None, &["hf:a/b:Q4_0", "Why?"]), split_into("hf:a/b:Q4_0", Some("Why?")));
        assert_eq!(split(Some("hf:a/b"), &["Why?"]), split_into("hf:a/b", Some("Why?")));
        assert!(split(Some("b.gguf"), &["hf:a/b"]).unwrap_err().contains("a model of the hub"));
        for address in ["hf.co/a/b:Q4_0", "https://huggingface.co/a/b"] {
            assert_eq!(split(None, &[address, "Why?"]), split_into(address, Some("Why?")));
        }
        assert_eq!(split(Some("b.gguf"), &["yes/no"]), split_into("b.gguf", Some("yes/no")));
        let absent = split(None, &["no-org/no-repo:Q4_0", "Why?"]).unwrap_err();
        let words = ["no-org/no-repo:Q4_0: no such file", "gristmill pull no-org/no-repo:Q4_0", "use -p"];
        assert!(words.iter().all(|word| absent.contains(word)), "{absent}");
        // The working directory of tests is the crate's folder.
        for (word, kind) in [("Cargo.toml", "a file"), ("src", "a folder")] {
            let error = split(None, &[word, "Why?"]).unwrap_err();
            assert!(error.contains(kind) && error.contains("used as the model; use -p"), "{error}");
            assert!(split(Some("b.gguf"), &[word]).unwrap_err().contains(kind));
        }
    }
}
