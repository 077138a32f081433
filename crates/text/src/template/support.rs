//! What a template does with tools and reasoning, found out by rendering conversations: what is read in a source need
//! not be shown, and the form of a call that a template writes is known if a parser of replies reads the call.

use std::fmt::{self, Display, Formatter};

use serde_json::{Value as Json, json};

use super::message::{Arguments, Call, Chat, Message, Role, Tool};
use super::{ChatTemplate, RenderOptions, TemplateError};
use crate::reply::{ParsedReply, ReasoningMarks, ReplyForm, ReplyOptions, Samples, Syntax, Words, derived};

/// What a template does with tools and reasoning.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Support {
    /// The reason for which the template fails on the simplest conversation; it is broken then.
    pub failure: Option<TemplateError>,
    /// What it does with tools.
    pub tools: ToolSupport,
    /// What it does with reasoning.
    pub reasoning: ReasoningSupport,
}

/// What a template does with tools.
#[derive(Debug, Clone)]
pub enum ToolSupport {
    /// It shows them, and its calls are read in this form.
    Native(&'static Syntax),
    /// Tools, calls and results are spelled out in messages, and calls read in the form of Hermes.
    SpelledOut(NoTools),
    /// It fails when it is given tools.
    Fails(TemplateError),
}

/// Why a template is given no tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoTools {
    /// It does not show them.
    NotShown,
    /// It refuses them with this message.
    Refused(String),
    /// It writes calls in a form that is not read.
    UnknownCalls,
    /// It fails on calls, for this reason.
    FailsOnCalls(TemplateError),
}

/// What a template does with reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasoningSupport {
    /// It has these marks, between which reasoning is read.
    Marks {
        /// Before reasoning.
        open: &'static str,
        /// After reasoning.
        close: &'static str,
    },
    /// It shows none. What a model writes between these marks is read as reasoning.
    NotShown {
        /// Before reasoning.
        open: &'static str,
        /// After reasoning.
        close: &'static str,
    },
    /// It writes reasoning in a form that is not read.
    Unknown,
}

/// Words that no template has.
const TOOL: &str = "q7tool";
const KEY: &str = "q7key";
const VALUE: &str = "q7value";
const OTHER_TOOL: &str = "q7other";
const OTHER_KEY: &str = "q7second";
const OTHER_VALUE: &str = "q7content";
const ASKED: &str = "q7asked";
const REASONED: &str = "q7reasoned";
const ANSWERED: &str = "q7answered";

impl Support {
    /// The form that is derived from the calls of a template, whether or not one is built in.
    pub(super) fn derived(template: &ChatTemplate, options: &RenderOptions) -> Option<&'static Syntax> {
        Probe { template, options }.derived(&[asked()])
    }

    pub(super) fn of(template: &ChatTemplate, options: &RenderOptions) -> Support {
        let probe = Probe { template, options };
        let failure = probe.plain(&[asked()]).err();
        let tools = probe.tools(failure.as_ref());
        let reasoning = probe.reasoning(&tools);
        Support { failure, tools, reasoning }
    }
}

fn asked() -> Message {
    Message::new(Role::User, ASKED)
}

/// A tool with all that templates read of one.
fn tool(name: &str) -> Tool {
    let property = json!({"type": "string", "description": "The name of a city."});
    let properties = json!({KEY: property.clone(), OTHER_KEY: property});
    let parameters = json!({"type": "object", "properties": properties, "required": [KEY]});
    let description = Some("Returns the weather.".to_owned());
    Tool { name: name.to_owned(), description, parameters: Some(parameters), ..Tool::default() }
}

/// A call of that tool. Some templates want an id of nine characters.
fn called(name: &str, arguments: Arguments) -> Message {
    let call = Call { id: "call00001".to_owned(), name: name.to_owned(), arguments };
    Message { calls: vec![call], ..Message::new(Role::Assistant, "") }
}

/// Renders conversations with a template.
struct Probe<'t> {
    template: &'t ChatTemplate,
    options: &'t RenderOptions,
}

impl Probe<'_> {
    /// A conversation without tools, repaired if need be.
    fn plain(&self, messages: &[Message]) -> Result<String, TemplateError> {
        self.template.render_repaired(&Chat::new(messages.to_vec()), self.options).map(|(prompt, _)| prompt)
    }

    /// A conversation with a tool, and perhaps without the start of a reply.
    fn with_tool(&self, messages: &[Message], begins_reply: bool) -> Result<String, TemplateError> {
        let chat = Chat { tools: vec![tool(TOOL)], ..Chat::new(messages.to_vec()) };
        self.template.render(&chat, &RenderOptions { add_generation_prompt: begins_reply, ..self.options.clone() })
    }

    fn tools(&self, failure: Option<&TemplateError>) -> ToolSupport {
        // Some templates show tools only with a system message, others have no system message.
        let mut failure = failure.cloned();
        for system in [None, Some(Message::new(Role::System, "Be brief."))] {
            let messages: Vec<Message> = system.into_iter().chain([asked()]).collect();
            match self.with_tool(&messages, true) {
                Ok(prompt) if prompt.contains(TOOL) => return self.calls(&messages, &prompt),
                Ok(_) => {}
                Err(error) if self.template.render(&Chat::new(messages), self.options).is_ok() => {
                    failure.get_or_insert(error);
                }
                // It is not about the tools.
                Err(_) => {}
            }
        }
        match failure {
            Some(TemplateError::Raised(message)) => ToolSupport::SpelledOut(NoTools::Refused(message)),
            Some(error) => ToolSupport::Fails(error),
            None => ToolSupport::SpelledOut(NoTools::NotShown),
        }
    }

    /// For a template that shows tools in the prompt of a conversation.
    fn calls(&self, messages: &[Message], prompt: &str) -> ToolSupport {
        let by_marks = Syntax::shown(self.template.source(), prompt);
        let arguments = json!({KEY: VALUE}).as_object().cloned().unwrap_or_default();
        let as_text = Arguments::Text(json!({KEY: VALUE}).to_string());
        let written = |arguments: Arguments| {
            let with_call = [messages, &[called(TOOL, arguments)]].concat();
            let with_result = [&*with_call, &[Message::new(Role::Tool, "q7result")]].concat();
            self.with_tool(&with_call, false).or_else(|_| self.with_tool(&with_result, false))
        };
        let written = match written(arguments.into()).or_else(|error| written(as_text).map_err(|_| error)) {
            Ok(written) => written,
            // Earlier calls are written in the form of the model (`repairs`).
            Err(error) => match by_marks {
                Some(syntax) => return ToolSupport::Native(syntax),
                None => return ToolSupport::SpelledOut(NoTools::FailsOnCalls(error)),
            },
        };
        // The value is nowhere but in the call.
        let reads = |syntax: &&'static Syntax| {
            let read = |(end, reply): (&str, &str)| self.parsed(syntax, end, reply, &[tool(TOOL)]).calls;
            let is_right = |call: &crate::reply::ToolCall| {
                call.name == TOOL && call.arguments.parse().is_ok_and(|found: Json| found == json!({KEY: VALUE}))
            };
            replies(prompt, &written).into_iter().any(|reply| read(reply).first().is_some_and(is_right))
        };
        match by_marks {
            Some(syntax) if !written.contains(VALUE) || reads(&syntax) => ToolSupport::Native(syntax),
            _ if !written.contains(VALUE) => ToolSupport::SpelledOut(NoTools::UnknownCalls),
            _ => match Syntax::all().find(reads).or_else(|| self.derived(messages).filter(reads)) {
                Some(syntax) => ToolSupport::Native(syntax),
                None => ToolSupport::SpelledOut(NoTools::UnknownCalls),
            },
        }
    }

    /// The form that is derived from the calls which the template writes after these messages.
    fn derived(&self, messages: &[Message]) -> Option<&'static Syntax> {
        let rendered = |more: &[Message], begins_reply: bool| {
            let tools = vec![tool(TOOL), tool(OTHER_TOOL)];
            let chat = Chat { tools, ..Chat::new([messages, more].concat()) };
            let options = RenderOptions { add_generation_prompt: begins_reply, ..self.options.clone() };
            self.template.render(&chat, &options).ok()
        };
        let call =
            |name: &str, arguments: Json| called(name, arguments.as_object().cloned().unwrap_or_default().into());
        let one = call(TOOL, json!({KEY: VALUE}));
        let two_arguments = call(TOOL, json!({KEY: VALUE, OTHER_KEY: OTHER_VALUE}));
        let calls = [&*one.calls, &call(OTHER_TOOL, json!({KEY: VALUE})).calls].concat();
        let two_calls = Message { calls, ..one.clone() };
        let answered = rendered(&[Message::new(Role::Assistant, ANSWERED)], false)?;
        let (_, turn_end) = answered.rsplit_once(ANSWERED)?;
        let prompt = rendered(&[], true)?;
        let one = rendered(&[one], false)?;
        let [(before, _), _] = replies(&prompt, &one);
        // A reply does not have the last mark of the prompt.
        let last = prompt.trim_end();
        let last = last.rfind(['<', '[']).map_or("", |at| &last[at..]);
        let reply = |text: &str| {
            let text = text.get(before.len()..)?;
            Some(text.strip_prefix(last).unwrap_or(text).to_owned())
        };
        let of = |message: Message| rendered(&[message], false).and_then(|text| reply(&text));
        let samples =
            Samples { one: reply(&one)?, two_arguments: of(two_arguments), two_calls: of(two_calls), turn_end };
        let words = Words { tools: [TOOL, OTHER_TOOL], keys: [KEY, OTHER_KEY], values: [VALUE, OTHER_VALUE] };
        let source = self.template.source();
        derived(&samples, &words, Syntax::of(source, &prompt).marks_of_reasoning(source))
    }

    fn reasoning(&self, tools: &ToolSupport) -> ReasoningSupport {
        let source = self.template.source();
        let prompt = self.plain(&[asked()]).unwrap_or_default();
        let syntax = match tools {
            ToolSupport::Native(syntax) => syntax,
            _ => Syntax::of(source, &prompt),
        };
        let ReasoningMarks { open, close, .. } = syntax.marks_of_reasoning(source);
        let answer = Message { reasoning: Some(REASONED.to_owned()), ..Message::new(Role::Assistant, ANSWERED) };
        let options = RenderOptions { add_generation_prompt: false, ..self.options.clone() };
        let written = self.template.render(&Chat::new(vec![asked(), answer]), &options).unwrap_or_default();
        let is_read = || {
            replies(&prompt, &written).into_iter().any(|(end, reply)| {
                let ParsedReply { reasoning, content, .. } = self.parsed(syntax, end, reply, &[]);
                reasoning.contains(REASONED) && content.contains(ANSWERED)
            })
        };
        match written.contains(REASONED) {
            true if !is_read() => ReasoningSupport::Unknown,
            false if ![open, close].iter().any(|mark| source.contains(mark)) => {
                ReasoningSupport::NotShown { open, close }
            }
            _ => ReasoningSupport::Marks { open, close },
        }
    }

    fn parsed(&self, syntax: &'static Syntax, prompt_end: &str, reply: &str, tools: &[Tool]) -> ParsedReply {
        let options = ReplyOptions::for_tools(tools);
        ReplyForm::new(syntax, self.template.source(), prompt_end, options).parse(reply)
    }
}

/// What an assistant wrote in a conversation, as a reply to a prompt, with the end of the text before it. A template
/// may write it otherwise than a model that continues the prompt, so there are two candidates: what follows the text
/// that both have, mark by mark, and what follows the user's words.
fn replies<'t>(prompt: &'t str, written: &'t str) -> [(&'t str, &'t str); 2] {
    let differing = prompt.char_indices().zip(written.chars()).find(|((_, a), b)| a != b);
    let mut common = differing.map_or(prompt.len().min(written.len()), |((at, _), _)| at);
    for (open, close) in [('<', '>'), ('[', ']')] {
        if let Some(mark) = written[..common].rfind(open).filter(|&mark| !written[mark..common].contains(close)) {
            common = mark;
        }
    }
    let asked = written.rfind(ASKED).map_or(common, |at| at + ASKED.len());
    [written.split_at(common), ("", &written[asked..])]
}

impl Display for ToolSupport {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            ToolSupport::Native(syntax) if syntax.is_derived() => {
                write!(f, "derived from the template: {:?} …", syntax.call.body.opening())
            }
            ToolSupport::Native(syntax) => write!(f, "{}, built in", syntax.name()),
            ToolSupport::SpelledOut(reason) => write!(f, "none: spelled out ({reason})"),
            ToolSupport::Fails(error) => write!(f, "none: {error}"),
        }
    }
}

impl Display for NoTools {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            NoTools::NotShown => f.write_str("the template shows no tools"),
            NoTools::Refused(message) => write!(f, "the template refuses tools: {message}"),
            NoTools::UnknownCalls => f.write_str("the template writes calls in a form that is not read"),
            NoTools::FailsOnCalls(error) => write!(f, "with a call, {error}"),
        }
    }
}

impl Display for ReasoningSupport {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            ReasoningSupport::Marks { open, close } => write!(f, "{open} … {close}"),
            ReasoningSupport::NotShown { open, close } => {
                write!(f, "none: the template shows none ({open} … {close} is read)")
            }
            ReasoningSupport::Unknown => f.write_str("none: the template writes it in a form that is not read"),
        }
    }
}
