//! Why a template could not be loaded or rendered.

use minijinja::{Error, ErrorKind};
use thiserror::Error;

/// The longest template source in bytes. Published templates have up to 20 KB.
pub const MAX_SOURCE: usize = 256 << 10;

/// The most instructions of a rendering.
pub(super) const MAX_INSTRUCTIONS: u64 = 10_000_000;

/// Why a template could not be loaded or rendered.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// The source is too long.
    #[error("the chat template has {len} bytes; at most {max} are accepted")]
    SourceTooLong {
        /// Its length.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// The source is not a Jinja template.
    #[error("the chat template is not valid at line {line}: {message}")]
    Syntax {
        /// The line, from 1.
        line: usize,
        /// The problem.
        message: String,
    },
    /// The source uses a tag that needs other templates.
    #[error("the chat template uses {{% {tag} %}} at line {line}, which is not supported")]
    Unsupported {
        /// The tag.
        tag: &'static str,
        /// The line, from 1.
        line: usize,
    },
    /// The source uses a part of Jinja that gristmill does not support.
    #[error("the chat template uses the {kind} {name} at line {line}, which is not supported")]
    Missing {
        /// `filter`, `test`, `function` or `method`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// The line, from 1.
        line: usize,
    },
    /// The source nests its tags or expressions too deeply at this line, from 1.
    #[error("the chat template is nested too deeply at line {0}")]
    TooComplex(usize),
    /// The template refuses its input: it calls `raise_exception` with this message.
    #[error("the chat template refuses these messages: {0}")]
    Raised(String),
    /// The rendering ran for more than this many instructions.
    #[error("the chat template does not end within {0} instructions")]
    TooLong(u64),
    /// The rendering processed more than this number of bytes of text.
    #[error("the chat template processes more than {0} bytes of text")]
    TooMuchText(usize),
    /// The rendering needs a range of more than this number of numbers.
    #[error("the chat template needs a range of more than {0} numbers")]
    RangeTooLong(usize),
    /// A value is nested deeper than this.
    #[error("the chat template or its input nests lists or mappings more than {0} levels deep")]
    TooDeep(usize),
    /// The messages leave no characters for placeholders.
    #[error("the messages contain almost all characters of the Private Use Area (U+E000 to U+F8FF); remove some")]
    PrivateUse,
    /// The control tokens, or the strings of the template, cannot be indexed.
    #[error("the control tokens of the model and the chat template are too many to tell apart from messages: {0}")]
    Index(String),
    /// The rendering failed in another way.
    #[error("the chat template failed at line {line}: {message}")]
    Render {
        /// The line, from 1; 0 if it is not known.
        line: usize,
        /// The problem.
        message: String,
    },
}

impl TemplateError {
    /// Whether the rendering exceeded a bound, which repairs do not change.
    pub(super) fn is_of_cost(&self) -> bool {
        matches!(self, Self::TooLong(_) | Self::TooMuchText(_) | Self::RangeTooLong(_) | Self::TooDeep(_))
    }

    pub(super) fn syntax(error: &Error) -> Self {
        Self::Syntax { line: error.line().unwrap_or(0), message: describe(error) }
    }
}

/// The message of an error, without its position.
fn describe(error: &Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
}

/// The failure of a rendering that its budget does not explain.
pub(super) fn failure(error: &Error) -> TemplateError {
    match error.kind() {
        ErrorKind::OutOfFuel => TemplateError::TooLong(MAX_INSTRUCTIONS),
        _ => TemplateError::Render { line: error.line().unwrap_or(0), message: describe(error) },
    }
}
