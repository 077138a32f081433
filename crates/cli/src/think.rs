//! Tells a model's thinking from its answer: `<think>…</think>` at the beginning.

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// Splits a stream of text. Tags may lie across pieces; they are not part of the output.
#[derive(Debug)]
pub(crate) struct Thinking {
    state: State,
    /// May be the start of a tag.
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
}

/// A stretch of text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The model thinks.
    Thought(String),
    /// The model answers.
    Answer(String),
}

impl Thinking {
    /// For the answer to this prompt, which may have opened the thinking itself.
    pub(crate) fn after(prompt: &str) -> Thinking {
        let state = if prompt.trim_end().ends_with(OPEN) { State::Inside } else { State::Start };
        Thinking { state, held: String::new() }
    }

    /// Takes the next text.
    pub(crate) fn push(&mut self, text: &str) -> Vec<Part> {
        self.held.push_str(text);
        let mut parts = Vec::new();
        if self.state == State::Start {
            let begun = self.held.trim_start();
            if let Some(rest) = begun.strip_prefix(OPEN) {
                self.held = rest.to_owned();
                self.state = State::Inside;
            } else if OPEN.starts_with(begun) {
                return parts;
            } else {
                self.state = State::Answer;
            }
        }
        if self.state == State::Inside {
            match self.held.find(CLOSE) {
                Some(at) => {
                    let rest = self.held.split_off(at + CLOSE.len());
                    self.held.truncate(at);
                    parts.push(Part::Thought(std::mem::replace(&mut self.held, rest)));
                    self.state = State::After;
                }
                None => {
                    let keep = (1..CLOSE.len()).rev().find(|&n| self.held.ends_with(&CLOSE[..n])).unwrap_or(0);
                    let kept = self.held.split_off(self.held.len() - keep);
                    parts.push(Part::Thought(std::mem::replace(&mut self.held, kept)));
                }
            }
        }
        if self.state == State::After && !self.held.trim_start().is_empty() {
            self.held = self.held.trim_start().to_owned();
            self.state = State::Answer;
        }
        if self.state == State::Answer {
            parts.push(Part::Answer(std::mem::take(&mut self.held)));
        }
        parts.retain(|part| !matches!(part, Part::Thought(text) | Part::Answer(text) if text.is_empty()));
        parts
    }

    /// Ends the text and returns what was held.
    pub(crate) fn finish(self) -> Option<Part> {
        match self.state {
            _ if self.held.is_empty() => None,
            State::Inside => Some(Part::Thought(self.held)),
            State::After => None,
            State::Start | State::Answer => Some(Part::Answer(self.held)),
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
        let cases = [
            ("", "\n<think>a < b</think>\n\nyes </think>", "a < b", "yes </think>"),
            ("<|im_start|>assistant\n<think>\n", "hm</thin</think>ok", "hm</thin", "ok"),
            ("", "plain <think>x</think>", "", "plain <think>x</think>"),
            ("", "<thin", "", "<thin"),
            ("", "<think>never ends</th", "never ends</th", ""),
            ("", "  two", "", "  two"),
            ("", "", "", ""),
        ];
        for (prompt, text, thought, answer) in cases {
            for n in 1..=text.len().max(1) {
                assert_eq!(split(prompt, text, n), (thought.into(), answer.into()), "{text:?} in pieces of {n}");
            }
        }
    }
}
