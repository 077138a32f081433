//! Conversations: from messages and tools to a prompt, and to the form in which its reply is parsed.
//!
//! # A conversation becomes a request and the form of its reply
//!
//! A conversation becomes a request and the form of its reply, for the server and the command line. Messages and tools
//! are typed. Only `template/context.rs` contains the fields in which templates look for them. Rendered test
//! conversations show what a template does with tools and reasoning (`template/support.rs`), because a template can
//! read a variable and not print it. The form of calls is the one whose parser reads the call that the template writes.
//! If none reads it, the form is derived from calls that the template writes (`reply/derive.rs`). A form is data
//! (`reply/frame.rs`, `reply/tags.rs`): its reader, the grammar of a required call and the text of earlier calls follow
//! from it. If a template does not show tools, or its calls could not be read, messages spell the tools out
//! (`template/tools.rs`). If a template refuses a conversation, or leaves out a part of it, the conversation is
//! repaired (`template/repairs.rs`, a table). *A skeleton of the conversation, in which each text is one word, shows
//! whether a part is left out (`template/draft.rs`). So the answer does not depend on the content of messages.*

mod call;
mod enforce;
mod gemma;
mod images;
mod lark;
mod nested;
mod python;
mod tagged;
mod template;
#[cfg(test)]
mod tests;

use gristmill_text::reply::{ReplyForm, ReplyOptions, Syntax};
use gristmill_text::template::{Chat, Escapes, Message, Role, Tool};
use gristmill_vision::Processor;

use super::options::Required;
use super::prompt::PromptImage;
use super::{Engine, EngineError, GenerationOptions, Grammar, Prompt, ReasoningLimit, ReplyParser, Request};
use call::RequiredCall;
use template::{Refusal, Rendered};

pub use enforce::{Unenforced, check_tools};
pub use images::ChatImage;
pub use template::ModelTemplate;

/// Options for the reply to a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct ConverseOptions {
    /// Whether the reply may or must call tools.
    pub tool_choice: ToolChoice,
    /// Whether the reply may have several calls. Otherwise the first call is given and further ones are dropped.
    pub parallel_calls: bool,
    /// The most tokens of reasoning; with 0 the reply has none.
    pub reasoning_tokens: Option<usize>,
    /// The grammar of the answer. It holds from the first token on, so the model does not reason. Where the model
    /// chooses whether to call tools, the reply is such an answer, or a call that follows the schema of its tool; a
    /// required call needs no answer.
    pub grammar: Option<Grammar>,
    /// Tools, by their indices, whose calls have any JSON object as arguments, whatever their schemas say.
    pub unenforced: Vec<usize>,
    /// The images of the messages ([`Message::images`](gristmill_text::template::Message::images)), in their order.
    pub images: Vec<ChatImage>,
}

impl Default for ConverseOptions {
    fn default() -> ConverseOptions {
        ConverseOptions {
            tool_choice: ToolChoice::Auto,
            parallel_calls: true,
            reasoning_tokens: None,
            grammar: None,
            unenforced: Vec::new(),
            images: Vec::new(),
        }
    }
}

/// Whether a reply may or must call tools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model chooses.
    #[default]
    Auto,
    /// The prompt has no tools, and what looks like a call is content.
    None,
    /// The reply is a call of any of the tools, with arguments of its schema. A call that a limit cuts is left out.
    Required,
    /// The reply is a call of one of the tools with these names, as for `Required`.
    Among(Vec<String>),
}

/// A rendered conversation: its prompt, what the prompt requires of a request, and the form in which replies are parsed.
/// Several requests can be made of it.
#[derive(Debug, Clone)]
#[must_use]
pub struct Conversation {
    required: Required,
    form: ReplyForm,
}

impl Conversation {
    /// The prompt.
    pub fn prompt(&self) -> &Prompt {
        &self.required.prompt
    }

    /// The request for one reply. Without sampling in the options, it is sampled as the model recommends.
    pub fn request(&self, options: GenerationOptions) -> Request {
        self.required.clone().request(options)
    }

    /// A parser for one reply.
    pub fn parser(&self) -> ReplyParser {
        ReplyParser::new(self.form.parser())
    }

    /// The form of the replies. [`parser`](Self::parser) reads the pieces of a reply; [`ReplyForm::parse`] reads a whole
    /// text.
    pub fn form(&self) -> &ReplyForm {
        &self.form
    }
}

/// A prompt in parts, with placeholders where a control token could start in what the conversation says.
struct Parts {
    /// The prompt, up to the reply.
    prompt: String,
    /// The start of the reply.
    started: String,
    syntax: &'static Syntax,
    /// The source of the template.
    template: String,
    escapes: Escapes,
    images: Vec<PromptImage>,
}

impl Parts {
    /// The prompt, and what of the reply it has.
    fn finished(&self, started: &str) -> Prompt {
        let (text, plain) = self.escapes.unescape(&[&self.prompt, started].concat());
        Prompt::Rendered { text, plain, is_started: !started.is_empty(), images: self.images.clone() }
    }
}

impl Engine {
    /// Renders the prompt of a conversation, and chooses the form of its replies. [`reply`](Self::reply) also generates
    /// one. Rendering and the tools' schemas block for milliseconds.
    ///
    /// # Errors
    /// The errors of [`render`](Self::render). [`EngineError::NoImages`], [`EngineError::ImageCount`] and
    /// [`EngineError::ImageTemplate`] for images that the model, the messages or the template do not have places for.
    /// [`EngineError::NoTools`] and [`EngineError::UnknownTool`] if a call is
    /// required that no tool can have.
    pub fn converse(&self, mut chat: Chat, options: ConverseOptions) -> Result<Conversation, EngineError> {
        let enforced = |chat: &Chat| enforce::enforced(chat, &options);
        let callable = match &options.tool_choice {
            ToolChoice::Auto => None,
            ToolChoice::None => {
                chat.tools.clear();
                None
            }
            ToolChoice::Required => Some(call::callable(enforced(&chat), None)?),
            ToolChoice::Among(names) => Some(call::callable(enforced(&chat), Some(names))?),
        };
        let (reasoning_tokens, grammar) = (options.reasoning_tokens, options.grammar.as_ref());
        if callable.is_some() && chat.continues {
            return Err(EngineError::NotContinued);
        }
        if callable.is_some() || grammar.is_some() || reasoning_tokens == Some(0) {
            chat.thinking = Some(false);
        }
        let parts = self.parts(&chat, &options.images)?;
        let reply = ReplyOptions { parallel_calls: options.parallel_calls, ..ReplyOptions::for_tools(&chat.tools) };
        match (callable, grammar) {
            (Some(callable), _) => self.required_call(parts, reply, &callable),
            (None, Some(grammar)) if chat.tools.is_empty() || chat.continues => Ok(self.followed(parts, grammar)),
            (None, Some(grammar)) => self.answer_or_call(parts, reply, grammar, &enforced(&chat)),
            (None, None) => self.answered(parts, reply, reasoning_tokens),
        }
    }

    /// The prompt of a conversation, as the model's chat template writes it. Tools that the template does not show are
    /// described in the system message. Messages that the template refuses or leaves out are repaired (see
    /// `docs/serve-compatibility.md`).
    ///
    /// # Errors
    /// [`EngineError::NoTemplate`]; [`EngineError::BrokenTemplate`], or [`EngineError::OwnTemplate`] for the
    /// conversation's own; [`EngineError::Template`] if the template fails on these messages;
    /// [`EngineError::NotContinued`]; [`EngineError::PromptTooLong`] if the messages alone exceed the context by far.
    /// [`EngineError::NoImages`] if a message has images: [`converse`](Self::converse) gets them.
    pub fn render(&self, chat: &Chat) -> Result<String, EngineError> {
        self.parts(chat, &[]).map(|Parts { prompt, started, escapes, .. }| escapes.unescape(&(prompt + &started)).0)
    }

    /// The processor of a conversation's images, if it has any.
    fn processor_of(&self, chat: &Chat, images: &[ChatImage]) -> Result<Option<&Processor>, EngineError> {
        let places: usize = chat.messages.iter().map(|message| message.images.len()).sum();
        if places == 0 && images.is_empty() {
            return Ok(None);
        }
        let processor = self.processor()?;
        if places != images.len() {
            return Err(EngineError::ImageCount { found: images.len(), places });
        }
        Ok(Some(processor))
    }

    fn parts(&self, chat: &Chat, all: &[ChatImage]) -> Result<Parts, EngineError> {
        let processor = self.processor_of(chat, all)?;
        self.check_length(chat)?;
        let tokenizer = self.model.tokenizer();
        // As in transformers.
        let has_tools = chat.listed_tools().next().is_some();
        let own = if has_tools { self.tool_template() } else { self.template() };
        let template = template::of(chat, own, tokenizer.as_ref().ok().copied());
        let template = template.ok_or(EngineError::NoTemplate)?;
        let refused = |refusal| match refusal {
            Refusal::Broken(error) if chat.template.is_some() => EngineError::OwnTemplate(error),
            Refusal::Broken(error) => EngineError::BrokenTemplate(error),
            Refusal::Conversation(error) => EngineError::Template(error),
        };
        let (chat, escapes) = template.escape(chat, tokenizer?).map_err(refused)?;
        let rendered = |chat: &Chat| -> Result<Parts, EngineError> {
            let (source, started) = (template.source().to_owned(), String::new());
            let Some(processor) = processor else {
                let Rendered { prompt, syntax, .. } = template.render(chat, &escapes, false).map_err(refused)?;
                let escapes = escapes.clone();
                return Ok(Parts { prompt, started, syntax, template: source, escapes, images: Vec::new() });
            };
            let marks = &processor.marks;
            let (mut found, mut refusal) = (0, None);
            for is_text in [false, true] {
                let Rendered { prompt, images, syntax } = match template.render(chat, &escapes, is_text) {
                    Ok(rendered) => rendered,
                    Err(error) => {
                        refusal.get_or_insert(error);
                        continue;
                    }
                };
                let places = images::places(&prompt, &escapes, marks, is_text);
                if (places, images.len()) == (all.len(), all.len()) {
                    let (prompt, images) = images::expanded(&prompt, &escapes, marks, is_text, &images, all);
                    let escapes = escapes.clone();
                    return Ok(Parts { prompt, started, syntax, template: source, escapes, images });
                }
                found = found.max(places);
            }
            Err(refusal.map_or(EngineError::ImageTemplate { found, expected: all.len() }, refused))
        };
        match chat.messages.split_last() {
            _ if !chat.continues => rendered(&chat),
            Some((last, messages)) if last.role == Role::Assistant && last.calls.is_empty() => {
                // Its reasoning has ended, or it has none.
                let thinking = if last.reasoning.is_some() { chat.thinking } else { Some(false) };
                let messages = messages.to_vec();
                let parts = rendered(&Chat { messages, thinking, ..chat.clone() })?;
                Ok(continued(parts, last))
            }
            _ => Err(EngineError::NotContinued),
        }
    }

    /// A reply of any kind.
    fn answered(
        &self,
        mut parts: Parts,
        options: ReplyOptions,
        reasoning_tokens: Option<usize>,
    ) -> Result<Conversation, EngineError> {
        let syntax = parts.syntax;
        if reasoning_tokens == Some(0) {
            parts.prompt.push_str(syntax.reasoning_ending(&parts.prompt));
        }
        let Parts { prompt, started, template, escapes, .. } = &parts;
        let reasoning =
            reasoning_tokens.map(|tokens| self.reasoning_limit(tokens, prompt, syntax, template)).transpose()?;
        let form = ReplyForm::new(syntax, template, prompt, options).started(escapes.unescape(started).0);
        Ok(self.conversation(parts.finished(started), form, None, reasoning))
    }

    /// The limit on the reasoning of a reply to this prompt.
    fn reasoning_limit(
        &self,
        tokens: usize,
        prompt: &str,
        syntax: &Syntax,
        template: &str,
    ) -> Result<ReasoningLimit, EngineError> {
        let marks = syntax.marks_of_reasoning(template);
        let ending = self.tokens_within(marks.ending)?;
        let is_started = !syntax.reasoning_ending(prompt).is_empty();
        let (open, close) = (marks.open.to_owned(), marks.close.to_owned());
        Ok(ReasoningLimit { tokens, is_started, repeats: syntax.reasoning_repeats(), open, close, ending })
    }

    /// A reply that is an answer, which follows a grammar, or a call of one of these tools.
    fn answer_or_call(
        &self,
        mut parts: Parts,
        options: ReplyOptions,
        grammar: &Grammar,
        tools: &[Tool],
    ) -> Result<Conversation, EngineError> {
        let syntax = parts.syntax;
        parts.prompt.push_str(syntax.reasoning_ending(&parts.prompt));
        let form = ReplyForm::new(syntax, &parts.template, &parts.prompt, options).answer_or_calls();
        let answer = (syntax.answer_opening(&parts.prompt), grammar);
        let grammar = call::answer_or_call(answer, syntax, &parts.prompt, tools, self.model.tokenizer()?)?;
        Ok(self.conversation(parts.finished(""), form, Some(grammar), None))
    }

    /// A reply that is a call of one of these tools.
    fn required_call(
        &self,
        mut parts: Parts,
        options: ReplyOptions,
        callable: &[Tool],
    ) -> Result<Conversation, EngineError> {
        let syntax = parts.syntax;
        parts.prompt.push_str(syntax.reasoning_ending(&parts.prompt));
        let form = ReplyForm::new(syntax, &parts.template, &parts.prompt, options).only_calls();
        let RequiredCall { opening, grammar } =
            call::required(syntax, &parts.prompt, callable, self.model.tokenizer()?);
        let written = call::opening(syntax, &parts.prompt, callable, |name| parts.escapes.escaped(name));
        Ok(self.conversation(parts.finished(&written), form.started(opening), Some(grammar), None))
    }

    /// A reply whose answer follows a grammar.
    fn followed(&self, mut parts: Parts, grammar: &Grammar) -> Conversation {
        parts.prompt.push_str(parts.syntax.reasoning_ending(&parts.prompt));
        parts.prompt.push_str(parts.syntax.answer_opening(&parts.prompt));
        self.conversation(parts.finished(&parts.started), ReplyForm::plain(), Some(grammar.clone()), None)
    }

    fn conversation(
        &self,
        prompt: Prompt,
        form: ReplyForm,
        grammar: Option<Grammar>,
        reasoning: Option<ReasoningLimit>,
    ) -> Conversation {
        let control_tokens = form.marks_are_control_tokens();
        Conversation {
            required: Required {
                prompt,
                pictures: Default::default(),
                sampling: self.sampling(),
                grammar,
                reasoning,
                control_tokens,
            },
            form,
        }
    }
}

/// Starts the reply with a message.
fn continued(parts: Parts, message: &Message) -> Parts {
    let Parts { mut prompt, syntax, template, escapes, images, .. } = parts;
    prompt.push_str(syntax.reasoning_ending(&prompt));
    if let Some(reasoning) = &message.reasoning {
        prompt.push_str(&syntax.written_reasoning(&template, reasoning));
    }
    prompt.push_str(syntax.answer_opening(&prompt));
    Parts { prompt, started: message.text.clone(), syntax, template, escapes, images }
}
