//! Messages between ranks: a header of two numbers, then the values.

use crate::call::{ALL_GATHER, ALL_REDUCE, BROADCAST, Call, SEND};

/// What a message is for. Its number is in the header.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    /// A part of a call that all ranks make.
    Call(Call),
    /// Values of a [`send`](crate::Collective::send).
    Sent,
    /// The group failed: the rank that is lost, and why as text.
    Failure { rank: usize },
    /// The rank ends, and makes no more calls.
    End,
    /// The rank lives.
    Pulse,
}

const HEADER: usize = 16;
const OPERATIONS: [&str; 3] = [ALL_REDUCE, ALL_GATHER, BROADCAST];
const SENT: u64 = 3;
const FAILURE: u64 = 4;
const END: u64 = 5;
const PULSE: u64 = 6;

#[derive(Debug)]
pub(super) struct Message {
    pub(super) kind: Kind,
    bytes: Vec<u8>,
}

impl Message {
    pub(super) fn body(&self) -> &[u8] {
        &self.bytes[HEADER..]
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// A message that was received; `None` if another program sent it.
    pub(super) fn read(bytes: Vec<u8>) -> Option<Self> {
        let number = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        let (kind, number) = (number(0)?, usize::try_from(number(8)?).ok()?);
        let kind = match kind {
            SENT => Kind::Sent,
            FAILURE => Kind::Failure { rank: number },
            END => Kind::End,
            PULSE => Kind::Pulse,
            operation => {
                let operation = OPERATIONS.get(usize::try_from(operation).ok()?)?;
                Kind::Call(Call { operation, number })
            }
        };
        Some(Self { kind, bytes })
    }

    /// The bytes to send, in a buffer whose content is replaced.
    pub(super) fn write(mut bytes: Vec<u8>, kind: Kind, body: &[u8]) -> Vec<u8> {
        let (kind, number) = match kind {
            Kind::Call(call) => {
                let operation = OPERATIONS.iter().position(|name| *name == call.operation);
                (operation.map_or(END, |operation| operation as u64), call.number)
            }
            Kind::Sent => (SENT, 0),
            Kind::Failure { rank } => (FAILURE, rank),
            Kind::End => (END, 0),
            Kind::Pulse => (PULSE, 0),
        };
        bytes.clear();
        bytes.reserve_exact(HEADER + body.len());
        bytes.extend(kind.to_le_bytes());
        bytes.extend((number as u64).to_le_bytes());
        bytes.extend(body);
        bytes
    }

    /// What the sender called, for errors.
    pub(super) fn describe(&self) -> Call {
        match self.kind {
            Kind::Call(call) => call,
            _ => Call { operation: SEND, number: self.body().len() / size_of::<f32>() },
        }
    }
}
