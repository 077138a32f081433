//! Draft tokens on the command line: where they come from, and how many.

use std::path::{Path, PathBuf};

use clap::Args;
use gristmill_engine::model::Split;
use gristmill_engine::{DraftSource, Model};

use crate::args::DeviceArgs;
use crate::failure::Failure;
use crate::numbers;

/// The most draft tokens of a step by default: of prediction heads, and of other sources.
const OF_HEADS: usize = 3;
const OF_OTHERS: usize = 4;

/// Speculative decoding.
#[derive(Args, Clone, Default)]
pub(crate) struct DraftArgs {
    /// Where draft tokens come from, which the model checks in one pass: its prediction heads (mtp), an earlier
    /// occurrence of the last tokens (lookup), or nowhere (off). The text stays the same [default: run and chat use
    /// mtp if the model has prediction heads].
    #[arg(long, value_name = "SOURCE", allow_negative_numbers = true, value_parser = kind, help_heading = "Draft tokens")]
    draft: Option<Kind>,
    /// The maximum number of draft tokens in each step [default: 3 with mtp, else 4]. The engine drafts fewer, or none,
    /// if that is faster. Without a source, the option turns on mtp if the model has prediction heads, else lookup.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = numbers::at_least::<usize>(1), help_heading = "Draft tokens")]
    draft_tokens: Option<usize>,
    /// A smaller model with the same vocabulary, which generates draft tokens: a GGUF file, a folder of Hugging Face or
    /// MLX, or ORG/REPO[:QUANT] of the hub. Or a GGUF file with only the model's prediction heads (mtp-NAME.gguf).
    #[arg(long, value_name = "MODEL", conflicts_with = "draft", help_heading = "Draft tokens")]
    draft_model: Option<PathBuf>,
}

/// A value of `--draft`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Mtp,
    Lookup,
    Off,
}

fn kind(text: &str) -> Result<Kind, &'static str> {
    match text {
        "mtp" => Ok(Kind::Mtp),
        "lookup" => Ok(Kind::Lookup),
        "off" => Ok(Kind::Off),
        _ if text.parse::<i64>().is_ok() => Err("it is mtp, lookup or off; the number is --draft-tokens N"),
        _ => Err("it is mtp, lookup or off"),
    }
}

/// What a command does without options for draft tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Without {
    /// It drafts with the prediction heads of a model that has them.
    Mtp,
    /// It does not draft.
    Off,
}

impl DraftArgs {
    /// Whether the command line has an option for draft tokens.
    pub(crate) fn is_given(&self) -> bool {
        self.draft.is_some() || self.draft_tokens.is_some() || self.draft_model.is_some()
    }

    /// Whether a draft model is named.
    pub(crate) fn has_model(&self) -> bool {
        self.draft_model.is_some()
    }

    /// Prediction heads, which the model must have.
    pub(crate) fn as_mtp(&self) -> Drafts<'_> {
        Drafts { wanted: Wanted::Mtp, tokens: self.draft_tokens }
    }

    /// What the command does.
    pub(crate) fn or(&self, without: Without) -> Drafts<'_> {
        let wanted = match (self.draft, self.draft_model.as_deref(), self.draft_tokens) {
            (Some(Kind::Mtp), ..) => Wanted::Mtp,
            (Some(Kind::Lookup), ..) => Wanted::Lookup,
            (Some(Kind::Off), ..) => Wanted::Off,
            (None, Some(path), _) => Wanted::Model(path),
            (None, None, Some(_)) => Wanted::MtpElseLookup,
            (None, None, None) if without == Without::Mtp => Wanted::MtpIfAny,
            (None, None, None) => Wanted::Off,
        };
        Drafts { wanted, tokens: self.draft_tokens }
    }
}

/// Where the draft tokens of a command come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted<'a> {
    Off,
    Mtp,
    MtpIfAny,
    MtpElseLookup,
    Lookup,
    Model(&'a Path),
}

/// The draft tokens of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drafts<'a> {
    pub(crate) wanted: Wanted<'a>,
    tokens: Option<usize>,
}

impl Drafts<'_> {
    /// The device with the option to load prediction heads, if they may be used, and with the file that can have them.
    pub(crate) fn on(&self, device: &DeviceArgs) -> DeviceArgs {
        let prediction_heads = match self.wanted {
            Wanted::Mtp => true,
            // Layers in a row have none.
            Wanted::MtpIfAny | Wanted::MtpElseLookup => device.split != Some(Split::Layers),
            Wanted::Off | Wanted::Lookup | Wanted::Model(_) => false,
        };
        let draft_model = match self.wanted {
            Wanted::Model(path) => Some(path.to_owned()),
            _ => None,
        };
        DeviceArgs { prediction_heads, draft_model, ..device.clone() }
    }

    /// The source for a loaded model, but for a draft model; `None` if there are no draft tokens.
    pub(crate) fn source(&self, model: &Model) -> Result<Option<DraftSource>, Failure> {
        let has_heads = model.prediction_heads() > 0;
        match self.wanted {
            Wanted::Mtp if !has_heads => {
                Err(Failure::new("--draft mtp: the model has no prediction heads; use --draft lookup, or leave it out"))
            }
            // Heads of a file of their own are part of the loaded model.
            Wanted::Mtp | Wanted::MtpIfAny | Wanted::MtpElseLookup | Wanted::Model(_) if has_heads => {
                Ok(Some(DraftSource::Heads))
            }
            Wanted::Lookup | Wanted::MtpElseLookup => Ok(Some(DraftSource::Lookup)),
            _ => Ok(None),
        }
    }

    /// The most draft tokens of a step with this model.
    pub(crate) fn most(&self, model: &Model) -> usize {
        match self.wanted {
            Wanted::Off => 0,
            Wanted::MtpIfAny if model.prediction_heads() == 0 => 0,
            Wanted::Model(_) if model.prediction_heads() > 0 => self.tokens.unwrap_or(OF_HEADS),
            Wanted::Lookup | Wanted::Model(_) => self.tokens.unwrap_or(OF_OTHERS),
            Wanted::Mtp | Wanted::MtpIfAny => self.tokens.unwrap_or(OF_HEADS),
            // Then there is a number.
            Wanted::MtpElseLookup => self.tokens.unwrap_or(OF_OTHERS),
        }
    }

    /// Rows of logits of this number of sequences, before the model is loaded: one for each, and one for each draft
    /// token.
    pub(crate) fn rows(&self, sequences: usize) -> Option<usize> {
        let most = match self.wanted {
            Wanted::Off => 0,
            Wanted::Mtp | Wanted::MtpIfAny => self.tokens.unwrap_or(OF_HEADS),
            _ => self.tokens.unwrap_or(OF_OTHERS),
        };
        Some(sequences.saturating_mul(most.saturating_add(1)))
    }
}
