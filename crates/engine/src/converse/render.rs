//! From a conversation to its prompt and the form of its reply.

use gristmill_text::reply::{ReplyForm, ReplyOptions, Syntax};
use gristmill_text::template::{Chat, Role, Tool};
use gristmill_vision::Processor;

use super::call::{self, RequiredCall};
use super::conversation::Conversation;
use super::enforce;
use super::images::{self, ChatImage};
use super::options::{ConverseOptions, ToolChoice};
use super::parts::Parts;
use super::template::{self, Refusal, Rendered};
use crate::options::Required;
use crate::{Engine, EngineError, Grammar, Prompt, ReasoningLimit};

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
        let reasoning_tokens = options.reasoning_tokens;
        let grammar = options.grammar.as_ref();
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
            let source = template.source().to_owned();
            let started = String::new();
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
                Ok(parts.continued(last))
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
