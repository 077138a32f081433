//! Chat templates: from messages to the prompt that a model was trained on.
//!
//! A GGUF file carries its template as Jinja source (`tokenizer.chat_template`), written for transformers. It is code
//! from an untrusted file, so it can read only its inputs, and its instructions, nesting and text are limited.
//! minijinja's virtual machine renders it. `guard` rewrites the parsed template so that the limits apply and values
//! behave as in Python (`python`). `filters`, `tests` and `library` contain what templates can call.

mod budget;
mod context;
mod draft;
mod error;
mod escape;
mod filters;
mod guard;
mod library;
mod message;
mod options;
mod outcome;
mod print;
mod python;
mod repairs;
mod support;
mod tests;
mod thinking;
mod tools;

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use minijinja::machinery::{CodeGenerator, Instruction, Vm, WhitespaceConfig, make_string_output, parse};
use minijinja::{AutoEscape, Value};

use budget::Budget;
use draft::{Draft, Skeleton};
use error::{MAX_INSTRUCTIONS, failure};
use escape::Strings;
use repairs::{REPAIRS, Repair};

use crate::reply::Syntax;
use crate::tokenizer::Tokenizer;

pub use error::{MAX_SOURCE, TemplateError};
pub use escape::{Escaper, Escapes};
pub use message::{Arguments, Call, Chat, Message, Role, Tool};
pub use options::RenderOptions;
pub use support::{ReasoningSupport, Support, ToolSupport};

/// How deeply macros may call each other, times four.
const MAX_RECURSION: usize = 120;

/// The settings of transformers for chat templates.
const WHITESPACE: WhitespaceConfig =
    WhitespaceConfig { keep_trailing_newline: false, lstrip_blocks: true, trim_blocks: true };

/// A chat template, checked and ready for use from several threads.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    source: String,
    /// See [`Self::support`].
    support: OnceLock<Support>,
    /// See [`Self::escaper`].
    escaper: OnceLock<Arc<Escaper>>,
}

impl ChatTemplate {
    /// Checks a template.
    ///
    /// # Errors
    /// If the source is too long, is not valid, or is nested too deeply.
    pub fn new(source: &str) -> Result<Self, TemplateError> {
        if source.len() > MAX_SOURCE {
            return Err(TemplateError::SourceTooLong { len: source.len(), max: MAX_SOURCE });
        }
        let source = without_generation_tags(&with_line_feeds(source)).into_owned();
        guard::check_depth(&source, WHITESPACE)?;
        let template = Self { source, support: OnceLock::new(), escaper: OnceLock::new() };
        template.parse()?;
        Ok(template)
    }

    /// The source, as it was given but for `{% generation %}` tags and the characters of its line ends.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// What the template does with tools and reasoning, found out by rendering conversations with the options of the
    /// first call.
    pub fn support(&self, options: &RenderOptions) -> &Support {
        self.support.get_or_init(|| Support::of(self, options))
    }

    /// The form of calls that is derived from the template, whether or not it has a built-in one ([`Self::support`] prefers
    /// that): for comparisons of the two.
    pub fn derived_form(&self, options: &RenderOptions) -> Option<&'static Syntax> {
        Support::derived(self, options)
    }

    /// Keeps the control tokens of a vocabulary out of the texts that the template gets. Made for the vocabulary of the
    /// first call.
    ///
    /// # Errors
    /// [`TemplateError::Index`].
    pub fn escaper(&self, tokenizer: &Tokenizer) -> Result<Arc<Escaper>, TemplateError> {
        if let Some(escaper) = self.escaper.get() {
            return Ok(escaper.clone());
        }
        let kept = Syntax::of(&self.source, "").history_marks(&self.source);
        let escaper = Arc::new(Escaper::new(&self.strings()?, tokenizer.control_tokens(), kept)?);
        Ok(self.escaper.get_or_init(|| escaper).clone())
    }

    /// The strings that the template has.
    fn strings(&self) -> Result<Strings, TemplateError> {
        let guarded = self.parse()?;
        let mut generator = CodeGenerator::new("chat template", &self.source);
        generator.compile_stmt(&guarded);
        let (instructions, _) = generator.finish();
        let mut strings = Strings::default();
        // `guard` writes a comparison as a call whose second argument is the operator.
        let mut before: Option<&str> = None;
        for index in 0..instructions.len() as u32 {
            let constant = match instructions.get(index) {
                Some(Instruction::LoadConst(value)) => {
                    add_strings(value, &mut strings.all);
                    value.as_str()
                }
                Some(Instruction::EmitRaw(text)) => {
                    strings.all.push((*text).to_owned());
                    None
                }
                _ => None,
            };
            if let (Some(sought), Some("in" | "not in")) = (before, constant) {
                let mut chars = sought.chars();
                strings.sought.extend(chars.next().filter(|_| chars.next().is_none()));
            }
            before = constant;
        }
        strings.all.sort_unstable();
        strings.all.dedup();
        Ok(strings)
    }

    /// Renders the prompt of a conversation. Tools are spelled out in its messages unless the template shows them and
    /// writes calls in a form that is read. If the template refuses the conversation or leaves out one of its messages,
    /// the conversation is repaired (`repairs`).
    ///
    /// # Errors
    /// The errors of [`render`](Self::render), if no repair helps; the template's own if it fails when it is given
    /// tools.
    pub fn render_with_tools(&self, chat: &Chat, options: &RenderOptions) -> Result<String, TemplateError> {
        self.render_with_images(chat, options).map(|(prompt, _)| prompt)
    }

    /// The prompt of [`render_with_tools`](Self::render_with_tools), and the images ([`RenderOptions::images`]) in the
    /// order in which the template got them: a repair can change the order of results of tools.
    ///
    /// # Errors
    /// The errors of [`render_with_tools`](Self::render_with_tools).
    pub fn render_with_images(
        &self,
        chat: &Chat,
        options: &RenderOptions,
    ) -> Result<(String, Vec<char>), TemplateError> {
        let is_about_tools = |message: &Message| message.role == Role::Tool || !message.calls.is_empty();
        let is_plain = chat.tools.is_empty() && !chat.messages.iter().any(is_about_tools);
        let spells_out = |support: &Support| matches!(support.tools, ToolSupport::SpelledOut(_));
        match is_plain || !spells_out(self.support(options)) {
            true => self.render_repaired(chat, options),
            false => self.render_repaired(&tools::spelled_out(chat), options),
        }
    }

    /// The form in which the model writes calls, once it is found out.
    fn form_of_calls(&self) -> &'static Syntax {
        match self.support.get().map(|support| &support.tools) {
            Some(ToolSupport::Native(syntax)) => syntax,
            _ => Syntax::generic(),
        }
    }

    /// Renders with the first repairs of the table after which every message is shown, less those that are not needed.
    fn render_repaired(&self, chat: &Chat, options: &RenderOptions) -> Result<(String, Vec<char>), TemplateError> {
        let original = Draft::new(chat.clone(), self.form_of_calls());
        let skeleton = Skeleton::new(&original, &options.images);
        let render = |draft: &Draft, repairs: &[Repair]| {
            let repaired = repairs::apply(repairs, draft);
            Ok((self.render_draft(&repaired, options)?, repaired.images(&options.images)))
        };
        let shows_all = |repairs: &[Repair]| {
            let rendered: Result<_, TemplateError> = render(&skeleton.draft, repairs);
            rendered.is_ok_and(|(text, _)| skeleton.is_in(&text))
        };
        let complete = |repairs: &[Repair]| shows_all(repairs).then(|| render(&original, repairs).ok()).flatten();
        let as_sent = render(&original, &[]);
        match &as_sent {
            Ok(_) if shows_all(&[]) => return as_sent,
            Err(error) if error.is_of_cost() => return as_sent,
            _ => {}
        }
        let mut chosen: Vec<Repair> = Vec::new();
        for repair in REPAIRS {
            chosen.push(repair);
            let Some(mut prompt) = complete(&chosen) else { continue };
            for index in (0..chosen.len() - 1).rev() {
                let removed = chosen.remove(index);
                match complete(&chosen) {
                    Some(shorter) => prompt = shorter,
                    None => chosen.insert(index, removed),
                }
            }
            return Ok(prompt);
        }
        as_sent
    }

    /// Renders the prompt of a conversation, as the template alone writes it.
    ///
    /// # Errors
    /// [`TemplateError::Raised`] if the template refuses the messages, another error if it fails or exceeds a bound.
    pub fn render(&self, chat: &Chat, options: &RenderOptions) -> Result<String, TemplateError> {
        self.render_draft(&Draft::new(chat.clone(), Syntax::generic()), options)
    }

    fn render_draft(&self, draft: &Draft, options: &RenderOptions) -> Result<String, TemplateError> {
        let root = context::context(&self.source, draft, options);
        let budget = Budget::new();
        let env = library::environment(&budget, options.now.unwrap_or_else(SystemTime::now));
        let guarded = self.parse()?;
        let mut generator = CodeGenerator::new("chat template", &self.source);
        generator.compile_stmt(&guarded);
        let (instructions, blocks) = generator.finish();
        let mut text = String::new();
        let mut output = make_string_output(&mut text);
        let result = Vm::new(&env).eval(&instructions, root, &blocks, &mut output, AutoEscape::None);
        result.map_err(|error| budget.failure().unwrap_or_else(|| failure(&error)))?;
        Ok(text)
    }

    /// The rewritten template. It is parsed again for each rendering, which takes microseconds.
    fn parse(&self) -> Result<minijinja::machinery::ast::Stmt<'_>, TemplateError> {
        let parsed = parse(&self.source, "chat template", Default::default(), WHITESPACE);
        guard::rebuilt(&self.source, &parsed.map_err(|error| TemplateError::syntax(&error))?)
    }
}

/// Adds a constant's strings.
fn add_strings(value: &Value, strings: &mut Vec<String>) {
    match value.as_str() {
        Some(text) => strings.push(text.to_owned()),
        None => value.try_iter().into_iter().flatten().for_each(|entry| {
            if let Ok(of_key) = value.get_item(&entry) {
                add_strings(&of_key, strings);
            }
            add_strings(&entry, strings);
        }),
    }
}

/// The source with the line ends that jinja2 reads. Files that were edited on Windows have others.
fn with_line_feeds(source: &str) -> Cow<'_, str> {
    match source.contains('\r') {
        true => Cow::Owned(source.replace("\r\n", "\n").replace('\r', "\n")),
        false => Cow::Borrowed(source),
    }
}

/// Replaces `{% generation %}`, which marks completions for training, by `{% if true %}`, which treats the whitespace
/// around it alike.
fn without_generation_tags(source: &str) -> Cow<'_, str> {
    if !source.contains("generation") {
        return Cow::Borrowed(source);
    }
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start);
        out.push_str(before);
        // From behind the mark: `{%}` starts a tag and does not end it.
        let Some((inner, behind)) = tag[2..].split_once("%}") else {
            rest = tag;
            break;
        };
        let words = inner.trim_matches(['-', '+']).trim();
        match words {
            "generation" => out.push_str(&format!("{{%{}%}}", inner.replace("generation", "if true"))),
            "endgeneration" => out.push_str(&format!("{{%{}%}}", inner.replace("endgeneration", "endif"))),
            _ => out.push_str(&format!("{{%{inner}%}}")),
        }
        rest = behind;
    }
    out.push_str(rest);
    Cow::Owned(out)
}
