//! The reply to a request, while it grows: every interface writes it, whole or as events.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::mem;
use std::sync::Arc;

use gristmill_engine::receipt::Receipt;
use gristmill_engine::reply::{Joiner, ReplyEvent};
use gristmill_engine::{Finish, FinishReason, Logprob, Piece, ReplyParser};

/// The reply to a request.
#[derive(Debug)]
pub(crate) struct Reply {
    /// The choices, those of one prompt after another.
    pub(crate) choices: Vec<Choice>,
    /// Choices of each prompt.
    pub(crate) n: usize,
    /// The receipt for `gristmill replay`, at the end, if the client requests it.
    pub(crate) receipt: Option<Receipt>,
}

/// One completion of a prompt.
#[derive(Debug)]
pub(crate) struct Choice {
    /// The tokens of the prompt.
    pub(crate) prompt: Arc<[u32]>,
    /// Reasoning, texts and calls, in the order of the completion. At the end there is one at least.
    pub(crate) items: Vec<Item>,
    /// One for each generated token, if the client requests them.
    pub(crate) logprobs: Vec<Logprob>,
    /// One for each token of the prompt but the first, if the client requests them.
    pub(crate) prompt_logprobs: Vec<Logprob>,
    /// One for each generated token, if the client requests them.
    pub(crate) traces: Vec<Trace>,
    /// The generated tokens so far.
    pub(crate) tokens: Vec<u32>,
    /// Tokens of reasoning, and of the marks around it.
    pub(crate) reasoning_tokens: usize,
    /// See [`Piece::cache_miss`].
    pub(crate) cache_miss: Option<String>,
    /// At the end.
    pub(crate) finish: Option<Finish>,
    parser: ReplyParser,
    joiner: Joiner,
    /// Nothing follows the first call.
    one_call: bool,
    /// The log-probabilities of tokens whose text the parser withholds.
    withheld: Vec<Logprob>,
}

/// A generated token with its experts.
#[derive(Debug, Clone)]
pub(crate) struct Trace {
    pub(crate) token: u32,
    /// See [`Piece::routing`].
    pub(crate) routing: Vec<Vec<(u32, f32)>>,
}

impl Trace {
    /// The trace of a piece, if the client requests it: a model has at least one layer.
    fn of(piece: &Piece) -> Option<Trace> {
        let Piece { token, routing, .. } = piece;
        (!routing.is_empty()).then(|| Trace { token: *token, routing: routing.clone() })
    }
}

/// A part of a completion.
#[derive(Debug)]
pub(crate) struct Item {
    /// 16 random digits.
    pub(crate) id: String,
    pub(crate) kind: ItemKind,
    /// What separates the text from that of the item of its kind before, where the two are joined.
    pub(crate) separator: &'static str,
    /// The text; of a call its arguments, which are the text of a JSON object.
    pub(crate) text: String,
    /// The log-probabilities of a text's tokens, if the client requests them.
    pub(crate) logprobs: Vec<Logprob>,
    pub(crate) state: ItemState,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ItemKind {
    Reasoning,
    Text,
    /// A call of the tool with this name.
    Call(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ItemState {
    Growing,
    Complete,
    /// Ended by a limit or an error.
    Cut,
}

/// The effect of one token on a reply.
#[derive(Debug)]
pub(crate) struct Step {
    /// The index of the choice.
    pub(crate) choice: usize,
    /// The token.
    pub(crate) token: u32,
    pub(crate) changes: Vec<Change>,
    /// The log-probability of the token, if the client requests it.
    pub(crate) logprob: Option<Logprob>,
    /// The experts of the token, likewise.
    pub(crate) trace: Option<Trace>,
}

/// The effect of one token on the item of an index.
#[derive(Debug)]
pub(crate) enum Change {
    Began(usize),
    /// A text was appended, whose tokens have these log-probabilities. A call grows once.
    Grew(usize, String, Vec<Logprob>),
    Ended(usize),
}

impl Reply {
    pub(crate) fn new(n: usize) -> Reply {
        Reply { choices: Vec::new(), n, receipt: None }
    }

    /// Takes the next piece of a choice.
    pub(crate) fn push(&mut self, choice: usize, piece: Piece) -> Step {
        let token = piece.token;
        let logprob = piece.logprob.clone();
        let trace = Trace::of(&piece);
        let changes = self.choices.get_mut(choice).map(|choice| choice.push(piece)).unwrap_or_default();
        Step { choice, token, changes, logprob, trace }
    }

    /// Ends the items that grow, before the end of the text.
    pub(crate) fn cut(&mut self) {
        self.choices.iter_mut().for_each(|choice| choice.close(ItemState::Cut, &mut Vec::new()));
    }
}

impl Choice {
    pub(crate) fn new(prompt: Arc<[u32]>, parser: ReplyParser, one_call: bool) -> Choice {
        Choice {
            prompt,
            items: Vec::new(),
            logprobs: Vec::new(),
            prompt_logprobs: Vec::new(),
            traces: Vec::new(),
            tokens: Vec::new(),
            reasoning_tokens: 0,
            cache_miss: None,
            finish: None,
            parser,
            joiner: Joiner::default(),
            one_call,
            withheld: Vec::new(),
        }
    }

    /// All text of one kind, joined.
    pub(crate) fn text(&self, kind: &ItemKind) -> String {
        self.items.iter().filter(|item| item.kind == *kind).flat_map(|item| [item.separator, &item.text]).collect()
    }

    /// The calls: their items and the names of their tools.
    pub(crate) fn calls(&self) -> impl Iterator<Item = (&Item, &str)> {
        self.items.iter().filter_map(|item| match &item.kind {
            ItemKind::Call(name) => Some((item, name.as_str())),
            _ => None,
        })
    }

    /// Whether a limit ended it.
    pub(crate) fn is_cut(&self) -> bool {
        self.finish.is_some_and(|finish| finish.reason == FinishReason::Length)
    }

    fn push(&mut self, piece: Piece) -> Vec<Change> {
        self.tokens.push(piece.token);
        self.traces.extend(Trace::of(&piece));
        self.finish = piece.finish;
        let events = self.parse(&piece);
        let Piece { prompt_logprobs, cache_miss, finish, .. } = piece;
        self.prompt_logprobs.extend(prompt_logprobs);
        self.cache_miss = self.cache_miss.take().or(cache_miss);
        let mut changes = Vec::new();
        for event in events {
            if self.one_call && self.calls().next().is_some() {
                break;
            }
            let separator = self.joiner.separator(&event);
            match event {
                ReplyEvent::Reasoning(text) => self.grow(ItemKind::Reasoning, separator, text, &mut changes),
                ReplyEvent::Content(text) => self.grow(ItemKind::Text, separator, text, &mut changes),
                ReplyEvent::ToolCall(call) => {
                    // Each call is an item of its own.
                    self.close(ItemState::Complete, &mut changes);
                    self.grow(ItemKind::Call(call.name), separator, call.arguments, &mut changes);
                    self.close(ItemState::Complete, &mut changes);
                }
                _ => {}
            }
        }
        if finish.is_some() {
            if self.items.is_empty() {
                self.begin(ItemKind::Text, "", &mut changes);
            }
            self.close(if self.is_cut() { ItemState::Cut } else { ItemState::Complete }, &mut changes);
        }
        changes
    }

    /// Parses the text that a token added.
    fn parse(&mut self, piece: &Piece) -> Vec<ReplyEvent> {
        let was_reasoning = self.parser.is_reasoning();
        let events = self.parser.push(piece);
        self.logprobs.extend(piece.logprob.clone());
        if was_reasoning || self.parser.is_reasoning() {
            self.reasoning_tokens += 1;
            self.withheld.clear();
        } else {
            self.withheld.extend(piece.logprob.clone());
        }
        events
    }

    /// Appends to the last item, if it grows and has this kind, or to a new one behind this separator.
    fn grow(&mut self, kind: ItemKind, separator: &'static str, text: String, changes: &mut Vec<Change>) {
        if !self.items.last().is_some_and(|item| item.state == ItemState::Growing && item.kind == kind) {
            self.begin(kind, separator, changes);
        }
        let Some(item) = self.items.last_mut() else { return };
        let withheld = mem::take(&mut self.withheld);
        let logprobs = if item.kind == ItemKind::Text { withheld } else { Vec::new() };
        item.text.push_str(&text);
        item.logprobs.extend_from_slice(&logprobs);
        changes.push(Change::Grew(self.items.len() - 1, text, logprobs));
    }

    fn begin(&mut self, kind: ItemKind, separator: &'static str, changes: &mut Vec<Change>) {
        self.close(ItemState::Complete, changes);
        changes.push(Change::Began(self.items.len()));
        let (text, logprobs, state) = (String::new(), Vec::new(), ItemState::Growing);
        self.items.push(Item { id: random_digits(), kind, separator, text, logprobs, state });
    }

    fn close(&mut self, state: ItemState, changes: &mut Vec<Change>) {
        let last = self.items.len().wrapping_sub(1);
        if let Some(item) = self.items.last_mut().filter(|item| item.state == ItemState::Growing) {
            item.state = state;
            changes.push(Change::Ended(last));
        }
    }
}

/// 16 random digits.
pub(crate) fn random_digits() -> String {
    // The standard library seeds each `RandomState` with system randomness.
    format!("{:016x}", RandomState::new().hash_one(0))
}
