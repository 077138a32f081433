//! The reply to a conversation: its events, and its end.

use std::collections::VecDeque;

use gristmill_text::reply::{ParsedReply, Reply, ReplyEvent};
use gristmill_text::template::Chat;

use crate::{
    Canceller, ConverseOptions, Engine, EngineError, Finish, FinishReason, Generation, GenerationOptions, Piece,
};

/// Parses the pieces of one reply. The last piece ends the reply, so it also returns what was withheld until then: a call
/// that only the end completes, or text that could have been the start of a mark.
///
/// [`ReplyStream`] reads pieces with it. Use it directly with [`Engine::deliver`].
#[derive(Debug)]
#[must_use]
pub struct ReplyParser(Reply);

impl ReplyParser {
    pub(super) fn new(reply: Reply) -> ReplyParser {
        ReplyParser(reply)
    }

    /// For a continued text, all of which is content.
    pub fn plain() -> ReplyParser {
        ReplyParser(Reply::plain())
    }

    /// The events of the next piece.
    #[must_use = "events that are not read are lost"]
    pub fn push(&mut self, piece: &Piece) -> Vec<ReplyEvent> {
        let mut events = self.0.push(&piece.text);
        events.extend(match piece.finish.map(|finish| finish.reason) {
            None => Vec::new(),
            Some(FinishReason::Length) => self.0.cut(),
            Some(FinishReason::End | FinishReason::Stop) => self.0.finish(),
        });
        events
    }

    /// Ends a reply that has no last piece, because its generation was cancelled or failed. Returns what was withheld;
    /// nothing after the last piece.
    #[must_use = "events that are not read are lost"]
    pub fn cut(&mut self) -> Vec<ReplyEvent> {
        self.0.cut()
    }

    /// Whether the text so far ends within reasoning.
    pub fn is_reasoning(&self) -> bool {
        self.0.is_reasoning()
    }
}

/// An item of a [`ReplyStream`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[expect(clippy::large_enum_variant, reason = "few events wait at a time, and readers match without a box")]
pub enum StreamEvent {
    /// The next part of the reply.
    Reply(ReplyEvent),
    /// The reply is complete. This is the last item.
    Finish(Finish),
}

/// The reply to a conversation, an iterator of its events ([`Engine::reply`]). The last item is
/// [`StreamEvent::Finish`], or an error. All events of the reply precede it. If the reply is cancelled
/// ([`canceller`](Self::canceller)), the events of the text so far come, then the iterator ends.
///
/// Dropping it cancels the request. `next` and [`wait`](Self::wait) block the thread; asynchronous code uses
/// [`Engine::deliver`] with a [`ReplyParser`].
#[derive(Debug)]
#[must_use = "dropping it cancels the reply"]
pub struct ReplyStream {
    generation: Generation,
    parser: ReplyParser,
    pending: VecDeque<Result<StreamEvent, EngineError>>,
}

impl ReplyStream {
    /// A handle that ends this reply from another thread.
    pub fn canceller(&self) -> Canceller {
        self.generation.canceller()
    }

    /// Waits for the whole reply; it blocks. The [`Finish`] is `None` if the reply was cancelled.
    ///
    /// # Errors
    /// The error that ended the reply.
    pub fn wait(self) -> Result<(ParsedReply, Option<Finish>), EngineError> {
        let mut events = Vec::new();
        let mut end = None;
        for event in self {
            match event? {
                StreamEvent::Reply(event) => events.push(event),
                StreamEvent::Finish(finish) => end = Some(finish),
            }
        }
        Ok((ParsedReply::joined(events), end))
    }
}

impl Iterator for ReplyStream {
    type Item = Result<StreamEvent, EngineError>;

    /// Blocks until the next event. In a callback of the engine it is [`EngineError::InCallback`].
    fn next(&mut self) -> Option<Self::Item> {
        while self.pending.is_empty() {
            let (events, end) = match self.generation.next() {
                Some(Ok(piece)) => (self.parser.push(&piece), piece.finish.map(StreamEvent::Finish).map(Ok)),
                Some(Err(error)) => (self.parser.cut(), Some(Err(error))),
                None => match self.parser.cut() {
                    rest if rest.is_empty() => return None,
                    rest => (rest, None),
                },
            };
            self.pending.extend(events.into_iter().map(StreamEvent::Reply).map(Ok).chain(end));
        }
        self.pending.pop_front()
    }
}

impl Engine {
    /// Starts the reply to a conversation. Rendering the prompt and compiling a grammar block for milliseconds.
    ///
    /// # Errors
    /// The errors of [`converse`](Self::converse) and [`generate`](Self::generate). A later error is the last item of the
    /// iterator.
    pub fn reply(
        &self,
        chat: Chat,
        options: ConverseOptions,
        generation: GenerationOptions,
    ) -> Result<ReplyStream, EngineError> {
        let conversation = self.converse(chat, options)?;
        let generated = self.generate(conversation.request(generation))?;
        Ok(ReplyStream { generation: generated, parser: conversation.parser(), pending: VecDeque::new() })
    }
}
