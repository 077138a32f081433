//! The request that every interface makes.

use gristmill_engine::ConverseOptions;
use gristmill_engine::{Chat, GenerationOptions, Grammar, Prompt};

use crate::error::{ApiError, Paths};
use crate::images::{ImagePart, prepared};
use crate::models::ServedModel;
use crate::tools::SchemaField;

/// The most stop strings, and the most bytes of one.
const MOST_STOPS: usize = 64;
const STOP_BYTES: usize = 1_000;

/// Prompts to be completed, and how.
#[derive(Debug)]
pub(crate) struct ApiRequest {
    pub(crate) input: Input,
    /// Choices of each prompt.
    pub(crate) n: usize,
    /// How each choice is generated. The engine checks ranges.
    pub(crate) settings: GenerationOptions,
    /// Whether the reply has a receipt.
    pub(crate) receipt: bool,
    /// The paths of fields that change nothing.
    pub(crate) ignored: Vec<String>,
    /// The places of the settings in the caller's request.
    pub(crate) paths: Paths,
}

/// The prompts of a request.
#[derive(Debug)]
pub(crate) enum Input {
    /// A conversation to be answered.
    Conversation(Box<Conversation>),
    /// Texts to be continued, each by a text that follows the grammar.
    Texts { prompts: Vec<Prompt>, grammar: Option<Grammar> },
}

/// A conversation to be answered.
#[derive(Debug)]
pub(crate) struct Conversation {
    pub(crate) chat: Chat,
    pub(crate) options: ConverseOptions,
    /// The images of the messages, as they were sent.
    pub(crate) images: Vec<ImagePart>,
    /// The schemas of the chat's tools in the caller's request, in their order.
    pub(crate) schemas: Vec<SchemaField>,
}

impl Conversation {
    /// Prepares the images. It blocks.
    pub(crate) fn prepare_images(&mut self, model: &ServedModel) -> Result<(), ApiError> {
        if !self.images.is_empty() {
            let options = &model.app().options.images;
            let engine = &model.engine;
            self.options.images = prepared(&self.images, options, engine.processor()?, engine.context())?;
        }
        Ok(())
    }
}

/// Checks the number and lengths of stop strings.
pub(crate) fn check_stops(field: &str, stops: &[String]) -> Result<(), ApiError> {
    check_texts(field, stops, MOST_STOPS)
}

/// Checks the number and lengths of texts.
pub(crate) fn check_texts(field: &str, texts: &[String], most: usize) -> Result<(), ApiError> {
    if texts.len() > most {
        let message = format!("{field} has {} strings; at most {most} are accepted", texts.len());
        return Err(ApiError::param(field, message));
    }
    match texts.iter().find(|stop| stop.len() > STOP_BYTES) {
        Some(stop) => {
            let message = format!("a string of {field} has {} bytes; at most {STOP_BYTES} are accepted", stop.len());
            Err(ApiError::param(field, message))
        }
        None => Ok(()),
    }
}
