//! The chat template of a model, or one in its place.

use std::borrow::Cow;

use gristmill_text::reply::Syntax;
use gristmill_text::template::{
    Chat, ChatTemplate, Escapes, ReasoningSupport, RenderOptions, TemplateError, ToolSupport,
};
use gristmill_text::tokenizer::Tokenizer;

use crate::Notice;

/// A chat template with the special tokens of its model.
#[derive(Debug, Clone)]
pub struct ModelTemplate {
    source: String,
    checked: Result<ChatTemplate, TemplateError>,
    options: RenderOptions,
}

/// Why a conversation has no prompt.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The template fails on the simplest conversation of this kind.
    Broken(TemplateError),
    /// The template fails on this conversation.
    Conversation(TemplateError),
}

/// A prompt with placeholders.
#[derive(Debug)]
pub(super) struct Rendered {
    pub(super) prompt: String,
    /// The characters of images, in the order in which the template got them.
    pub(super) images: Vec<char>,
    pub(super) syntax: &'static Syntax,
}

impl ModelTemplate {
    /// A template in Jinja, for a model with this tokenizer.
    pub fn new(source: impl Into<String>, tokenizer: Option<&Tokenizer>) -> ModelTemplate {
        let source = source.into();
        let text = |id: Option<u32>| tokenizer?.token_text(id?).ok().map(str::to_owned);
        let options = RenderOptions {
            add_generation_prompt: true,
            bos_token: text(tokenizer.and_then(Tokenizer::bos)),
            eos_token: text(tokenizer.and_then(Tokenizer::eos)),
            ..RenderOptions::default()
        };
        ModelTemplate { checked: ChatTemplate::new(&source), source, options }
    }

    /// The source.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// What the template does with tools, and with reasoning.
    ///
    /// # Errors
    /// If it is broken: it is not valid, or fails on the simplest conversation.
    pub fn support(&self) -> Result<(&ToolSupport, &ReasoningSupport), &TemplateError> {
        let support = self.checked.as_ref()?.support(&self.options);
        match &support.failure {
            Some(error) => Err(error),
            None => Ok((&support.tools, &support.reasoning)),
        }
    }

    /// A notice if the template is broken, or fails when it is given tools.
    pub fn notice(&self) -> Option<Notice> {
        match self.support() {
            Err(error) => Some(Notice::BrokenTemplate(error.to_string())),
            Ok((ToolSupport::Fails(error), _)) => Some(Notice::TemplateWithoutTools(error.to_string())),
            Ok(_) => None,
        }
    }

    /// The conversation with placeholders, so that its texts cannot become control tokens of the tokenizer.
    pub(super) fn escape(&self, chat: &Chat, tokenizer: &Tokenizer) -> Result<(Chat, Escapes), Refusal> {
        let escaper = self.checked.as_ref().map_err(Clone::clone).and_then(|template| template.escaper(tokenizer));
        escaper.map_err(Refusal::Broken)?.escape(chat).map_err(Refusal::Conversation)
    }

    /// The prompt of a conversation with placeholders, the images in the order in which the template got them, and the
    /// form of its reply.
    pub(super) fn render(&self, chat: &Chat, escapes: &Escapes, images_are_text: bool) -> Result<Rendered, Refusal> {
        let template = self.checked.as_ref().map_err(|error| Refusal::Broken(error.clone()))?;
        let options = RenderOptions { images: escapes.images().to_vec(), images_are_text, ..self.options.clone() };
        let (prompt, images) = template.render_with_images(chat, &options).map_err(|error| {
            let support = template.support(&self.options);
            let error = escapes.restore(error);
            let fails_on_tools = chat.listed_tools().next().is_some() && matches!(support.tools, ToolSupport::Fails(_));
            match support.failure.is_some() || fails_on_tools {
                true => Refusal::Broken(error),
                false => Refusal::Conversation(error),
            }
        })?;
        let syntax = match &template.support(&self.options).tools {
            ToolSupport::Native(syntax) => syntax,
            _ if chat.tools.is_empty() => Syntax::of(&self.source, &prompt),
            _ => Syntax::generic(),
        };
        Ok(Rendered { prompt, images, syntax })
    }
}

/// The template of a conversation: its own, or else the model's.
pub(super) fn of<'m>(
    chat: &Chat,
    model: Option<&'m ModelTemplate>,
    tokenizer: Option<&Tokenizer>,
) -> Option<Cow<'m, ModelTemplate>> {
    match &chat.template {
        Some(source) => Some(Cow::Owned(ModelTemplate::new(source, tokenizer))),
        None => model.map(Cow::Borrowed),
    }
}
