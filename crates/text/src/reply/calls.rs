//! The common part of the forms whose tool calls stand within a reply's content.

use super::call::ToolCall;
use super::input::Input;

/// A reader of one or several calls.
pub(super) trait Calls: std::fmt::Debug + Send + Sync {
    /// The marks that announce calls, anywhere in the content.
    fn marks(&self) -> &[&'static str];

    /// The characters with which a reply may begin that is a call without a mark.
    fn unmarked(&self) -> &[char] {
        &[]
    }

    /// Calls begin: the input stands after the mark of this index, or at the first character of an unmarked call.
    fn begin(&mut self, mark: Option<usize>, input: &mut Input);

    /// Reads on.
    fn read(&mut self, input: &mut Input) -> Read;

    /// Whether a call has begun that is not complete. Otherwise what is read only ends or separates calls.
    fn is_within_call(&self) -> bool;
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
