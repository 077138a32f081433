//! Which expressions are read as one lexeme.
//!
//! The matcher splits a text into lexemes and takes the longest match; a grammar allows every match. With lexemes of
//! one character both agree, because no character is a prefix of another. But then a recursive rule takes a step for
//! each character. So an expression without recursion becomes one lexeme if only its longest match can be followed: the
//! text after it cannot continue it, and no other lexeme at its position starts with the same characters.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::automaton::{Automaton, Budget, Build, Shape, States, Step, TooLarge};
use super::parse::{Grammar, Id, Node};
use super::set::{Alphabet, Set};

/// Sets of states of the automaton of a whole grammar.
const MAX_SETS: usize = 1_000;

/// Which expressions are lexemes.
#[derive(Debug)]
pub(super) struct Lexemes {
    /// For each node, whether no rule in it is recursive and it has no control token.
    regular: Vec<bool>,
    /// The nodes that are regular and no lexemes.
    split: HashSet<Id>,
    /// Whether each is.
    split_all: bool,
}

impl Lexemes {
    pub(super) fn new(grammar: &Grammar) -> Lexemes {
        let regular = Regular::of(grammar);
        let mut lexemes = Lexemes { regular, split: HashSet::new(), split_all: false };
        let root = grammar.rules[grammar.root];
        if lexemes.is_lexeme(grammar, root) {
            return lexemes;
        }
        let alphabet = Alphabet::new(grammar);
        let (mut shapes, mut budget) = (HashMap::new(), Budget::new());
        loop {
            match lexemes.conflicts(grammar, &alphabet, &mut shapes, &mut budget) {
                Ok(found) if found.is_empty() => return lexemes,
                Ok(found) => lexemes.split.extend(found),
                Err(TooLarge) => {
                    lexemes.split_all = true;
                    return lexemes;
                }
            }
        }
    }

    /// Whether an expression of more than a character is read as one lexeme.
    pub(super) fn is_lexeme(&self, grammar: &Grammar, node: Id) -> bool {
        let is_more = !matches!(grammar.nodes[node], Node::Class(_) | Node::Token(_));
        is_more && self.regular[node] && !self.split_all && !self.split.contains(&node)
    }

    /// Whether a regular expression has an empty text.
    pub(super) fn is_nullable(&self, grammar: &Grammar, node: Id) -> bool {
        match &grammar.nodes[node] {
            Node::Class(_) | Node::Token(_) => false,
            Node::Rule(rule) => self.is_nullable(grammar, grammar.rules[*rule]),
            Node::Sequence(parts) => parts.iter().all(|&part| self.is_nullable(grammar, part)),
            Node::Choice(parts) => parts.iter().any(|&part| self.is_nullable(grammar, part)),
            Node::Repeat(part, least, _) => *least == 0 || self.is_nullable(grammar, *part),
        }
    }

    /// Lexemes whose longest match may be the wrong one.
    fn conflicts(
        &self,
        grammar: &Grammar,
        alphabet: &Alphabet,
        shapes: &mut HashMap<Id, Option<Shape>>,
        budget: &mut Budget,
    ) -> Result<BTreeSet<Id>, TooLarge> {
        let whole = Whole { grammar, lexemes: self };
        let (automaton, start, _) = Automaton::new(grammar, grammar.rules[grammar.root], &whole)?;
        let mut conflicts = BTreeSet::new();
        for (step, _) in automaton.steps.iter().flatten() {
            if let Step::Lexeme(id) = step {
                let shape = || Shape::new(grammar, alphabet, *id, budget).ok();
                if shapes
                    .entry(*id)
                    .or_insert_with(shape)
                    .as_ref()
                    .is_none_or(|shape| shape.is_nullable && shape.first == alphabet.empty())
                {
                    conflicts.insert(*id);
                }
            }
        }
        if !conflicts.is_empty() {
            return Ok(conflicts);
        }
        let first = |step: Step| match (step, &grammar.nodes[step.node()]) {
            (Step::Class(_), Node::Class(ranges)) => alphabet.set(ranges),
            (Step::Lexeme(id), _) => shapes[&id].as_ref().map_or_else(|| alphabet.empty(), |shape| shape.first.clone()),
            _ => alphabet.empty(),
        };
        // A lexeme is not empty; where its expression may be, it may be left out.
        let closure = |states: Vec<usize>| -> States {
            let mut states = automaton.closure(states);
            loop {
                let nullable = |step: &Step| matches!(step, Step::Lexeme(id) if shapes[id].as_ref().is_some_and(|shape| shape.is_nullable));
                let behind: Vec<usize> =
                    automaton.steps_of(&states).filter(|(step, _)| nullable(step)).map(|(_, to)| to).collect();
                let more = automaton.closure(states.iter().copied().chain(behind));
                if more.len() == states.len() {
                    return states;
                }
                states = more;
            }
        };
        let firsts = |states: &States| {
            let steps: BTreeSet<Step> = automaton.steps_of(states).map(|(step, _)| step).collect();
            steps.into_iter().map(|step| (step, first(step))).collect::<BTreeMap<Step, Set>>()
        };
        let mut known: HashSet<States> = HashSet::new();
        let mut open = vec![closure(vec![start])];
        while let Some(states) = open.pop() {
            if !known.insert(states.clone()) {
                continue;
            }
            if known.len() > MAX_SETS {
                return Err(TooLarge);
            }
            let here = firsts(&states);
            let steps = automaton.steps_of(&states).count();
            budget.spend(states.len() + steps * (alphabet.len() + here.len()) + here.len() * here.len())?;
            for (&step, set) in &here {
                let Step::Lexeme(id) = step else { continue };
                let clashes = here.iter().any(|(other, others)| *other != step && others.meets(set));
                let next = closure(targets(&automaton, &states, |other| other == step));
                let mut follow = alphabet.empty();
                firsts(&next).values().for_each(|set| follow.add(set));
                let goes_on = shapes[&id].as_ref().is_none_or(|shape| shape.more.meets(&follow));
                if clashes || goes_on {
                    conflicts.insert(id);
                }
                open.push(next);
            }
            for group in 0..alphabet.len() {
                let reads = |step: Step| matches!(step, Step::Class(_)) && here[&step].has(group);
                let to = targets(&automaton, &states, reads);
                if !to.is_empty() {
                    open.push(closure(to));
                }
            }
            for &step in here.keys().filter(|step| matches!(step, Step::Token(_))) {
                open.push(closure(targets(&automaton, &states, |other| other == step)));
            }
        }
        Ok(conflicts)
    }
}

/// Where some steps lead.
fn targets(automaton: &Automaton, states: &States, takes: impl Fn(Step) -> bool) -> Vec<usize> {
    automaton.steps_of(states).filter(|(step, _)| takes(*step)).map(|(_, to)| to).collect()
}

impl Step {
    fn node(self) -> Id {
        match self {
            Step::Class(id) | Step::Lexeme(id) | Step::Token(id) => id,
        }
    }
}

/// A grammar with its lexemes.
struct Whole<'g> {
    grammar: &'g Grammar,
    lexemes: &'g Lexemes,
}

impl Build for Whole<'_> {
    fn whole(&self, node: Id) -> Option<Step> {
        self.lexemes.is_lexeme(self.grammar, node).then_some(Step::Lexeme(node))
    }

    const IS_EXACT: bool = false;
}

/// Finds regular expressions.
struct Regular<'g> {
    grammar: &'g Grammar,
    /// `None` while a rule is looked at: what leads back to it is recursive.
    rules: HashMap<usize, Option<bool>>,
}

impl Regular<'_> {
    fn of(grammar: &Grammar) -> Vec<bool> {
        let mut regular = Regular { grammar, rules: HashMap::new() };
        (0..grammar.nodes.len()).map(|node| regular.node(node)).collect()
    }

    fn rule(&mut self, rule: usize) -> bool {
        if let Some(known) = self.rules.get(&rule) {
            return *known == Some(true);
        }
        self.rules.insert(rule, None);
        let found = self.node(self.grammar.rules[rule]);
        self.rules.insert(rule, Some(found));
        found
    }

    fn node(&mut self, node: Id) -> bool {
        match &self.grammar.nodes[node] {
            Node::Class(_) => true,
            Node::Token(_) => false,
            Node::Rule(rule) => self.rule(*rule),
            Node::Sequence(parts) | Node::Choice(parts) => parts.iter().all(|&part| self.node(part)),
            Node::Repeat(part, ..) => self.node(*part),
        }
    }
}
