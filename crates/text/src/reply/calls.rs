//! The common part of the forms whose tool calls are within a reply's content.

use super::call::ToolCall;
use super::follow::Follow;
use super::input::Input;

/// A reader of one or several calls.
pub(super) trait Calls: std::fmt::Debug + Send + Sync {
    /// The marks that announce calls, anywhere in the content.
    fn marks(&self) -> &[&'static str];

    /// The characters with which a reply may start that is a call without a mark.
    fn unmarked(&self) -> &[char] {
        &[]
    }

    /// What may follow the call that was read last, if a bracket ended it.
    fn follow(&self) -> Follow;

    /// Calls begin: the input is after the mark of this index, or at the first character of an unmarked call.
    fn begin(&mut self, mark: Option<usize>, input: &mut Input);

    /// Reads on.
    fn read(&mut self, input: &mut Input) -> Read;

    /// All text is read, and the model ended it here. Never [`Read::More`].
    fn finish(&mut self, input: &mut Input) -> Read {
        self.cut(input)
    }

    /// Reads on before this.
    fn read_before(&mut self, follows: Follows, input: &mut Input) -> Read {
        match (follows, self.read(input)) {
            (Follows::End, Read::More) => self.finish(input),
            (Follows::Cut, Read::More) => self.cut(input),
            (_, read) => read,
        }
    }

    /// The text ends: in a call, or after calls.
    fn cut(&mut self, input: &mut Input) -> Read {
        input.advance_to_end();
        if self.is_within_call() { Read::Malformed } else { Read::End }
    }

    /// Whether a call has started that is not complete. Otherwise what is read only ends or separates calls.
    fn is_within_call(&self) -> bool;
}

/// What follows the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Follows {
    More,
    /// The end of the reply.
    End,
    /// The end of the reply at a limit.
    Cut,
}

/// The result of reading calls.
#[derive(Debug)]
pub(super) enum Read {
    /// All text: more is needed.
    More,
    /// A whole call. More may follow.
    Call(ToolCall),
    /// The calls have ended; what is not read is content.
    End,
    /// Text that is no call.
    Malformed,
}
