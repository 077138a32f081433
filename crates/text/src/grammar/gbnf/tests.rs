//! Random grammars next to a recogniser that follows their definition; what is refused; published grammars.

use super::lexemes::Lexemes;
use super::parse::{Grammar as Parsed, Id, Node, parse};
use super::{is_gbnf, lark};
use crate::grammar::tests::{Compiler, Random};
use crate::grammar::{Grammar, GrammarError};
use std::collections::{BTreeSet, HashMap};

/// The grammar of JSON that llama.cpp's server ships has this shape.
const JSON: &str = r#"
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws  # a comment

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws

ws ::= | " " | "\n" [ \t]{0,20}
"#;

/// Where texts of an expression end that start at each place of a text. Grows until it does not change, so left
/// recursion is no loop.
struct Recogniser<'g> {
    grammar: &'g Parsed,
    text: Vec<char>,
    ends: HashMap<(Id, usize), BTreeSet<usize>>,
}

impl Recogniser<'_> {
    fn accepts(grammar: &Parsed, text: &str) -> bool {
        let mut own = Recogniser { grammar, text: text.chars().collect(), ends: HashMap::new() };
        let root = grammar.rules[grammar.root];
        loop {
            let before: usize = own.ends.values().map(BTreeSet::len).sum();
            let ends = own.step(root, 0, &mut BTreeSet::new());
            if before == own.ends.values().map(BTreeSet::len).sum::<usize>() {
                return ends.contains(&own.text.len());
            }
        }
    }

    /// Each expression is looked at once for each place, in one round.
    fn step(&mut self, node: Id, from: usize, seen: &mut BTreeSet<(Id, usize)>) -> BTreeSet<usize> {
        if !seen.insert((node, from)) {
            return self.ends.get(&(node, from)).cloned().unwrap_or_default();
        }
        let grammar = self.grammar;
        let mut found = BTreeSet::new();
        match &grammar.nodes[node] {
            Node::Class(ranges) => {
                let is_in = |c: &char| ranges.iter().any(|(first, last)| first <= c && c <= last);
                found.extend(self.text.get(from).filter(|c| is_in(c)).map(|_| from + 1));
            }
            Node::Token(_) => {}
            Node::Rule(rule) => found = self.step(grammar.rules[*rule], from, seen),
            Node::Sequence(parts) => {
                found.insert(from);
                for &part in parts {
                    found = found.iter().flat_map(|&at| self.step(part, at, seen)).collect();
                }
            }
            Node::Choice(parts) => {
                parts.iter().for_each(|&part| found.extend(self.step(part, from, seen)));
            }
            Node::Repeat(part, least, most) => {
                let mut reached = BTreeSet::from([from]);
                for _ in 0..*least {
                    reached = reached.iter().flat_map(|&at| self.step(*part, at, seen)).collect();
                }
                found.extend(&reached);
                // A text has few characters; more repetitions are of nothing.
                for _ in *least..most.unwrap_or(u32::MAX).min(least + 20) {
                    reached = reached.iter().flat_map(|&at| self.step(*part, at, seen)).collect();
                    found.extend(&reached);
                }
            }
        }
        let known = self.ends.entry((node, from)).or_default();
        known.extend(found);
        known.clone()
    }
}

/// An expression of few characters, so that texts are ambiguous.
fn expression(random: &mut Random, depth: usize) -> String {
    let inner = |random: &mut Random| expression(random, depth.saturating_sub(1));
    match random.below(if depth == 0 { 6 } else { 11 }) {
        0 | 1 => (*random.pick(&["\"a\"", "\"b\"", "\"ab\"", "\"ba\"", "\"é\"", "\"\""])).to_owned(),
        2 => (*random.pick(&["[ab]", "[^a]", "[a-c]", ".", "[é-ü]"])).to_owned(),
        3..6 => (*random.pick(&["root", "x", "y", "z", "w"])).to_owned(),
        6 | 7 => format!("{} {}", inner(random), inner(random)),
        8 => format!("({} | {})", inner(random), inner(random)),
        _ => {
            let suffix = *random.pick(&["*", "+", "?", "{2}", "{1,3}", "{2,}", "{0,2}"]);
            format!("({}){suffix}", inner(random))
        }
    }
}

fn random_grammar(random: &mut Random) -> String {
    let mut text = String::new();
    for rule in ["root", "x", "y", "z", "w"] {
        // The last rules have no rules of their own more often, so that some grammars are regular.
        let alternatives: Vec<String> = (0..1 + random.below(3)).map(|_| expression(random, 2)).collect();
        text += &format!("{rule} ::= {}\n", alternatives.join(" | "));
    }
    text
}

fn random_text(random: &mut Random) -> String {
    (0..random.below(7)).map(|_| *random.pick(&['a', 'b', 'a', 'b', 'c', 'é'])).collect()
}

/// Random grammars.
const ROUNDS: usize = 40;

#[test]
fn random_grammars_accept_what_their_definition_accepts() {
    let (compiler, mut random) = (Compiler::new(), Random::fresh());
    let (mut accepted, mut rejected, mut drawn, mut fused, mut refused) = (0, 0, 0, 0, 0);
    for _ in 0..ROUNDS {
        let text = random_grammar(&mut random);
        let grammar = parse(&text).unwrap();
        let lexemes = Lexemes::new(&grammar);
        fused += usize::from((0..grammar.nodes.len()).any(|node| lexemes.is_lexeme(&grammar, node)));
        let texts: Vec<String> = (0..8).map(|_| random_text(&mut random)).collect();
        let source = Grammar::Gbnf(text.clone());
        let expected: Vec<bool> = texts.iter().map(|text| Recogniser::accepts(&grammar, text)).collect();
        for (sample, expected) in texts.iter().zip(expected) {
            let found = match compiler.compile(&source) {
                Ok(matcher) => compiler.allows(matcher, sample),
                // No text at all, or the empty one alone.
                Err(GrammarError::Refused(reason)) => {
                    assert!(reason.contains("no text"), "{reason}\n{text}\n{}", lark(&text).unwrap());
                    refused += 1;
                    sample.is_empty() && expected
                }
                Err(error) => panic!("{error}\n{text}"),
            };
            assert_eq!(found, expected, "{sample:?}\n{text}\n{}", lark(&text).unwrap());
            *if expected { &mut accepted } else { &mut rejected } += 1;
        }
        if let Ok(matcher) = compiler.compile(&source)
            && let Ok((sample, true)) = compiler.try_draw(matcher, &mut random, 8)
        {
            assert!(Recogniser::accepts(&grammar, &sample), "{sample:?}\n{text}\n{}", lark(&text).unwrap());
            drawn += 1;
        }
    }
    println!("{accepted} accepted, {rejected} rejected, {drawn} drawn, {fused} with lexemes, {refused} refused");
    assert!(accepted > ROUNDS / 4 && rejected > ROUNDS && drawn > ROUNDS / 8 && fused > ROUNDS / 8);
}

#[test]
fn published_grammars_have_long_lexemes() {
    // Marks, numbers, names and white space: a step for each character would be slow.
    let written = lark(JSON).unwrap();
    let lexemes = written.lines().filter(|line| line.starts_with('L'));
    assert!(lexemes.count() >= 3, "{written}");
    // The class of a string's characters is a part of a lexeme.
    let characters = |line: &&str| line.starts_with('r') && line.contains("\\u{5d}-\\u{7e}");
    assert_eq!(written.lines().filter(characters).count(), 0, "{written}");
    let compiler = Compiler::new();
    let json = || compiler.compile(&Grammar::Gbnf(JSON.to_owned())).unwrap();
    for (text, allowed) in [
        (r#"{"a": [1, -2.5e3, "x\n\u00e9"], "b": {"c": null}}"#, true),
        ("{}", true),
        (r#"{"a" 1}"#, false),
        ("[]", false),
        (r#"{"a": tru}"#, false),
    ] {
        assert_eq!(compiler.allows(json(), text), allowed, "{text}");
    }
    for grammar in [
        "root ::= (expr \"=\" term \"\\n\")+\nexpr ::= term ([-+*/] term)*\nterm ::= num | \"(\" expr \")\"\nnum ::= [0-9]+",
        "# a list\nroot ::= item+\nitem ::= \"- \" [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ \"\\n\"",
        "root ::= \"yes\"\n  | \"no\"\n",
    ] {
        assert!(compiler.compile(&Grammar::of_text(grammar.to_owned())).is_ok(), "{grammar}");
    }
}

#[test]
fn what_is_refused_and_where() {
    for (text, line, word) in [
        ("", 1, "root"),
        ("x ::= \"a\"", 1, "root"),
        ("root ::= x", 1, "not defined"),
        ("root ::= \"a\"\n\nroot ::= \"b\"", 3, "second time"),
        ("root = \"a\"", 1, "::="),
        ("root ::= \"a", 1, "no end"),
        ("root ::= [a", 1, "no end"),
        ("root ::= \"a\"\nx ::= (\"a\"", 2, "no end"),
        ("root ::= []", 1, "no characters"),
        ("root ::= [b-a]", 1, "larger"),
        ("root ::= \"\\q\"", 1, "no escape"),
        ("root ::= \"\\u12\"", 1, "hexadecimal"),
        ("root ::= \"\\ud800\"", 1, "no character"),
        ("root ::= \"a\"{3,2}", 1, "larger"),
        ("root ::= \"a\"{x}", 1, "repetition"),
        ("root ::= \"a\"{99999}", 1, "10000"),
        ("root ::= *", 1, "repeats nothing"),
        ("root ::= \"a\" )", 1, "`)`"),
        ("root ::= !<a>", 1, "`!`"),
        ("root ::= < a>", 1, "control token"),
        ("root ::= (?=\"a\") \"a\"", 1, "repeats nothing"),
    ] {
        let Err(GrammarError::Refused(reason)) = lark(text) else { panic!("{text}") };
        assert!(reason.starts_with(&format!("line {line}: ")) && reason.contains(word), "{text}: {reason}");
    }
    let deep = format!("root ::= {}\"a\"{}", "(".repeat(200), ")".repeat(200));
    assert!(lark(&deep).is_err());
}

#[test]
fn control_tokens_and_empty_texts() {
    let compiler = Compiler::new();
    for (text, sample, allowed) in [
        ("root ::= \"a\"?", "", true),
        ("root ::= \"a\"?", "a", true),
        ("root ::= x x\nx ::= \"\" | \"a\" x", "aaa", true),
        ("root ::= root \"a\" | \"b\"", "baa", true),
        ("root ::= root \"a\" | \"b\"", "ab", false),
    ] {
        let matcher = compiler.compile(&Grammar::Gbnf(text.to_owned())).unwrap();
        assert_eq!(compiler.allows(matcher, sample), allowed, "{text} {sample}");
    }
    let mut matcher = compiler.compile(&Grammar::Gbnf("root ::= \"a\" <|tool|> \"b\"".to_owned())).unwrap();
    for token in [97, 259] {
        matcher.allow(true).unwrap();
        assert!(!matcher.accept(token).unwrap());
    }
    assert!(compiler.compile(&Grammar::Gbnf("root ::= <|nothing|>".to_owned())).is_err());
}

#[test]
fn grammars_are_told_apart() {
    for (text, gbnf) in [
        ("root ::= \"a\"", true),
        ("# Lark's start: is not here\n\n root ::= \"a\"", true),
        ("root\n  ::= \"a\"", true),
        ("start: \"::=\"", false),
        ("// a comment\nstart: x\nx: \"a\"", false),
        ("", false),
    ] {
        assert_eq!(is_gbnf(text), gbnf, "{text}");
    }
}

/// Grammars whose automata, terminals or rules would be large.
#[test]
fn hostile_grammars_take_little_time() {
    let compiler = Compiler::new();
    let doubled = |end: &str| {
        let rules = (0..60).map(|n| format!("r{n} ::= r{} r{}\n", n + 1, n + 1));
        format!("root ::= r0 {end}\n{}r60 ::= \"a\" | \"b\"\n", rules.collect::<String>())
    };
    let wide: String = (0..900).map(|n| format!("\"k{n}\" root | ")).collect();
    for text in [
        doubled(""),
        doubled("root?"),
        format!("root ::= {wide}\"end\""),
        "root ::= ((((\"a\"{10000}){10000}){10000}){10000})".to_owned(),
        "root ::= x root | \"b\"\nx ::= ((\"a\" | \"ab\"){1000}){1000}".to_owned(),
        "root ::= ([ab]* \"a\" [ab]{200} root | \"c\")".to_owned(),
        "root ::= root root | \"a\" root? | [a-z]*".to_owned(),
        format!("root ::= {}", "root* ".repeat(2_000)),
    ] {
        let start = std::time::Instant::now();
        let found = compiler.compile(&Grammar::Gbnf(text.clone()));
        println!("{:?} {:?} {:.40}", start.elapsed(), found.err().map(|error| error.to_string()), text);
        assert!(start.elapsed().as_secs() < 5, "{text:.60}");
    }
}
