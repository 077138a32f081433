//! The merge loop of byte pair encoding, shared by both tokenizer models.
//!
//! A text starts as a row of symbols. Again and again the best pair of neighbours (lowest rank, then leftmost) becomes
//! one symbol, until no pair can be merged. Candidates wait in a heap and symbols form a linked list in a vector, so
//! `n` symbols take O(n log n) time and O(n) memory, without recursion.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The id of a symbol that is not a token by itself.
pub(super) const NO_ID: u32 = u32::MAX;

/// "None" in the linked list.
const END: u32 = u32::MAX;

/// A part of the text: `len` bytes from `start`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Symbol {
    pub(super) start: u32,
    /// Zero once the symbol was merged into its left neighbour.
    pub(super) len: u32,
    /// The token, or [`NO_ID`].
    pub(super) id: u32,
    prev: u32,
    next: u32,
}

/// A merge that may still be possible. The order of the fields is the order of merging.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    rank: u32,
    left: u32,
    /// Bytes of both symbols when the candidate was found. Symbols only ever grow, so another sum means that either of
    /// them has changed since.
    len: u32,
    id: u32,
}

/// Buffers for merging, reused from word to word.
#[derive(Debug, Default)]
pub(super) struct Merger {
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Reverse<Candidate>>,
}

impl Merger {
    /// Discards all symbols.
    pub(super) fn clear(&mut self) {
        self.symbols.clear();
        self.queue.clear();
    }

    /// Appends a symbol of `len` > 0 bytes. The caller keeps the whole text below 2³² bytes.
    pub(super) fn push(&mut self, len: u32, id: u32) {
        let index = self.symbols.len() as u32;
        let (start, prev) = match self.symbols.last_mut() {
            Some(last) => {
                last.next = index;
                (last.start + last.len, index - 1)
            }
            None => (0, END),
        };
        self.symbols.push(Symbol { start, len, id, prev, next: END });
    }

    /// Merges as long as possible. `find` returns the rank and the token of a pair of neighbours.
    pub(super) fn run(&mut self, find: impl Fn(&Symbol, &Symbol) -> Option<(u32, u32)>) {
        let symbols = &mut self.symbols;
        let candidate = |symbols: &[Symbol], left: u32| {
            let a = &symbols[left as usize];
            let b = symbols.get(a.next as usize)?;
            let (rank, id) = find(a, b)?;
            Some(Reverse(Candidate { rank, left, len: a.len + b.len, id }))
        };
        // Building the heap from a vector is linear, pushing one by one is not.
        let mut first = std::mem::take(&mut self.queue).into_vec();
        first.extend((0..symbols.len() as u32).filter_map(|left| candidate(symbols, left)));
        self.queue = BinaryHeap::from(first);

        while let Some(Reverse(best)) = self.queue.pop() {
            let left = symbols[best.left as usize];
            let Some(&right) = symbols.get(left.next as usize) else {
                continue;
            };
            if left.len == 0 || left.len + right.len != best.len {
                continue;
            }
            symbols[left.next as usize].len = 0;
            if let Some(after) = symbols.get_mut(right.next as usize) {
                after.prev = best.left;
            }
            let merged = &mut symbols[best.left as usize];
            merged.len = best.len;
            merged.id = best.id;
            merged.next = right.next;
            if left.prev != END {
                self.queue.extend(candidate(symbols, left.prev));
            }
            self.queue.extend(candidate(symbols, best.left));
        }
    }

    /// The symbols that are left, in the order of the text.
    pub(super) fn symbols(&self) -> impl Iterator<Item = &Symbol> {
        self.symbols.iter().filter(|symbol| symbol.len != 0)
    }
}
