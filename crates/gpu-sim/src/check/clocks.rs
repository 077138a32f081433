//! Vector clocks, for blocks that order threads by other means than block barriers.
//!
//! Time is counted in beats per warp. An asynchronous operation is an actor with separate beats. A thread's clock
//! contains, for each actor, the beat before which its accesses are visible. The fenced part is also visible to
//! asynchronous operations (PTX ISA, "Proxies"). Barriers pass clocks from thread to thread.

use super::history::{Beats, Past};
use std::collections::HashMap;

/// An actor: threads by number in the block, then products of its warps, then copies by their barrier in shared memory.
pub(crate) type Actor = u16;
pub(crate) const PRODUCTS: Actor = 1_024;
pub(crate) const COPIES: Actor = PRODUCTS + 32;

/// A vector clock: for each actor the beat before which its accesses are visible.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    known: Vec<u32>,
    /// The part of it that is fenced.
    fenced: Vec<u32>,
}

impl Clock {
    /// Adds what is visible in `other`.
    pub(crate) fn join(&mut self, other: &Self) {
        join(&mut self.known, &other.known);
        join(&mut self.fenced, &other.fenced);
    }

    fn learn(&mut self, column: usize, beat: u32) {
        if self.known.len() <= column {
            self.known.resize(column + 1, 0);
        }
        self.known[column] = self.known[column].max(beat);
    }
}

fn join(mine: &mut Vec<u32>, other: &[u32]) {
    if mine.len() < other.len() {
        mine.resize(other.len(), 0);
    }
    mine.iter_mut().zip(other).for_each(|(mine, &other)| *mine = (*mine).max(other));
}

/// The clocks of a block's threads.
#[derive(Debug)]
pub(super) struct Clocks {
    threads: Vec<Clock>,
}

impl Clocks {
    /// Starts with what the barriers and synchronisations so far have ordered.
    pub(super) fn new(threads: usize, beats: &[Beats]) -> Self {
        let floor: Vec<u32> = (0..threads).map(|thread| beats[thread / 32].floor).collect();
        let mut clocks = Self { threads: vec![Clock { known: floor, fenced: Vec::new() }; threads] };
        for (warp, beats) in beats.iter().enumerate() {
            clocks.converge(warp, u32::MAX, beats.whole);
            beats.parts.iter().for_each(|&(beat, mask)| clocks.converge(warp, mask, beat));
        }
        clocks
    }

    /// The numbers of a warp's lanes in a mask.
    fn lanes(&self, warp: usize, mask: u32) -> impl Iterator<Item = usize> + use<> {
        let all = self.threads.len();
        (0..32).filter(move |lane| mask >> lane & 1 != 0).map(move |lane| warp * 32 + lane).filter(move |&t| t < all)
    }

    /// Makes accesses of a warp's lanes before a beat visible to its other lanes.
    pub(super) fn converge(&mut self, warp: usize, mask: u32, beat: u32) {
        let mut all = Clock::default();
        for thread in self.lanes(warp, mask) {
            all.join(&self.threads[thread]);
            all.learn(thread, beat);
        }
        self.lanes(warp, mask).for_each(|thread| self.threads[thread].clone_from(&all));
    }

    /// Makes all accesses visible to all threads.
    pub(super) fn barrier(&mut self, beats: &[Beats]) {
        let mut all = Clock::default();
        self.threads.iter().for_each(|clock| all.join(clock));
        (0..self.threads.len()).for_each(|thread| all.learn(thread, beats[thread / 32].beat));
        self.threads.fill(all);
    }

    fn column(&self, actor: Actor) -> usize {
        match actor.checked_sub(PRODUCTS) {
            Some(actor) => self.threads.len() + usize::from(actor),
            None => usize::from(actor),
        }
    }

    /// Adds to `clock` what is visible to a thread, and the thread's accesses before this beat.
    pub(super) fn release(&mut self, thread: u32, beat: u32, clock: &mut Clock) {
        let mine = &mut self.threads[thread as usize];
        mine.learn(thread as usize, beat);
        clock.join(mine);
    }

    pub(super) fn acquire(&mut self, thread: u32, clock: &Clock) {
        self.threads[thread as usize].join(clock);
    }

    /// Fences all accesses visible to a thread, and the thread's accesses before this beat.
    pub(super) fn fence(&mut self, thread: u32, beat: u32) {
        let mine = &mut self.threads[thread as usize];
        mine.learn(thread as usize, beat);
        mine.fenced.clone_from(&mine.known);
    }

    /// Makes an actor's accesses before a beat visible to a thread.
    pub(super) fn learn(&mut self, thread: u32, actor: Actor, beat: u32) {
        let column = self.column(actor);
        self.threads[thread as usize].learn(column, beat);
    }

    /// Adds an actor's accesses before a beat to `clock`.
    pub(super) fn publish(&self, actor: Actor, beat: u32, clock: &mut Clock) {
        clock.learn(self.column(actor), beat);
    }

    pub(super) fn knows(&self, thread: u32, past: Past) -> bool {
        self.threads[thread as usize].known.get(self.column(past.actor)).is_some_and(|&beat| past.beat < beat)
    }

    pub(super) fn fenced(&self, thread: u32, actor: Actor, beat: u32) -> bool {
        self.threads[thread as usize].fenced.get(self.column(actor)).is_some_and(|&fenced| beat < fenced)
    }
}

/// Sets of unordered reads of one byte. A cell stores the number of its set.
#[derive(Debug, Default)]
pub(super) struct Readers {
    sets: Vec<Vec<Past>>,
    numbers: HashMap<Vec<Past>, u32>,
    /// The number of a set with one more read. Most bytes are read by the same threads in the same order. Searching for
    /// sets of hundreds of reads took a quarter of the time of checking products.
    larger: HashMap<(u32, Past), u32>,
}

impl Readers {
    pub(super) fn clear(&mut self) {
        self.sets.clear();
        self.numbers.clear();
        self.larger.clear();
    }

    pub(super) fn get(&self, number: u32) -> &[Past] {
        &self.sets[number as usize]
    }

    /// The number of these reads.
    pub(super) fn number(&mut self, reads: Vec<Past>) -> u32 {
        let next = self.sets.len() as u32;
        *self.numbers.entry(reads).or_insert_with_key(|reads| {
            self.sets.push(reads.clone());
            next
        })
    }

    /// The number of these reads and one more.
    pub(super) fn and(&mut self, number: u32, read: Past) -> u32 {
        if let Some(&larger) = self.larger.get(&(number, read)) {
            return larger;
        }
        let larger = self.number([self.get(number), &[read]].concat());
        self.larger.insert((number, read), larger);
        larger
    }
}
