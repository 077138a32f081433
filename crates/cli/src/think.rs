//! Tells a model's thinking from its answer, in whichever of two forms it has:
//! - `<think>…</think>`, then the answer (Qwen, DeepSeek);
//! - messages of several channels (Harmony, gpt-oss): `<|channel|>analysis<|message|>…<|end|>`, then
//!   `<|start|>assistant<|channel|>final<|message|>…`. What is not on the channel `final` is thinking.

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// How the prompt of a model with channels ends.
const TURN: &str = "<|start|>assistant";
const CHANNEL: &str = "<|channel|>";
const MESSAGE: &str = "<|message|>";
/// What ends a message. A model may forget to, hence the last two.
const ENDS: [&str; 5] = ["<|end|>", "<|return|>", "<|call|>", "<|start|>", CHANNEL];

/// Splits a stream of text. Marks may lie across pieces; they are not part of the output.
#[derive(Debug)]
pub(crate) struct Thinking {
    state: State,
    /// Not decided yet: it may be the start of a mark, or belongs to a message's head.
    held: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Only white space so far.
    Start,
    Inside,
    /// The answer, at its beginning, where white space is dropped if there was thinking.
    After,
    Answer,
    /// Before a message, which `said` tells whether it is the first.
    Head {
        said: bool,
    },
    /// In a message of a channel.
    Message {
        is_final: bool,
    },
}

/// A stretch of text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The model thinks.
    Thought(String),
    /// The model answers.
    Answer(String),
}

impl Part {
    fn text(&self) -> &str {
        match self {
            Part::Thought(text) | Part::Answer(text) => text,
        }
    }
}

/// The length of what ends `text` and may be the start of one of these marks.
fn begun(text: &str, marks: &[&str]) -> usize {
    let longest = |mark: &&str| (1..mark.len()).rev().find(|&n| text.ends_with(&mark[..n])).unwrap_or(0);
    marks.iter().map(longest).max().unwrap_or(0)
}

impl Thinking {
    /// For the answer to this prompt, which may have opened the thinking itself.
    pub(crate) fn after(prompt: &str) -> Thinking {
        let prompt = prompt.trim_end();
        let state = match prompt {
            _ if prompt.ends_with(OPEN) => State::Inside,
            _ if prompt.ends_with(TURN) => State::Head { said: false },
            _ => State::Start,
        };
        Thinking { state, held: String::new() }
    }

    /// For a text that is no answer: all of it counts as one.
    pub(crate) fn none() -> Thinking {
        Thinking { state: State::Answer, held: String::new() }
    }

    /// Whether the marks are control tokens, so that the text must come with them.
    pub(crate) fn marks_are_control_tokens(&self) -> bool {
        matches!(self.state, State::Head { .. } | State::Message { .. })
    }

    /// Takes the next text.
    pub(crate) fn push(&mut self, text: &str) -> Vec<Part> {
        self.held.push_str(text);
        let mut parts = Vec::new();
        while self.step(&mut parts) {}
        parts.retain(|part| !part.text().is_empty());
        parts
    }

    /// Decides about what is held as far as possible. Returns whether the state has changed, so that there is more to do.
    fn step(&mut self, parts: &mut Vec<Part>) -> bool {
        let before = self.state;
        match self.state {
            State::Start => {
                let begun = self.held.trim_start();
                if let Some(rest) = begun.strip_prefix(OPEN) {
                    self.held = rest.to_owned();
                    self.state = State::Inside;
                } else if !OPEN.starts_with(begun) {
                    self.state = State::Answer;
                }
            }
            State::Inside => {
                parts.push(Part::Thought(self.take_until(&[CLOSE])));
                if let Some(rest) = self.held.strip_prefix(CLOSE) {
                    self.held = rest.to_owned();
                    self.state = State::After;
                }
            }
            State::After => {
                if !self.held.trim_start().is_empty() {
                    self.held = self.held.trim_start().to_owned();
                    self.state = State::Answer;
                }
            }
            State::Answer => parts.push(Part::Answer(std::mem::take(&mut self.held))),
            State::Head { .. } => {
                if let Some((head, rest)) = self.held.split_once(MESSAGE) {
                    // `<|channel|>final`, `<|channel|>commentary to=functions.x <|constrain|>json`
                    let channel = head.rsplit_once(CHANNEL).map_or("", |(_, channel)| channel);
                    let is_final = channel.split_whitespace().next() == Some("final");
                    self.held = rest.to_owned();
                    self.state = State::Message { is_final };
                }
            }
            State::Message { is_final } => {
                let text = self.take_until(&ENDS);
                parts.push(if is_final { Part::Answer(text) } else { Part::Thought(text) });
                if ENDS.iter().any(|end| self.held.starts_with(end)) {
                    self.state = State::Head { said: true };
                }
            }
        }
        self.state != before
    }

    /// Takes what is held up to the first of these marks, or to what may become one.
    fn take_until(&mut self, marks: &[&str]) -> String {
        let found = marks.iter().filter_map(|mark| self.held.find(mark)).min();
        let at = found.unwrap_or_else(|| self.held.len() - begun(&self.held, marks));
        let rest = self.held.split_off(at);
        std::mem::replace(&mut self.held, rest)
    }

    /// Ends the text and returns what was held.
    pub(crate) fn finish(self) -> Option<Part> {
        match self.state {
            _ if self.held.is_empty() => None,
            State::Inside | State::Message { is_final: false } => Some(Part::Thought(self.held)),
            State::After | State::Head { said: true } => None,
            // Without any mark it is an answer after all.
            State::Head { said: false } if self.held.contains(CHANNEL) => None,
            State::Start | State::Answer | State::Head { .. } | State::Message { .. } => Some(Part::Answer(self.held)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thought and answer, for the text cut into pieces of `n` bytes.
    fn split(prompt: &str, text: &str, n: usize) -> (String, String) {
        let mut thinking = Thinking::after(prompt);
        let mut parts = Vec::new();
        for piece in text.as_bytes().chunks(n) {
            parts.extend(thinking.push(std::str::from_utf8(piece).unwrap()));
        }
        parts.extend(thinking.finish());
        let (mut thought, mut answer) = (String::new(), String::new());
        for part in parts {
            match part {
                Part::Thought(text) => thought += &text,
                Part::Answer(text) => answer += &text,
            }
        }
        (thought, answer)
    }

    #[test]
    fn any_cut_gives_the_same() {
        let turn = "<|start|>user<|message|>Hi<|end|><|start|>assistant";
        let cases = [
            ("", "\n<think>a < b</think>\n\nyes </think>", "a < b", "yes </think>"),
            ("<|im_start|>assistant\n<think>\n", "hm</thin</think>ok", "hm</thin", "ok"),
            ("", "plain <think>x</think>", "", "plain <think>x</think>"),
            ("", "<thin", "", "<thin"),
            ("", "<think>never ends</th", "never ends</th", ""),
            ("", "  two", "", "  two"),
            ("", "", "", ""),
            ("", "<|channel|>final<|message|>x", "", "<|channel|>final<|message|>x"),
            (
                turn,
                "<|channel|>analysis<|message|>a <|b<|end|><|start|>assistant<|channel|>final<|message|> Hi <|",
                "a <|b",
                " Hi <|",
            ),
            (turn, "<|channel|>final<|message|>Hi<|return|>", "", "Hi"),
            (
                turn,
                "<|channel|>commentary to=functions.weigh <|constrain|>json<|message|>{\"kg\": 1}<|call|>",
                "{\"kg\": 1}",
                "",
            ),
            // Ends that were forgotten, heads that stop short, and no channel at all.
            (turn, "<|channel|>analysis<|message|>a<|channel|>final<|message|>b<|start|>assist", "a", "b"),
            (turn, "<|channel|>ana", "", ""),
            (turn, "<|channel|>analysis<|message|>never ends<|en", "never ends<|en", ""),
            (turn, "plain", "", "plain"),
            (turn, "<|message|>no channel", "no channel", ""),
        ];
        for (prompt, text, thought, answer) in cases {
            for n in 1..=text.len().max(1) {
                assert_eq!(split(prompt, text, n), (thought.into(), answer.into()), "{text:?} in pieces of {n}");
            }
        }
    }
}
