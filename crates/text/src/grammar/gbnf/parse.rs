//! Reads GBNF: the grammars of llama.cpp's server, with the parts of XGrammar's EBNF that mean the same.

use std::collections::HashMap;
use std::iter::Peekable;
use std::str::Chars;

use crate::grammar::GrammarError;

/// Bytes of a grammar.
const MAX_TEXT: usize = 64 << 10;
/// Rules, and different expressions.
const MAX_RULES: usize = 1_000;
const MAX_NODES: usize = 10_000;
/// Groups within groups.
const MAX_DEPTH: usize = 100;
/// The largest number of a repetition.
const MAX_REPEAT: u32 = 10_000;

/// The index of a node in [`Grammar::nodes`].
pub(super) type Id = usize;

/// An expression.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Node {
    /// One of the characters in these ranges, which are sorted and apart. There is at least one.
    Class(Vec<(char, char)>),
    /// A control token, as Lark writes it.
    Token(String),
    /// The rule of this index.
    Rule(usize),
    Sequence(Vec<Id>),
    Choice(Vec<Id>),
    Repeat(Id, u32, Option<u32>),
}

/// A grammar.
#[derive(Debug, Default)]
pub(super) struct Grammar {
    /// All expressions; equal ones have one index.
    pub(super) nodes: Vec<Node>,
    /// The expression of each rule.
    pub(super) rules: Vec<Id>,
    /// The index of the rule `root`.
    pub(super) root: usize,
}

/// A rule that is named somewhere.
#[derive(Debug)]
struct Named {
    name: String,
    /// The line in which it is named first.
    line: usize,
    /// The line in which it is defined, and what it is.
    defined: Option<(usize, Id)>,
}

/// Reads a grammar.
///
/// # Errors
/// [`GrammarError::Refused`] with the line.
pub(super) fn parse(text: &str) -> Result<Grammar, GrammarError> {
    if text.len() > MAX_TEXT {
        let reason = format!("it has {} bytes; at most {MAX_TEXT} are accepted", text.len());
        return Err(GrammarError::Refused(reason));
    }
    let rest = text.chars().peekable();
    let mut parser = Parser { rest, line: 1, nodes: Vec::new(), ids: HashMap::new(), rules: Vec::new() };
    parser.grammar().map_err(|(line, problem)| GrammarError::Refused(format!("line {line}: {problem}")))
}

/// What is wrong in a line.
type Wrong = (usize, String);

struct Parser<'t> {
    rest: Peekable<Chars<'t>>,
    line: usize,
    nodes: Vec<Node>,
    ids: HashMap<Node, Id>,
    rules: Vec<Named>,
}

impl Parser<'_> {
    fn grammar(&mut self) -> Result<Grammar, Wrong> {
        self.space();
        let mut name = if self.rest.peek().is_some() { Some(self.name()?) } else { None };
        while let Some(rule) = name {
            let line = self.line;
            self.space();
            if !self.is_defined_next() {
                return self.wrong(format!("the rule {rule} has no `::=`; write `{rule} ::= …`"));
            }
            let next;
            let body;
            (body, next) = self.choice(0)?;
            let index = self.rule(&rule)?;
            if let Some((before, _)) = self.rules[index].defined {
                return Err((line, format!("the rule {rule} is defined a second time; line {before} defines it")));
            }
            self.rules[index].defined = Some((line, body));
            name = next;
        }
        let Some(root) = self.rules.iter().position(|rule| rule.name == "root" && rule.defined.is_some()) else {
            return self.wrong("there is no rule `root`; write `root ::= …`".to_owned());
        };
        let rules = self.rules.iter().map(|rule| match rule.defined {
            Some((_, body)) => Ok(body),
            None => Err((rule.line, format!("the rule {} is not defined; write `{} ::= …`", rule.name, rule.name))),
        });
        let rules = rules.collect::<Result<_, Wrong>>()?;
        Ok(Grammar { nodes: std::mem::take(&mut self.nodes), rules, root })
    }

    fn wrong<T>(&self, problem: String) -> Result<T, Wrong> {
        Err((self.line, problem))
    }

    fn next(&mut self) -> Option<char> {
        let next = self.rest.next();
        self.line += usize::from(next == Some('\n'));
        next
    }

    /// Passes over white space and comments.
    fn space(&mut self) {
        while let Some(&c) = self.rest.peek() {
            match c {
                ' ' | '\t' | '\r' | '\n' => drop(self.next()),
                '#' => while self.rest.peek().is_some_and(|&c| c != '\n') && self.next().is_some() {},
                _ => return,
            }
        }
    }

    fn name(&mut self) -> Result<String, Wrong> {
        let mut name = String::new();
        while let Some(c) = self.rest.next_if(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')) {
            name.push(c);
        }
        if name.is_empty() {
            let problem = match self.rest.peek() {
                Some(c) => format!("`{c}` is not expected here"),
                None => "the grammar ends where a rule or an expression is expected".to_owned(),
            };
            return self.wrong(problem);
        }
        Ok(name)
    }

    /// Takes `::=`, if it follows.
    fn is_defined_next(&mut self) -> bool {
        let mut ahead = self.rest.clone();
        let is_next = [':', ':', '='].into_iter().all(|c| ahead.next() == Some(c));
        if is_next {
            self.rest = ahead;
        }
        is_next
    }

    /// The index of a rule.
    fn rule(&mut self, name: &str) -> Result<usize, Wrong> {
        if let Some(index) = self.rules.iter().position(|rule| rule.name == name) {
            return Ok(index);
        }
        if self.rules.len() == MAX_RULES {
            return self.wrong(format!("there are more than {MAX_RULES} rules; use fewer"));
        }
        self.rules.push(Named { name: name.to_owned(), line: self.line, defined: None });
        Ok(self.rules.len() - 1)
    }

    fn node(&mut self, node: Node) -> Result<Id, Wrong> {
        if let Some(&id) = self.ids.get(&node) {
            return Ok(id);
        }
        if self.nodes.len() == MAX_NODES {
            return self.wrong(format!("there are more than {MAX_NODES} expressions; use fewer"));
        }
        self.ids.insert(node.clone(), self.nodes.len());
        self.nodes.push(node);
        Ok(self.nodes.len() - 1)
    }

    fn sequence_of(&mut self, mut parts: Vec<Id>) -> Result<Id, Wrong> {
        match parts.len() {
            1 => Ok(parts.remove(0)),
            _ => self.node(Node::Sequence(parts)),
        }
    }

    /// Reads alternatives, to the end of a group or a rule; and the name of the rule that follows.
    fn choice(&mut self, depth: usize) -> Result<(Id, Option<String>), Wrong> {
        if depth > MAX_DEPTH {
            return self.wrong(format!("groups are nested more than {MAX_DEPTH} deep; write rules instead"));
        }
        let (first, mut next) = self.sequence(depth)?;
        let mut alternatives = vec![first];
        while next.is_none() && self.rest.next_if_eq(&'|').is_some() {
            let alternative;
            (alternative, next) = self.sequence(depth)?;
            alternatives.push(alternative);
        }
        let choice = match alternatives.len() {
            1 => first,
            _ => self.node(Node::Choice(alternatives))?,
        };
        Ok((choice, next))
    }

    /// Reads one alternative; and the name of the rule that follows.
    fn sequence(&mut self, depth: usize) -> Result<(Id, Option<String>), Wrong> {
        let mut parts: Vec<Id> = Vec::new();
        let mut next = None;
        loop {
            self.space();
            let Some(&c) = self.rest.peek() else { break };
            let part = match c {
                '|' | ')' if c == '|' || depth > 0 => break,
                '"' => self.text()?,
                '[' => self.class()?,
                '.' => {
                    self.next();
                    self.node(Node::Class(vec![('\0', char::MAX)]))?
                }
                '<' => self.token()?,
                '(' => {
                    self.next();
                    let line = self.line;
                    let (group, _) = self.choice(depth + 1)?;
                    if self.rest.next_if_eq(&')').is_none() {
                        return Err((line, "a group has no end; add `)`".to_owned()));
                    }
                    group
                }
                '*' | '+' | '?' | '{' => match parts.pop() {
                    Some(part) => self.repeated(part)?,
                    None => return self.wrong(format!("`{c}` repeats nothing; write what it repeats before it")),
                },
                '!' => return self.wrong("`!` is not supported; list what is allowed".to_owned()),
                _ => {
                    let name = self.name()?;
                    self.space();
                    if depth == 0 && self.starts_definition() {
                        next = Some(name);
                        break;
                    }
                    let rule = self.rule(&name)?;
                    self.node(Node::Rule(rule))?
                }
            };
            parts.push(part);
        }
        Ok((self.sequence_of(parts)?, next))
    }

    fn starts_definition(&self) -> bool {
        let mut ahead = self.rest.clone();
        [':', ':', '='].into_iter().all(|c| ahead.next() == Some(c))
    }

    /// Reads a repetition of the part before it.
    fn repeated(&mut self, part: Id) -> Result<Id, Wrong> {
        let (least, most) = match self.next() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            _ => self.braces()?,
        };
        self.node(Node::Repeat(part, least, most))
    }

    /// `m}`, `m,}`, `,n}` or `m,n}`.
    fn braces(&mut self) -> Result<(u32, Option<u32>), Wrong> {
        let least = self.number()?;
        self.space();
        let range = match self.rest.next_if_eq(&',') {
            None => (least, least),
            Some(_) => (Some(least.unwrap_or(0)), self.number()?),
        };
        self.space();
        match (range, self.rest.next_if_eq(&'}')) {
            ((Some(least), most), Some(_)) if most.is_none_or(|most| least <= most) => Ok((least, most)),
            ((Some(least), Some(most)), Some(_)) => {
                self.wrong(format!("`{{{least},{most}}}` has the larger number first; swap them"))
            }
            _ => self.wrong("a repetition is `{m}`, `{m,}` or `{m,n}`, with whole numbers".to_owned()),
        }
    }

    fn number(&mut self) -> Result<Option<u32>, Wrong> {
        self.space();
        let mut number = None;
        while let Some(digit) = self.rest.peek().and_then(|c| c.to_digit(10)) {
            self.next();
            let value = number.unwrap_or(0) * 10 + digit;
            if value > MAX_REPEAT {
                return self.wrong(format!("a repetition has a number above {MAX_REPEAT}; use a smaller one"));
            }
            number = Some(value);
        }
        Ok(number)
    }

    /// Reads a text in quotes.
    fn text(&mut self) -> Result<Id, Wrong> {
        self.next();
        let line = self.line;
        let mut parts = Vec::new();
        loop {
            match self.rest.peek() {
                None | Some('\n') => return Err((line, "a text has no end; add `\"`".to_owned())),
                Some('"') => {
                    self.next();
                    return self.sequence_of(parts);
                }
                Some(_) => {
                    let c = self.character()?;
                    parts.push(self.node(Node::Class(vec![(c, c)]))?);
                }
            }
        }
    }

    /// Reads a class of characters.
    fn class(&mut self) -> Result<Id, Wrong> {
        self.next();
        let line = self.line;
        let negated = self.rest.next_if_eq(&'^').is_some();
        let mut ranges = Vec::new();
        loop {
            match self.rest.peek() {
                None | Some('\n') => return Err((line, "a class has no end; add `]`".to_owned())),
                Some(']') => break,
                Some(_) => {}
            }
            let first = self.character()?;
            let mut ahead = self.rest.clone();
            let is_range = ahead.next() == Some('-') && ahead.next().is_some_and(|c| c != ']');
            let last = match is_range {
                true => {
                    self.next();
                    self.character()?
                }
                false => first,
            };
            if first > last {
                return self
                    .wrong(format!("the range {first:?} to {last:?} has the larger character first; swap them"));
            }
            ranges.push((first, last));
        }
        self.next();
        let ranges = merged(ranges);
        let ranges = if negated { others(&ranges) } else { ranges };
        if ranges.is_empty() {
            return self.wrong("a class has no characters; write those that it allows".to_owned());
        }
        self.node(Node::Class(ranges))
    }

    /// Reads one character of a text or a class, which may be escaped.
    fn character(&mut self) -> Result<char, Wrong> {
        let c = self.next().unwrap_or_default();
        if c != '\\' {
            return Ok(c);
        }
        let Some(c) = self.next() else { return self.wrong("the grammar ends with a backslash".to_owned()) };
        let digits = match c {
            'n' => return Ok('\n'),
            'r' => return Ok('\r'),
            't' => return Ok('\t'),
            '\\' | '"' | '\'' | '[' | ']' | '-' | '^' | '/' => return Ok(c),
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => {
                return self
                    .wrong(format!("`\\{c}` is no escape; use \\n, \\t, \\r, \\\\, \\\", \\[, \\], \\xHH or \\uHHHH"));
            }
        };
        let mut code = 0u32;
        for _ in 0..digits {
            match self.rest.peek().and_then(|c| c.to_digit(16)) {
                Some(digit) => code = code.wrapping_mul(16) + digit,
                None => return self.wrong(format!("`\\{c}` needs {digits} hexadecimal digits")),
            }
            self.next();
        }
        char::from_u32(code).map_or_else(|| self.wrong(format!("`\\{c}{code:x}` is no character")), Ok)
    }

    /// Reads `<name>` or `<[id]>`.
    fn token(&mut self) -> Result<Id, Wrong> {
        let mut token = String::new();
        while let Some(c) = self.rest.next_if(|c| !c.is_whitespace()) {
            token.push(c);
            if c == '>' {
                return self.node(Node::Token(token));
            }
        }
        self.wrong("a control token is written `<name>` or `<[id]>`".to_owned())
    }
}

/// Sorted ranges that do not touch.
fn merged(mut ranges: Vec<(char, char)>) -> Vec<(char, char)> {
    ranges.sort_unstable();
    let mut merged: Vec<(char, char)> = Vec::new();
    for (first, last) in ranges {
        match merged.last_mut() {
            Some((_, end)) if first <= *end || after(*end) == Some(first) => *end = last.max(*end),
            _ => merged.push((first, last)),
        }
    }
    merged
}

/// All characters outside of merged ranges.
fn others(ranges: &[(char, char)]) -> Vec<(char, char)> {
    let mut others = Vec::new();
    let mut from = Some('\0');
    for &(first, last) in ranges {
        if let (Some(from), Some(until)) = (from, before(first))
            && from <= until
        {
            others.push((from, until));
        }
        from = after(last);
    }
    others.extend(from.map(|from| (from, char::MAX)));
    others
}

/// The next character; surrogates are none.
pub(super) fn after(c: char) -> Option<char> {
    (c..=char::MAX).nth(1)
}

fn before(c: char) -> Option<char> {
    ('\0'..c).next_back()
}
