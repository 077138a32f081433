//! The circles of a graph: its strongly connected components of more than one node (Tarjan 1972).

use std::collections::{BTreeMap, BTreeSet};

/// What each node points to.
pub(super) type Edges = BTreeMap<String, BTreeSet<String>>;

pub(super) fn cycles(edges: &Edges) -> Vec<Vec<String>> {
    let mut search =
        Search { edges, number: BTreeMap::new(), low: BTreeMap::new(), stack: Vec::new(), found: Vec::new() };
    for node in edges.keys() {
        if !search.number.contains_key(node.as_str()) {
            search.visit(node);
        }
    }
    search.found.retain(|component| component.len() > 1);
    search.found
}

struct Search<'a> {
    edges: &'a Edges,
    /// In the order of visits.
    number: BTreeMap<&'a str, usize>,
    /// The lowest number on the stack that is reached.
    low: BTreeMap<&'a str, usize>,
    stack: Vec<&'a str>,
    found: Vec<Vec<String>>,
}

impl<'a> Search<'a> {
    fn visit(&mut self, node: &'a str) {
        let number = self.number.len();
        self.number.insert(node, number);
        self.stack.push(node);
        let mut low = number;
        for next in self.edges.get(node).into_iter().flatten() {
            if !self.number.contains_key(next.as_str()) {
                self.visit(next);
                low = low.min(self.low[next.as_str()]);
            } else if self.stack.contains(&next.as_str()) {
                low = low.min(self.number[next.as_str()]);
            }
        }
        self.low.insert(node, low);
        if low == number {
            let start = self.stack.iter().position(|it| *it == node).unwrap_or(0);
            self.found.push(self.stack.split_off(start).into_iter().map(str::to_owned).collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_are_found() {
        let edges = |list: &[(&str, &str)]| {
            let mut edges = Edges::new();
            for (from, to) in list {
                edges.entry((*from).to_owned()).or_default().insert((*to).to_owned());
            }
            let mut found = cycles(&edges);
            found.iter_mut().for_each(|circle| circle.sort());
            found
        };
        assert!(edges(&[("a", "b"), ("b", "c"), ("a", "c")]).is_empty());
        assert_eq!(edges(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e")]), [["a", "b", "c"]]);
        let two = edges(&[("a", "b"), ("b", "a"), ("b", "c"), ("c", "d"), ("d", "c")]);
        assert_eq!(two, [["c", "d"], ["a", "b"]]);
    }
}
