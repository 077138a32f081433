//! What a rank has sent and received, and what it knows of the others.

use super::library::{Library, Transfer};
use super::message::{Kind, Message};
use crate::Error;
use std::collections::VecDeque;
use std::time::Duration;

/// Buffers that are kept for each rank.
const SPARE: usize = 4;
/// A rank that shows no sign of life for this long hangs. All ranks must end within five seconds.
const SILENCE: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(super) struct State {
    pub(super) library: Library,
    pub(super) sends: Vec<(usize, Transfer)>,
    /// Messages that are being received, in the order in which each rank sent them.
    pub(super) arriving: Vec<VecDeque<Transfer>>,
    pub(super) calls: Vec<VecDeque<Message>>,
    pub(super) mail: Vec<VecDeque<Message>>,
    /// Buffers of earlier messages.
    pub(super) spare: Vec<Vec<u8>>,
    pub(super) has_left: Vec<bool>,
    pub(super) failure: Option<Error>,
    /// How long nothing has come from each rank, while this process ran.
    silence: Vec<Duration>,
    /// The last sign of life to each rank, until it is sent.
    pulses: Vec<Option<Transfer>>,
}

impl State {
    pub(super) fn new(library: Library) -> Self {
        let size = library.size;
        let queues = || (0..size).map(|_| VecDeque::new()).collect();
        Self {
            sends: Vec::new(),
            arriving: (0..size).map(|_| VecDeque::new()).collect(),
            calls: queues(),
            mail: queues(),
            spare: Vec::new(),
            has_left: vec![false; size],
            failure: None,
            silence: vec![Duration::ZERO; size],
            pulses: (0..size).map(|_| None).collect(),
            library,
        }
    }

    /// Sends each other rank a sign of life, and counts the time in which none came. A rank that does not receive gets one only, so
    /// that signs never keep back a call.
    pub(super) fn pulse(&mut self, elapsed: Duration) -> Result<(), Error> {
        self.advance()?;
        for to in (0..self.library.size).filter(|rank| *rank != self.library.rank) {
            self.silence[to] += elapsed;
            let is_free = match &mut self.pulses[to] {
                Some(transfer) => self.library.is_done(transfer)?,
                None => true,
            };
            if is_free && !self.has_left[to] {
                let bytes = self.pulses[to].take().map(Transfer::into_bytes).unwrap_or_default();
                self.pulses[to] = Some(self.library.send(to, Message::write(bytes, Kind::Pulse, &[]))?);
            }
        }
        Ok(())
    }

    /// A rank that hangs: nothing has come from it for too long.
    pub(super) fn silent(&self) -> Option<Error> {
        let rank = (0..self.silence.len()).find(|&rank| self.silence[rank] > SILENCE && !self.has_left[rank])?;
        let seconds = SILENCE.as_secs();
        Some(Error::Lost {
            rank,
            reason: format!("it has shown no sign of life for {seconds} s: it hangs, or the network is cut"),
        })
    }

    pub(super) fn send(&mut self, to: usize, kind: Kind, body: &[u8]) -> Result<(), Error> {
        let bytes = Message::write(self.spare.pop().unwrap_or_default(), kind, body);
        if to == self.library.rank {
            self.accept(to, bytes);
        } else {
            self.sends.push((to, self.library.send(to, bytes)?));
        }
        Ok(())
    }

    /// Receives what has come.
    pub(super) fn advance(&mut self) -> Result<(), Error> {
        while let Some((from, transfer)) = self.library.next(&mut self.spare)? {
            self.silence[from] = Duration::ZERO;
            self.arriving[from].push_back(transfer);
        }
        self.spare.truncate(SPARE * self.arriving.len());
        let mut at = 0;
        while at < self.sends.len() {
            if self.library.is_done(&mut self.sends[at].1)? {
                self.spare.push(self.sends.swap_remove(at).1.into_bytes());
            } else {
                at += 1;
            }
        }
        for from in 0..self.arriving.len() {
            while let Some(first) = self.arriving[from].front_mut()
                && self.library.is_done(first)?
            {
                let bytes = self.arriving[from].pop_front().map(Transfer::into_bytes).unwrap_or_default();
                self.accept(from, bytes);
            }
        }
        Ok(())
    }

    fn accept(&mut self, from: usize, bytes: Vec<u8>) {
        let Some(message) = Message::read(bytes) else {
            let reason = "it sent no message of this program".into();
            self.failure.get_or_insert(Error::Lost { rank: from, reason });
            return;
        };
        match message.kind {
            Kind::Call(_) => self.calls[from].push_back(message),
            Kind::Sent => self.mail[from].push_back(message),
            Kind::Pulse => self.spare.push(message.into_bytes()),
            Kind::End => self.has_left[from] = true,
            Kind::Failure { rank } => {
                let reason = String::from_utf8_lossy(message.body()).into_owned();
                self.failure.get_or_insert(Error::Lost { rank, reason });
            }
        }
    }
}
