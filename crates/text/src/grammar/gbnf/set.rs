//! Sets of the characters that a grammar distinguishes.

use super::parse::{Grammar, Node, after};

/// The characters of a grammar in groups that each class has as a whole or not at all.
#[derive(Debug)]
pub(super) struct Alphabet {
    /// The first character of each group but the first, in ascending order.
    starts: Vec<char>,
}

/// A set of groups: bit `i % 64` of word `i / 64`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(super) struct Set(Vec<u64>);

impl Alphabet {
    pub(super) fn new(grammar: &Grammar) -> Alphabet {
        let classes = grammar.nodes.iter().filter_map(|node| match node {
            Node::Class(ranges) => Some(ranges),
            _ => None,
        });
        let bounds = classes.flatten().flat_map(|&(first, last)| [Some(first), after(last)]);
        let mut starts: Vec<char> = bounds.flatten().filter(|&c| c != '\0').collect();
        starts.sort_unstable();
        starts.dedup();
        Alphabet { starts }
    }

    /// The number of groups.
    pub(super) fn len(&self) -> usize {
        self.starts.len() + 1
    }

    /// The groups of a class.
    pub(super) fn set(&self, ranges: &[(char, char)]) -> Set {
        let mut set = self.empty();
        let group = |c: char| self.starts.partition_point(|&start| start <= c);
        for &(first, last) in ranges {
            (group(first)..=group(last)).for_each(|group| set.0[group / 64] |= 1 << (group % 64));
        }
        set
    }

    pub(super) fn empty(&self) -> Set {
        Set(vec![0; self.len().div_ceil(64)])
    }
}

impl Set {
    pub(super) fn has(&self, group: usize) -> bool {
        self.0[group / 64] >> (group % 64) & 1 == 1
    }

    pub(super) fn add(&mut self, other: &Set) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word |= other);
    }

    pub(super) fn meets(&self, other: &Set) -> bool {
        self.0.iter().zip(&other.0).any(|(word, other)| word & other != 0)
    }
}
