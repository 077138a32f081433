//! Look-ahead at the start of a pattern, `^(?!…)(?=…)…`: a text matches if it matches several patterns without one. A
//! negative one becomes the pattern of all other texts, by an automaton.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;

use regex_syntax::hir::{Class, Hir, HirKind, Look};

/// States of the automata, and bytes of a pattern that is written from one.
const MAX_NODES: usize = 2_000;
const MAX_STATES: usize = 24;
const MAX_BYTES: usize = 2_000;
/// Starts of groups that look around, and of those that look behind.
const AROUND: [&str; 4] = ["(?=", "(?!", "(?<=", "(?<!"];

const PLACE: &str = "look-around is enforced only at the start of a pattern, after `^`, and without `|` outside of groups; \
                     write the pattern without it, or use `format`";

/// The patterns that a text has to match instead of this one, which has the syntax of Rust's crates.
pub(super) fn parts(pattern: &str) -> Result<Vec<String>, String> {
    let Some(mut rest) = pattern.strip_prefix('^').filter(|_| looks_around(pattern)) else {
        return if looks_around(pattern) { Err(PLACE.to_owned()) } else { Ok(vec![pattern.to_owned()]) };
    };
    let mut ahead = Vec::new();
    while let Some(kind) = AROUND[..2].iter().find(|kind| rest.starts_with(**kind)) {
        let end = group_end(rest).ok_or("a group has no end; add `)`")?;
        let inner = &rest[kind.len()..end];
        ahead.push(if *kind == "(?=" { format!("^(?:{inner})") } else { other_texts(inner)? });
        rest = &rest[end + 1..];
    }
    if looks_around(rest) || has_alternatives(rest) || ahead.iter().any(|part| looks_around(part)) {
        return Err(PLACE.to_owned());
    }
    ahead.insert(0, format!("^{rest}"));
    Ok(ahead)
}

/// The characters of a pattern with their places, without escapes and classes.
fn syntax(pattern: &str) -> impl Iterator<Item = (usize, char)> {
    let (mut is_escaped, mut classes) = (false, 0_usize);
    pattern.char_indices().filter(move |&(_, c)| {
        if std::mem::take(&mut is_escaped) {
            return false;
        }
        match c {
            '\\' => is_escaped = true,
            '[' => classes += 1,
            ']' if classes > 0 => classes -= 1,
            _ => return classes == 0,
        }
        false
    })
}

fn looks_around(pattern: &str) -> bool {
    syntax(pattern).any(|(at, _)| AROUND.iter().any(|kind| pattern[at..].starts_with(kind)))
}

/// The place of the parenthesis that ends the group at the start.
fn group_end(pattern: &str) -> Option<usize> {
    let mut depth = 0_usize;
    syntax(pattern).find_map(|(at, c)| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        (depth == 0).then_some(at)
    })
}

fn has_alternatives(pattern: &str) -> bool {
    let mut depth = 0_usize;
    syntax(pattern).any(|(_, c)| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == '|' && depth == 0
    })
}

/// The pattern of the texts that do not start with a match.
fn other_texts(pattern: &str) -> Result<String, String> {
    let hir = regex_syntax::parse(pattern).map_err(|_| PLACE.to_owned())?;
    let mut nodes = Nodes::default();
    let start = nodes.add()?;
    let end = nodes.build(&hir, start)?;
    let automaton = Automaton::new(&nodes, start, end)?;
    automaton.pattern().map(|pattern| format!("^(?:{pattern})$"))
}

fn too_large() -> String {
    "its look-ahead is too complex to be enforced; write the pattern without it".to_owned()
}

/// Where a node goes.
#[derive(Debug)]
enum Edge {
    Free,
    /// Without reading, at the start or at the end of the text.
    At(Look),
    Class(Vec<(char, char)>),
}

/// An automaton with several nodes at a time.
#[derive(Debug, Default)]
struct Nodes(Vec<Vec<(Edge, usize)>>);

impl Nodes {
    fn add(&mut self) -> Result<usize, String> {
        if self.0.len() == MAX_NODES {
            return Err(too_large());
        }
        self.0.push(Vec::new());
        Ok(self.0.len() - 1)
    }

    fn connect(&mut self, from: usize, edge: Edge, to: usize) -> usize {
        self.0[from].push((edge, to));
        to
    }

    fn step(&mut self, from: usize, edge: Edge) -> Result<usize, String> {
        let to = self.add()?;
        Ok(self.connect(from, edge, to))
    }

    /// Adds an expression behind a node. Returns its last node.
    fn build(&mut self, hir: &Hir, from: usize) -> Result<usize, String> {
        match hir.kind() {
            HirKind::Empty => Ok(from),
            HirKind::Literal(text) => {
                let text = std::str::from_utf8(&text.0).map_err(|_| too_large())?;
                text.chars().try_fold(from, |from, c| self.step(from, Edge::Class(vec![(c, c)])))
            }
            HirKind::Class(Class::Unicode(class)) => {
                self.step(from, Edge::Class(class.iter().map(|range| (range.start(), range.end())).collect()))
            }
            HirKind::Look(look @ (Look::Start | Look::End)) => self.step(from, Edge::At(*look)),
            HirKind::Class(Class::Bytes(_)) | HirKind::Look(_) => Err(PLACE.to_owned()),
            HirKind::Capture(capture) => self.build(&capture.sub, from),
            HirKind::Concat(parts) => parts.iter().try_fold(from, |from, part| self.build(part, from)),
            HirKind::Alternation(parts) => {
                let to = self.add()?;
                for part in parts {
                    let first = self.step(from, Edge::Free)?;
                    let last = self.build(part, first)?;
                    self.connect(last, Edge::Free, to);
                }
                Ok(to)
            }
            HirKind::Repetition(repetition) => {
                let mut last = self.step(from, Edge::Free)?;
                for _ in 0..repetition.min {
                    last = self.build(&repetition.sub, last)?;
                }
                let Some(most) = repetition.max else {
                    let first = self.step(last, Edge::Free)?;
                    let end = self.build(&repetition.sub, first)?;
                    return Ok(self.connect(end, Edge::Free, first));
                };
                let to = self.step(last, Edge::Free)?;
                for _ in repetition.min..most {
                    last = self.build(&repetition.sub, last)?;
                    self.connect(last, Edge::Free, to);
                }
                Ok(to)
            }
        }
    }

    /// These nodes, and those that are reached from them without reading.
    fn closure(&self, nodes: impl IntoIterator<Item = usize>, looks: &[Look]) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        let mut open = nodes.into_iter().collect::<Vec<_>>();
        while let Some(node) = open.pop() {
            if found.insert(node) {
                let is_free = |edge: &Edge| match edge {
                    Edge::Free => true,
                    Edge::At(look) => looks.contains(look),
                    Edge::Class(_) => false,
                };
                open.extend(self.0[node].iter().filter(|(edge, _)| is_free(edge)).map(|(_, to)| to));
            }
        }
        found
    }

    /// The first characters of the groups that each class has as a whole or not at all.
    fn groups(&self) -> Vec<char> {
        let after = |c: char| ((u32::from(c) + 1)..=u32::from(char::MAX)).find_map(char::from_u32);
        let mut starts = BTreeSet::from(['\0']);
        for (edge, _) in self.0.iter().flatten() {
            if let Edge::Class(ranges) = edge {
                starts.extend(ranges.iter().flat_map(|&(first, last)| [Some(first), after(last)]).flatten());
            }
        }
        starts.into_iter().collect()
    }
}

/// The automaton of the texts that do not start with a match. State 0 is the first.
struct Automaton {
    /// From each state, the groups that lead to another.
    steps: Vec<HashMap<usize, Vec<usize>>>,
    /// Whether a text may end there.
    ends: Vec<bool>,
    groups: Vec<char>,
}

impl Automaton {
    fn new(nodes: &Nodes, start: usize, end: usize) -> Result<Automaton, String> {
        let groups = nodes.groups();
        let first = nodes.closure([start], &[Look::Start]);
        let (mut steps, mut ends) = (Vec::new(), Vec::new());
        let mut known: HashMap<BTreeSet<usize>, usize> = HashMap::new();
        // The first state alone is at the start of the text, so no other state is the same.
        let mut states = vec![first.clone()];
        if first.contains(&end) {
            return Err("its look-ahead matches every text".to_owned());
        }
        while steps.len() < states.len() {
            let state = states[steps.len()].clone();
            let looks: &[Look] = if steps.is_empty() { &[Look::Start, Look::End] } else { &[Look::End] };
            ends.push(!nodes.closure(state.iter().copied(), looks).contains(&end));
            let mut targets: HashMap<usize, Vec<usize>> = HashMap::new();
            for (group, &c) in groups.iter().enumerate() {
                let has = |ranges: &[(char, char)]| ranges.iter().any(|&(first, last)| (first..=last).contains(&c));
                let reads = |edge: &Edge| matches!(edge, Edge::Class(ranges) if has(ranges));
                let to = state.iter().flat_map(|&node| &nodes.0[node]).filter(|(edge, _)| reads(edge));
                let next = nodes.closure(to.map(|(_, to)| *to), &[]);
                // A text that starts with a match is none of the others.
                if next.contains(&end) {
                    continue;
                }
                let number = *known.entry(next.clone()).or_insert_with(|| {
                    states.push(next);
                    states.len() - 1
                });
                targets.entry(number).or_default().push(group);
            }
            if states.len() > MAX_STATES {
                return Err(too_large());
            }
            steps.push(targets);
        }
        Ok(Automaton { steps, ends, groups })
    }

    /// The class of some groups, in ascending order.
    fn class(&self, groups: &[usize]) -> String {
        let mut class = "[".to_owned();
        let mut rest = groups.iter().copied().peekable();
        while let Some(first) = rest.next() {
            let mut last = first;
            while let Some(next) = rest.next_if_eq(&(last + 1)) {
                last = next;
            }
            let before = |c: char| (0..u32::from(c)).rev().find_map(char::from_u32);
            let end = self.groups.get(last + 1).and_then(|&next| before(next)).unwrap_or(char::MAX);
            // Writing into memory does not fail.
            let _ = write!(class, "\\u{{{:X}}}-\\u{{{:X}}}", u32::from(self.groups[first]), u32::from(end));
        }
        class + "]"
    }

    /// The pattern of all texts that it accepts: its states are removed one by one, and the expressions of the ways
    /// through a state are those between its neighbours.
    fn pattern(&self) -> Result<String, String> {
        let count = self.steps.len();
        // Before the first state, and behind the states at which a text may end.
        let (begin, end) = (count, count + 1);
        let mut ways: HashMap<(usize, usize), String> = HashMap::from([((begin, 0), String::new())]);
        for (from, targets) in self.steps.iter().enumerate() {
            ways.extend(targets.iter().map(|(&to, groups)| ((from, to), self.class(groups))));
            ways.extend(self.ends[from].then(|| ((from, end), String::new())));
        }
        let mut left: Vec<usize> = (0..count).collect();
        while !left.is_empty() {
            let cost = |state: usize| {
                let size = |is_own: fn(&(usize, usize), usize) -> bool| {
                    ways.iter().filter(|(way, _)| is_own(way, state)).map(|(_, text)| text.len() + 1).sum::<usize>()
                };
                size(|way, state| way.1 == state) * size(|way, state| way.0 == state)
            };
            let Some(at) = (0..left.len()).min_by_key(|&at| (cost(left[at]), left[at])) else { break };
            let state = left.swap_remove(at);
            let own = ways.remove(&(state, state)).map_or(String::new(), |text| format!("(?:{text})*"));
            let into: Vec<_> = ways.extract_if(|way, _| way.1 == state).collect();
            let out: Vec<_> = ways.extract_if(|way, _| way.0 == state).collect();
            for ((from, _), before) in &into {
                for ((_, to), after) in &out {
                    let way = format!("{before}{own}{after}");
                    let both = match ways.remove(&(*from, *to)) {
                        Some(other) => format!("(?:{other}|{way})"),
                        None => way,
                    };
                    if both.len() > MAX_BYTES {
                        return Err(too_large());
                    }
                    ways.insert((*from, *to), both);
                }
            }
        }
        ways.remove(&(begin, end)).ok_or_else(|| "its look-ahead matches every text".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar::ecma::translated;
    use proptest::prelude::*;

    /// Of zod 4 and of pydantic 2, and others.
    const PATTERNS: [&str; 9] = [
        r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$",
        r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$",
        r"^(?=.*[A-Z])(?=.*\d).{4,}$",
        r"^(?=.{1,6}\.?$)[a-zA-Z0-9](?:\.[a-zA-Z0-9])*\.?$",
        "^(?!ab|b$)[ab]*$",
        "^(?!(?:a|bb){2,3}c)[abc]*$",
        "^(?!a+$)",
        "^(?!.*(?:ab|bc))(?!.*c$).*$",
        "^(?![^a]|$)[ab.]*",
    ];

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3_000) })]

        /// The crate fancy-regex has look-around.
        #[test]
        fn a_text_matches_all_parts_if_it_matches_the_pattern(
            which in 0..PATTERNS.len(),
            text in "[abc.A1@+\n-]{0,9}|a@b[.][a-c.]{1,4}|[a-c.]{1,3}@b[.]com",
        ) {
            let pattern = translated(PATTERNS[which]).unwrap();
            let expected = fancy_regex::Regex::new(&pattern).unwrap().is_match(&text).unwrap();
            let parts = parts(&pattern).unwrap();
            let all = parts.iter().all(|part| regex::Regex::new(part).unwrap().is_match(&text));
            prop_assert_eq!(all, expected, "{:?} of {}: {:?}", text, PATTERNS[which], parts);
        }
    }

    #[test]
    fn others_are_refused() {
        for pattern in [
            "(?!a)b",
            "^a(?=b)",
            "^(?!a)b|c",
            "^(?!a(?=b))c",
            "^(?<!a)b",
            "^(?!)a",
            "^(?!a",
            "^(?![a-z]{30}b).*$",
            r"^(?!.*[ab].{9}$).*$",
        ] {
            assert!(parts(pattern).is_err(), "{pattern}: {:?}", parts(pattern));
        }
        for pattern in ["^a$", r"\(?=", "[(?=]", "^(?:a|b)(?<name>c)$"] {
            assert_eq!(parts(pattern).as_deref(), Ok(&[pattern.to_owned()][..]));
        }
    }
}
