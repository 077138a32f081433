//! Notices: conditions worth telling a user, none of them an error.

use std::fmt::{self, Display, Formatter};

use gristmill_text::tokenizer::Tokenizer;

/// A condition that can surprise a user, but is not an error. The library returns notices and does not print them. As
/// text, a notice is one sentence with the condition and a remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// The file has a byte-level BPE vocabulary and does not name its pre-tokenizer.
    NoPreTokenizer,
    /// The context is longer than what the model was trained on.
    LongContext {
        /// Tokens of the context.
        context: usize,
        /// Tokens that the model was trained on.
        trained: usize,
    },
    /// The context is longer than the one for which LongRoPE's short factors were made, so all sequences use the long
    /// factors.
    LongFactors {
        /// Tokens of the context.
        context: usize,
        /// Tokens of the longest context with short factors.
        original: usize,
    },
    /// The chat template is not valid, or fails on the simplest conversation, for this reason.
    BrokenTemplate(String),
    /// The chat template fails when it is given tools, for this reason.
    TemplateWithoutTools(String),
    /// The file recommends a value for sampling that is not used, for this reason.
    RecommendedSampling(String),
    /// The device reports something, for instance that compiled kernels cannot be kept.
    Device(String),
}

impl Notice {
    /// The notice of a tokenizer.
    pub fn of_tokenizer(tokenizer: &Tokenizer) -> Option<Notice> {
        tokenizer.lacks_pre_tokenizer().then_some(Notice::NoPreTokenizer)
    }
}

impl Display for Notice {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            Notice::NoPreTokenizer => f.write_str(
                "the file does not name its pre-tokenizer (`tokenizer.ggml.pre` is missing), so text is split by the \
                 rule `default`; answers get worse if the model was trained with another rule: use a newer file of \
                 this model, or convert it again",
            ),
            Notice::LongContext { context, trained } => write!(
                f,
                "the context of {context} tokens is longer than the {trained} that the model was trained on; text \
                 beyond those may get worse or meaningless"
            ),
            Notice::LongFactors { context, original } => write!(
                f,
                "the context of {context} tokens is longer than {original}, so LongRoPE's long factors rotate every \
                 sequence, also one of few tokens, whose probabilities the short factors would give as the model was \
                 trained; set a context of {original} for short texts"
            ),
            Notice::BrokenTemplate(reason) => write!(
                f,
                "the model's chat template is broken, so a conversation has no prompt: {reason}; replace \
                 the template"
            ),
            Notice::TemplateWithoutTools(reason) => {
                write!(f, "the model's chat template fails with tools: {reason}; replace the template")
            }
            Notice::RecommendedSampling(problem) => {
                write!(f, "{problem}; this recommendation of the model file is left out")
            }
            Notice::Device(text) => f.write_str(text),
        }
    }
}
