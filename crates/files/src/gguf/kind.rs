//! What a GGUF file is for: a language model, or one of the files that repositories and folders have next to one.
//!
//! One rule for all who choose among files. The name sorts candidates ([`FileKind::of_name`]), because it costs nothing. The
//! header decides ([`FileKind::of_file`], [`FileKind::of_beginning`]): `general.type`, `general.architecture`, and for draft
//! models whether the first layer is there.
//!
//! # One rule says which file is a language model
//!
//! The name of a file sorts candidates, and its header decides; of a remote file 64 KiB are read. `hub`, `fit`,
//! `models`, `serve` with a folder and every error about a file use it. *What is no language model is left out with a
//! line, and never ends a command that can go on.*

use std::fmt::{self, Display, Formatter};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::cursor::{Cursor, Fault};
use super::error::FormatErrorKind;
use super::value::Value;
use super::{GgufFile, MAGIC};

/// Bytes of a file's beginning that are read, until they decide.
const BEGINNINGS: [u64; 5] = [64 << 10, 1 << 20, 8 << 20, 32 << 20, 128 << 20];

/// What a GGUF file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FileKind {
    /// A language model by itself.
    LanguageModel,
    /// A model that only drafts tokens for another one: prediction heads (MTP), EAGLE, an assistant of Gemma 4.
    Draft,
    /// The projector of a model that sees or hears.
    Projector,
    /// An importance matrix, with which models are quantised.
    Imatrix,
    /// A LoRA adapter.
    Adapter,
    /// A control vector.
    ControlVector,
    /// A decoder of speech or images, or an encoder for one.
    Decoder,
    /// A vocabulary without weights.
    Vocabulary,
}

/// What shows a kind: values of `general.type`, of `general.architecture`, and words of a file's name.
struct Marks {
    kind: FileKind,
    types: &'static [&'static str],
    architectures: &'static [&'static str],
    words: &'static [&'static str],
}

/// In the order in which names are compared.
const MARKS: [Marks; 6] = [
    Marks { kind: FileKind::Imatrix, types: &["imatrix"], architectures: &["imatrix"], words: &["imatrix"] },
    Marks { kind: FileKind::Projector, types: &["mmproj"], architectures: &["clip"], words: &["mmproj", "projector"] },
    Marks { kind: FileKind::Adapter, types: &["adapter"], architectures: &[], words: &["lora", "alora", "adapter"] },
    Marks {
        kind: FileKind::ControlVector,
        types: &["controlvector"],
        architectures: &["controlvector"],
        words: &["controlvector"],
    },
    Marks {
        kind: FileKind::Decoder,
        types: &["vocoder"],
        architectures: &[
            "wavtokenizer-dec",
            "t5encoder",
            "flux",
            "sd1",
            "sd3",
            "sdxl",
            "wan",
            "lumina2",
            "hidream",
            "hyvid",
            "ltxv",
            "aura",
            "cosmos",
            "qwen_image",
        ],
        words: &["vocoder", "wavtokenizer", "vae"],
    },
    Marks {
        kind: FileKind::Draft,
        types: &["draft", "drafter"],
        architectures: &[],
        words: &["draft", "drafter", "eagle", "eagle2", "eagle3", "dflash", "assistant", "medusa"],
    },
];

/// The word of prediction heads. In the middle of a name it says that the model has heads too.
const MTP: &str = "mtp";

impl FileKind {
    /// The kind that a path within a repository or folder suggests.
    pub fn of_name(path: &str) -> FileKind {
        let path = path.to_ascii_lowercase();
        let path = path.strip_suffix(".gguf").unwrap_or(&path);
        path.rsplit('/').map(of_part).find(|&kind| kind != FileKind::LanguageModel).unwrap_or(FileKind::LanguageModel)
    }

    /// The kind of an open file.
    pub fn of_file(file: &GgufFile) -> FileKind {
        let value = |key: &str| file.metadata().optional::<&str>(key).ok().flatten();
        match of_values(value("general.type"), value("general.architecture")) {
            FileKind::LanguageModel if file.tensors().is_empty() => FileKind::Vocabulary,
            FileKind::LanguageModel if is_without_first(file.tensors().iter().map(|tensor| tensor.name.as_str())) => {
                FileKind::Draft
            }
            kind => kind,
        }
    }

    /// The kind of a file of which `read` returns the beginning, at least as many bytes as requested unless the file is
    /// shorter. A few kilobytes suffice, unless the name suggests a draft model. `None` if the file is not GGUF.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn of_beginning<E>(
        name: &str,
        size: u64,
        mut read: impl FnMut(u64) -> Result<Vec<u8>, E>,
    ) -> Result<Option<FileKind>, E> {
        // Heads have the architecture of their model, so their tensors decide.
        let needs_tensors = FileKind::of_name(name) == FileKind::Draft;
        for length in BEGINNINGS {
            let bytes = read(length)?;
            match peek(&bytes, needs_tensors) {
                Ok(kind) => return Ok(kind),
                Err(fault) if fault.is_truncated() && (bytes.len() as u64) < size => {}
                Err(_) => return Ok(None),
            }
        }
        Ok(None)
    }

    /// The same for a file of the disk.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn of_path(path: &Path) -> io::Result<Option<FileKind>> {
        let size = path.metadata()?.len();
        FileKind::of_beginning(&path.to_string_lossy().replace('\\', "/"), size, |length| {
            let mut bytes = Vec::new();
            File::open(path)?.take(length).read_to_end(&mut bytes)?;
            Ok(bytes)
        })
    }
}

impl Display for FileKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FileKind::LanguageModel => "language model",
            FileKind::Draft => "draft model",
            FileKind::Projector => "projector",
            FileKind::Imatrix => "importance matrix",
            FileKind::Adapter => "LoRA adapter",
            FileKind::ControlVector => "control vector",
            FileKind::Decoder => "encoder or decoder of speech or images",
            FileKind::Vocabulary => "vocabulary without weights",
        })
    }
}

/// The kind that one part of a path in small letters suggests.
fn of_part(part: &str) -> FileKind {
    let words: Vec<&str> = part.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let is_marked = |marks: &&Marks| words.iter().any(|word| marks.words.contains(word));
    match MARKS.iter().find(is_marked) {
        Some(marks) => marks.kind,
        None if words.first() == Some(&MTP) || words.last() == Some(&MTP) => FileKind::Draft,
        None => FileKind::LanguageModel,
    }
}

/// The kind that `general.type` and `general.architecture` state.
fn of_values(kind: Option<&str>, architecture: Option<&str>) -> FileKind {
    let kind = kind.unwrap_or_default();
    let architecture = architecture.unwrap_or_default().to_ascii_lowercase();
    let is = |marks: &&Marks| marks.types.contains(&kind) || marks.architectures.contains(&architecture.as_str());
    match MARKS.iter().find(is) {
        Some(marks) => marks.kind,
        // Draft models have architectures such as gemma4-assistant and eagle3.
        None if of_part(&architecture) == FileKind::Draft => FileKind::Draft,
        None => FileKind::LanguageModel,
    }
}

/// Whether there are layers, but not the first.
fn is_without_first<'a>(names: impl Iterator<Item = &'a str>) -> bool {
    let (mut has_layer, mut has_first) = (false, false);
    for name in names {
        has_layer |= name.starts_with("blk.");
        has_first |= name.starts_with("blk.0.");
    }
    has_layer && !has_first
}

/// The kind by the beginning of a file; `None` if it is not GGUF. A fault can be the end of the beginning.
fn peek(bytes: &[u8], needs_tensors: bool) -> Result<Option<FileKind>, Fault> {
    let mut cursor = Cursor::new(bytes);
    if cursor.array()? != MAGIC {
        return Ok(None);
    }
    let _version = cursor.u32()?;
    let (tensors, pairs) = (cursor.u64()?, cursor.u64()?);
    let (mut kind, mut architecture) = (None, None);
    for _ in 0..pairs {
        let key = cursor.name()?;
        // Writers put the general keys first.
        let is_decided = architecture.is_some() && (kind.is_some() || !key.starts_with("general."));
        let found = of_values(kind.as_deref(), architecture.as_deref());
        if found != FileKind::LanguageModel || is_decided && !needs_tensors {
            return Ok(Some(found));
        }
        match (key.as_str(), cursor.value()?) {
            ("general.type", Value::String(text)) => kind = Some(text),
            ("general.architecture", Value::String(text)) => architecture = Some(text),
            _ => {}
        }
    }
    let found = of_values(kind.as_deref(), architecture.as_deref());
    if found != FileKind::LanguageModel || !needs_tensors {
        return Ok(Some(found));
    }
    let mut names = Vec::new();
    for _ in 0..tensors {
        names.push(cursor.name()?);
        for _ in 0..cursor.u32()? {
            cursor.u64()?;
        }
        cursor.u32()?;
        cursor.u64()?;
    }
    let is_draft = is_without_first(names.iter().map(String::as_str));
    Ok(Some(if is_draft { FileKind::Draft } else { FileKind::LanguageModel }))
}

impl Fault {
    /// Whether more bytes could end it.
    fn is_truncated(&self) -> bool {
        matches!(self.kind, FormatErrorKind::Truncated { .. } | FormatErrorKind::Count { .. })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use gristmill_kernels::format::Format;

    use super::*;
    use crate::gguf::{Array, GgufWriter};

    #[test]
    fn names_suggest_kinds() {
        for (kind, names) in [
            (
                FileKind::LanguageModel,
                &[
                    "m-Q4_K_M.gguf",
                    "gemma-4-12B-it-qat-UD-Q4_K_XL.gguf",
                    // Models with prediction heads in them.
                    "ornith-9b-mtp-kl-Q8_0.gguf",
                    "Qwen3.6-27B-MTP-Q4_K_M.gguf",
                    "Q8_0/m-Q8_0-00001-of-00003.gguf",
                    "openassistant-7b.gguf",
                    "Llama-3-qlora-Q8_0.gguf",
                    "Step-3.7-Flash-APEX-I-Mini.gguf",
                ][..],
            ),
            (
                FileKind::Draft,
                &[
                    "mtp-gemma-4-12B-it.gguf",
                    "MTP/gemma-4-E2B-it-BF16-MTP.gguf",
                    "MTP/gemma-4-E2B-it-BF16.gguf",
                    "gemma-4-12B-it-Q8_0-MTP.gguf",
                    "m-eagle3-Q8_0.gguf",
                    "m-DFlash-Q8_0.gguf",
                    "m-draft-Q4_K_M.gguf",
                    "gemma-4-E2B-it-assistant-Q4_0.gguf",
                ],
            ),
            (FileKind::Projector, &["mmproj-BF16.gguf", "m.mmproj-f16.gguf", "m-projector.gguf"]),
            (FileKind::Imatrix, &["imatrix_unsloth.gguf", "m.imatrix.gguf", "m-imatrix.gguf", "imatrix.gguf"]),
            (FileKind::Adapter, &["adapter-F16-LoRA.gguf", "lora/m-F16.gguf", "m-lora-F16.gguf"]),
            (FileKind::Decoder, &["vocoder-m-Q8_0.gguf", "WavTokenizer-Large-75-F16.gguf"]),
        ] {
            names.iter().for_each(|name| assert_eq!(FileKind::of_name(name), kind, "{name}"));
        }
    }

    /// A file with these pairs, a vocabulary of 200 KB, and tensors of these names.
    fn file(pairs: &[(&str, &str)], tensors: &[&str]) -> Vec<u8> {
        let mut writer = GgufWriter::new();
        for (key, value) in pairs {
            writer.set(key, (*value).to_owned()).expect(key);
        }
        let tokens = (0..10_000).map(|token| format!("token {token:06}")).collect();
        writer.set("tokenizer.ggml.tokens", Value::Array(Array::String(tokens))).expect("a vocabulary");
        for name in tensors {
            writer.tensor(name, Format::F32, &[8]).expect(name);
        }
        let mut data = writer.begin(Vec::new()).expect("a header");
        tensors.iter().for_each(|name| data.write_tensor(name, &[0; 32]).expect(name));
        data.finish().expect("it is whole")
    }

    /// The kind by the beginning, and the most bytes of one read.
    fn beginning(name: &str, bytes: &[u8]) -> (Option<FileKind>, usize) {
        let mut most = 0;
        let read = |length: u64| {
            let part = bytes[..bytes.len().min(length as usize)].to_vec();
            most = most.max(part.len());
            Ok::<_, Infallible>(part)
        };
        let kind = FileKind::of_beginning(name, bytes.len() as u64, read).unwrap_or_else(|never| match never {});
        (kind, most)
    }

    #[test]
    fn the_header_decides() {
        let layers = ["token_embd.weight", "blk.0.attn_q.weight", "blk.1.nextn.eh_proj.weight"];
        for (kind, name, pairs, tensors) in [
            (FileKind::LanguageModel, "m.gguf", &[("general.architecture", "qwen3")][..], &layers[..]),
            (FileKind::LanguageModel, "m-draft.gguf", &[("general.architecture", "qwen3")], &layers),
            (FileKind::LanguageModel, "m-MTP.gguf", &[("general.architecture", "qwen35")], &layers),
            (
                FileKind::LanguageModel,
                "m-lora.gguf",
                &[("general.architecture", "llama"), ("general.type", "model")],
                &layers,
            ),
            (FileKind::Draft, "m-MTP.gguf", &[("general.architecture", "qwen35")], &layers[2..]),
            (FileKind::Draft, "m.gguf", &[("general.architecture", "gemma4-assistant")], &layers),
            (FileKind::Draft, "m.gguf", &[("general.architecture", "eagle3")], &layers),
            (FileKind::Imatrix, "m.gguf", &[("general.type", "imatrix"), ("general.architecture", "llama")], &layers),
            (FileKind::Adapter, "m.gguf", &[("general.architecture", "llama"), ("general.type", "adapter")], &layers),
            (FileKind::Projector, "m.gguf", &[("general.architecture", "clip")], &layers),
            (FileKind::Decoder, "m.gguf", &[("general.architecture", "wavtokenizer-dec")], &layers),
        ] {
            let bytes = file(pairs, tensors);
            let (found, most) = beginning(name, &bytes);
            assert_eq!(found, Some(kind), "{name} {pairs:?}");
            let is_short = FileKind::of_name(name) != FileKind::Draft;
            assert_eq!(most <= 64 << 10, is_short, "{name}: {most} bytes");
            let opened = GgufFile::from_bytes(bytes).expect("it is whole");
            assert_eq!(FileKind::of_file(&opened), kind, "{name} {pairs:?}");
        }
        let vocabulary = GgufFile::from_bytes(file(&[("general.architecture", "llama")], &[])).expect("it is whole");
        assert_eq!(FileKind::of_file(&vocabulary), FileKind::Vocabulary);
    }

    #[test]
    fn other_and_damaged_files_have_no_kind() {
        let whole = file(&[("general.architecture", "qwen3")], &["blk.0.a"]);
        for bytes in [&b""[..], b"GG", b"text that is no model", &whole[..20], &whole[..30]] {
            assert_eq!(beginning("m-draft.gguf", bytes).0, None, "{} bytes", bytes.len());
        }
        for at in (0..whole.len()).step_by(97) {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x41;
            beginning("m-draft.gguf", &damaged);
        }
    }
}
