//! Separates a model's thinking from its answer, in two formats:
//! - `<think>…</think>`, then the answer (Qwen, DeepSeek);
//! - messages on several channels (Harmony, gpt-oss): `<|channel|>analysis<|message|>…<|end|>`, then
//!   `<|start|>assistant<|channel|>final<|message|>…`. Text on any channel but `final` is thinking.

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// The end of a prompt in the Harmony format.
const TURN: &str = "<|start|>assistant";
const CHANNEL: &str = "<|channel|>";
const MESSAGE: &str = "<|message|>";
/// Ends of a message. The last two begin the next message, for a model that omits the end.
const ENDS: [&str; 5] = ["<|end|>", "<|return|>", "<|call|>", "<|start|>", CHANNEL];

/// Splits a stream of text. A mark may span pieces; marks are dropped from the output.
#[derive(Debug)]
pub(crate) struct Thinking {
    state: State,
    /// Undecided text: a possible start of a mark, or the head of a message.
    held: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Only white space so far.
    Start,
    Inside,
    /// After the thinking; white space before the answer is dropped.
    After,
    Answer,
    /// Before a message; `said` is false before the first.
    Head {
        said: bool,
    },
    /// In a message on a channel.
    Message {
        is_final: bool,
    },
}

/// A piece of the output.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    /// Thinking.
    Thought(String),
    /// Answer.
    Answer(String),
}

impl Segment {
    fn text(&self) -> &str {
        match self {
            Segment::Thought(text) | Segment::Answer(text) => text,
        }
    }
}

/// The length of the longest end of `text` that may be the start of a mark.
fn begun(text: &str, marks: &[&str]) -> usize {
    let longest = |mark: &&str| (1..mark.len()).rev().find(|&n| text.ends_with(&mark[..n])).unwrap_or(0);
    marks.iter().map(longest).max().unwrap_or(0)
}

impl Thinking {
    /// For the answer to this prompt, whose end may already open the thinking.
    pub(crate) fn after(prompt: &str) -> Thinking {
        let prompt = prompt.trim_end();
        let state = match prompt {
            _ if prompt.ends_with(OPEN) => State::Inside,
            _ if prompt.ends_with(TURN) => State::Head { said: false },
            _ => State::Start,
        };
        Thinking { state, held: String::new() }
    }

    /// For a continued text, which has no thinking.
    pub(crate) fn none() -> Thinking {
        Thinking { state: State::Answer, held: String::new() }
    }

    /// Whether the marks are control tokens, which the generated text then has to include.
    pub(crate) fn marks_are_control_tokens(&self) -> bool {
        matches!(self.state, State::Head { .. } | State::Message { .. })
    }

    /// Takes the next piece of text.
    pub(crate) fn push(&mut self, text: &str) -> Vec<Segment> {
        self.held.push_str(text);
        let mut segments = Vec::new();
        while self.step(&mut segments) {}
        segments.retain(|segment| !segment.text().is_empty());
        segments
    }

    /// Processes the held text in one state. Returns whether the state changed, which calls for another step.
    fn step(&mut self, segments: &mut Vec<Segment>) -> bool {
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
                segments.push(Segment::Thought(self.take_until(&[CLOSE])));
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
            State::Answer => segments.push(Segment::Answer(std::mem::take(&mut self.held))),
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
                segments.push(if is_final { Segment::Answer(text) } else { Segment::Thought(text) });
                if ENDS.iter().any(|end| self.held.starts_with(end)) {
                    self.state = State::Head { said: true };
                }
            }
        }
        self.state != before
    }

    /// Takes the held text up to the first mark, or up to a possible start of one.
    fn take_until(&mut self, marks: &[&str]) -> String {
        let found = marks.iter().filter_map(|mark| self.held.find(mark)).min();
        let at = found.unwrap_or_else(|| self.held.len() - begun(&self.held, marks));
        let rest = self.held.split_off(at);
        std::mem::replace(&mut self.held, rest)
    }

    /// Ends the text and returns the rest.
    pub(crate) fn finish(self) -> Option<Segment> {
        match self.state {
            _ if self.held.is_empty() => None,
            State::Inside | State::Message { is_final: false } => Some(Segment::Thought(self.held)),
            State::After | State::Head { said: true } => None,
            // A text without marks is an answer.
            State::Head { said: false } if self.held.contains(CHANNEL) => None,
            State::Start | State::Answer | State::Head { .. } | State::Message { .. } => {
                Some(Segment::Answer(self.held))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thought and answer, for the text cut into pieces of `n` bytes.
    fn split(prompt: &str, text: &str, n: usize) -> (String, String) {
        let mut thinking = Thinking::after(prompt);
        let mut segments = Vec::new();
        for piece in text.as_bytes().chunks(n) {
            segments.extend(thinking.push(std::str::from_utf8(piece).unwrap()));
        }
        segments.extend(thinking.finish());
        let (mut thought, mut answer) = (String::new(), String::new());
        for segment in segments {
            match segment {
                Segment::Thought(text) => thought += &text,
                Segment::Answer(text) => answer += &text,
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
