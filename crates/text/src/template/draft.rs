//! A conversation in the form in which a template gets it, and the same with words that are easy to find again.

use serde_json::{Map, Value as Json};

use super::message::{Arguments, Chat};
use crate::reply::Syntax;

/// A conversation, and the types in which a template gets its parts.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    pub(super) chat: Chat,
    /// Without tools, the variable `tools` is an empty list. Otherwise it is null, as in transformers.
    pub(super) tools_are_a_list: bool,
    /// A text is a list with one part. Otherwise it is a string.
    pub(super) texts_are_parts: bool,
    /// The form in which the model writes calls.
    pub(super) calls: &'static Syntax,
}

/// A draft whose texts, tools and arguments are one word each. It shows whether a template leaves out a message,
/// independent of the messages' texts.
#[derive(Debug)]
pub(super) struct Skeleton {
    pub(super) draft: Draft,
    /// The words that the prompt must have.
    words: Vec<String>,
}

/// The start of a text in a part, as Python prints it, and as JSON.
const PRINTED_PARTS: [&str; 2] = ["'text': 'q7x", "\"text\": \"q7x"];

impl PartialEq for Draft {
    fn eq(&self, other: &Draft) -> bool {
        let of = |draft: &Draft| (draft.tools_are_a_list, draft.texts_are_parts, draft.calls.name());
        self.chat == other.chat && of(self) == of(other)
    }
}

impl Draft {
    /// Of a conversation, less its deferred tools, with a model that writes calls in this form.
    pub(super) fn new(mut chat: Chat, calls: &'static Syntax) -> Draft {
        chat.tools.retain(|tool| !tool.is_deferred);
        Draft { chat, tools_are_a_list: false, texts_are_parts: false, calls }
    }

    /// Those of these images that the messages have, in their order.
    pub(super) fn images(&self, images: &[char]) -> Vec<char> {
        if images.is_empty() {
            return Vec::new();
        }
        let chars = self.chat.messages.iter().flat_map(|message| message.text.chars());
        chars.filter(|c| images.contains(c)).collect()
    }
}

impl Skeleton {
    /// The words of a draft that the prompt must contain. Reasoning is excluded, because most templates leave out
    /// reasoning of earlier turns. `images` are characters that stand for images; they stay in the texts.
    pub(super) fn new(draft: &Draft, images: &[char]) -> Skeleton {
        let mut words = Vec::new();
        // No word is a part of another one.
        let mut word = || {
            words.push(format!("q7x{}z", words.len()));
            words.last().cloned().unwrap_or_default()
        };
        let Draft { chat, .. } = draft;
        let mut names = Map::new();
        let mut draft = Draft { chat: Chat { messages: Vec::new(), ..chat.clone() }, ..*draft };
        for tool in &mut draft.chat.tools {
            let name = word();
            names.insert(std::mem::replace(&mut tool.name, name.clone()), name.into());
        }
        for from in &chat.messages {
            let mut message = super::Message::new(from.role, from.text.clone());
            let is_blank = |c: char| c.is_whitespace() || images.contains(&c);
            if !from.text.trim_matches(is_blank).is_empty() {
                message.text = word();
                message.text.extend(from.text.chars().filter(|c| images.contains(c)));
            }
            message.name.clone_from(&from.name);
            message.call_id.clone_from(&from.call_id);
            message.reasoning = from.reasoning.as_ref().map(|text| text.chars().take(1).collect());
            for from in &from.calls {
                let name = names.get(&from.name).and_then(Json::as_str).unwrap_or(&from.name).to_owned();
                let arguments = match &from.arguments {
                    Arguments::Named(arguments) => {
                        let one = arguments.keys().take(1).map(|key| (key.clone(), word().into()));
                        Arguments::Named(one.collect())
                    }
                    Arguments::Text(_) => Arguments::Text(word()),
                };
                message.calls.push(super::Call { id: from.id.clone(), name, arguments });
            }
            draft.chat.messages.push(message);
        }
        Skeleton { draft, words }
    }

    /// Whether a prompt has all words, and none in a list of parts that is printed as such.
    pub(super) fn is_in(&self, prompt: &str) -> bool {
        let is_printed = PRINTED_PARTS.iter().any(|part| prompt.contains(part));
        !is_printed && self.words.iter().all(|word| prompt.contains(word))
    }
}
