//! Finite automata of expressions, to find out whether the longest match is the only one.

use std::collections::{BTreeSet, HashMap};

use super::parse::{Grammar, Id, Node};
use super::set::{Alphabet, Set};

/// States of one automaton, and sets of them.
const MAX_STATES: usize = 4_000;
const MAX_SETS: usize = 1_000;

/// What an automaton reads in one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Step {
    /// A class: one of its characters.
    Class(Id),
    /// A text of this expression.
    Lexeme(Id),
    /// A control token.
    Token(Id),
}

/// A set of states, in ascending order.
pub(super) type States = Vec<usize>;

/// An automaton with several states at a time.
#[derive(Debug, Default)]
pub(super) struct Automaton {
    /// From each state, where it goes without reading.
    free: Vec<Vec<usize>>,
    /// From each state, where it goes by reading.
    pub(super) steps: Vec<Vec<(Step, usize)>>,
}

/// How an automaton of a grammar treats its expressions.
pub(super) trait Build {
    /// The step that reads an expression as a whole; `None` if its parts are read.
    fn whole(&self, node: Id) -> Option<Step>;

    /// Whether repetitions and rules are copied, so that the automaton is exact. Otherwise a rule has one copy and goes
    /// on behind each of its uses, so that it accepts more.
    const IS_EXACT: bool;
}

/// An automaton is too large, or all of them take too much time.
#[derive(Debug)]
pub(super) struct TooLarge;

/// Steps of automata that may still be looked at.
#[derive(Debug)]
pub(super) struct Budget(u64);

impl Budget {
    /// About 100 ms.
    pub(super) fn new() -> Budget {
        Budget(20_000_000)
    }

    pub(super) fn spend(&mut self, steps: usize) -> Result<(), TooLarge> {
        self.0 = self.0.checked_sub(steps as u64).ok_or(TooLarge)?;
        Ok(())
    }
}

impl Automaton {
    /// The automaton of an expression, with its first and its last state.
    pub(super) fn new(grammar: &Grammar, node: Id, build: &impl Build) -> Result<(Automaton, usize, usize), TooLarge> {
        let mut builder = Builder { grammar, build, automaton: Automaton::default(), rules: HashMap::new() };
        let start = builder.state()?;
        let end = builder.add(node, start)?;
        Ok((builder.automaton, start, end))
    }

    /// These states, and those that are reached from them without reading.
    pub(super) fn closure(&self, states: impl IntoIterator<Item = usize>) -> States {
        let mut found: BTreeSet<usize> = BTreeSet::new();
        let mut open: Vec<usize> = states.into_iter().collect();
        while let Some(state) = open.pop() {
            if found.insert(state) {
                open.extend(&self.free[state]);
            }
        }
        found.into_iter().collect()
    }

    /// The steps from any of these states.
    pub(super) fn steps_of<'a>(&'a self, states: &'a States) -> impl Iterator<Item = (Step, usize)> + 'a {
        states.iter().flat_map(|&state| self.steps[state].iter().copied())
    }
}

struct Builder<'g, B> {
    grammar: &'g Grammar,
    build: &'g B,
    automaton: Automaton,
    /// The first and last state of each rule that has one copy.
    rules: HashMap<usize, (usize, usize)>,
}

impl<B: Build> Builder<'_, B> {
    fn state(&mut self) -> Result<usize, TooLarge> {
        let Automaton { free, steps } = &mut self.automaton;
        if free.len() == MAX_STATES {
            return Err(TooLarge);
        }
        free.push(Vec::new());
        steps.push(Vec::new());
        Ok(free.len() - 1)
    }

    fn connect(&mut self, from: usize, to: usize) {
        self.automaton.free[from].push(to);
    }

    /// Adds an expression behind a state. Returns its last state.
    fn add(&mut self, node: Id, from: usize) -> Result<usize, TooLarge> {
        let step = match &self.grammar.nodes[node] {
            Node::Class(_) => Some(Step::Class(node)),
            Node::Token(_) => Some(Step::Token(node)),
            _ => self.build.whole(node),
        };
        if let Some(step) = step {
            let to = self.state()?;
            self.automaton.steps[from].push((step, to));
            return Ok(to);
        }
        match &self.grammar.nodes[node] {
            Node::Class(_) | Node::Token(_) => Ok(from),
            Node::Sequence(parts) => parts.iter().try_fold(from, |from, &part| self.add(part, from)),
            Node::Choice(alternatives) => {
                let to = self.state()?;
                for &alternative in alternatives {
                    // A state of its own, so that a loop of one alternative does not lead into another.
                    let first = self.state()?;
                    self.connect(from, first);
                    let last = self.add(alternative, first)?;
                    self.connect(last, to);
                }
                Ok(to)
            }
            Node::Repeat(part, least, most) => self.repeat(*part, *least, *most, from),
            Node::Rule(rule) if B::IS_EXACT => self.add(self.grammar.rules[*rule], from),
            Node::Rule(rule) => {
                let (first, last) = match self.rules.get(rule) {
                    Some(&ends) => ends,
                    None => {
                        let ends = (self.state()?, self.state()?);
                        self.rules.insert(*rule, ends);
                        let last = self.add(self.grammar.rules[*rule], ends.0)?;
                        self.connect(last, ends.1);
                        ends
                    }
                };
                let to = self.state()?;
                self.connect(from, first);
                self.connect(last, to);
                Ok(to)
            }
        }
    }

    fn repeat(&mut self, part: Id, least: u32, most: Option<u32>, from: usize) -> Result<usize, TooLarge> {
        let (least, most) = match B::IS_EXACT {
            true => (least, most),
            // More repetitions than there may be.
            false => (least.min(1), most.filter(|&most| most < 2)),
        };
        let mut last = self.state()?;
        self.connect(from, last);
        for _ in 0..least {
            last = self.add(part, last)?;
        }
        match most {
            None => {
                let first = self.state()?;
                self.connect(last, first);
                let end = self.add(part, first)?;
                self.connect(end, first);
                Ok(first)
            }
            Some(most) => {
                let to = self.state()?;
                self.connect(last, to);
                for _ in least..most {
                    last = self.add(part, last)?;
                    self.connect(last, to);
                }
                Ok(to)
            }
        }
    }
}

/// An expression of characters alone.
struct Exact;

impl Build for Exact {
    fn whole(&self, _: Id) -> Option<Step> {
        None
    }

    const IS_EXACT: bool = true;
}

/// How the texts of an expression start and continue.
#[derive(Debug)]
pub(super) struct Shape {
    /// Characters that start a text.
    pub(super) first: Set,
    /// Characters that follow a text within a longer one.
    pub(super) more: Set,
    /// Whether one text is empty.
    pub(super) is_nullable: bool,
}

impl Shape {
    /// The shape of an expression without recursion.
    pub(super) fn new(
        grammar: &Grammar,
        alphabet: &Alphabet,
        node: Id,
        budget: &mut Budget,
    ) -> Result<Shape, TooLarge> {
        let (automaton, start, end) = Automaton::new(grammar, node, &Exact)?;
        let class = |id: Id| match &grammar.nodes[id] {
            Node::Class(ranges) => alphabet.set(ranges),
            _ => alphabet.empty(),
        };
        let sets: HashMap<Id, Set> = automaton
            .steps
            .iter()
            .flatten()
            .filter_map(|(step, _)| match step {
                Step::Class(id) => Some((*id, class(*id))),
                _ => None,
            })
            .collect();
        let out = |states: &States| {
            let mut out = alphabet.empty();
            for (step, _) in automaton.steps_of(states) {
                if let Step::Class(id) = step {
                    out.add(&sets[&id]);
                }
            }
            out
        };
        let begin = automaton.closure([start]);
        let first = out(&begin);
        let is_nullable = begin.contains(&end);
        let mut more = alphabet.empty();
        let mut known: BTreeSet<States> = BTreeSet::new();
        let mut open = vec![begin];
        while let Some(states) = open.pop() {
            budget.spend(alphabet.len() * (1 + automaton.steps_of(&states).count()))?;
            let mut targets: BTreeSet<Vec<usize>> = BTreeSet::new();
            for group in 0..alphabet.len() {
                let reads = |step: Step| matches!(step, Step::Class(id) if sets[&id].has(group));
                let to: Vec<usize> =
                    automaton.steps_of(&states).filter(|(step, _)| reads(*step)).map(|(_, to)| to).collect();
                if !to.is_empty() {
                    targets.insert(to);
                }
            }
            for target in targets {
                let next = automaton.closure(target);
                budget.spend(next.len())?;
                if next.contains(&end) {
                    more.add(&out(&next));
                }
                if !known.contains(&next) {
                    if known.len() == MAX_SETS {
                        return Err(TooLarge);
                    }
                    known.insert(next.clone());
                    open.push(next);
                }
            }
        }
        Ok(Shape { first, more, is_nullable })
    }
}
