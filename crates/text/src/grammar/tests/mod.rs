//! Texts drawn at random from the masks of a matcher, without a model.

mod keywords;
mod libraries;
mod random;
mod suite;
mod validate;

use std::time::Instant;

use serde_json::{Value, json};

use super::{Grammar, GrammarError, Grammars, Matcher};
use crate::tokenizer::{Tokenizer, Vocabulary};
use validate::valid;

/// Ends a text.
const END: u32 = 260;

/// Each byte a token, some words of JSON, a control token, and the end.
fn tokenizer() -> Tokenizer {
    let printable = |byte: &u8| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut others = 0x100..;
    let letter = |byte: u8| match printable(&byte) {
        true => char::from(byte),
        false => others.next().and_then(char::from_u32).unwrap_or_default(),
    };
    let mut tokens: Vec<String> = (0..=255).map(letter).map(String::from).collect();
    tokens.extend(["{\"", "\":", "\",\"", "<|tool|>", "<|im_end|>"].map(String::from));
    let mut types = vec![1; 259];
    types.extend([3, 3]);
    let merges = ["{ \"", "\" :"].map(String::from).to_vec();
    let model = "gpt2".to_owned();
    let pre = Some("default".to_owned());
    let eos = Some(END);
    Tokenizer::new(Vocabulary { model, pre, tokens, types, merges, eos, ..Vocabulary::default() }).unwrap()
}

/// SplitMix64.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn fresh() -> Random {
        Random(gristmill_suite::testing::seed_of_test())
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end as u64) as usize
    }

    pub(super) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// Grammars for one tokenizer.
pub(super) struct Compiler {
    grammars: Grammars,
    tokenizer: Tokenizer,
}

impl Compiler {
    pub(super) fn new() -> Compiler {
        Compiler { grammars: Grammars::default(), tokenizer: tokenizer() }
    }

    pub(super) fn compile(&self, grammar: &Grammar) -> Result<Matcher, GrammarError> {
        self.grammars.compile(grammar, &self.tokenizer, self.tokenizer.vocab_size() + 3)
    }

    fn schema(&self, schema: &Value) -> Result<Matcher, GrammarError> {
        self.compile(&Grammar::JsonSchema(schema.clone()))
    }

    /// A text of at most this number of tokens, and whether it ended by the grammar.
    fn draw(&self, matcher: Matcher, random: &mut Random, most: usize) -> (String, bool) {
        self.try_draw(matcher, random, most).unwrap_or_else(|wrong| panic!("{wrong:?}"))
    }

    /// The same as [`Self::draw`], or the text that nothing can follow.
    pub(super) fn try_draw(
        &self,
        mut matcher: Matcher,
        random: &mut Random,
        most: usize,
    ) -> Result<(String, bool), Box<(String, GrammarError)>> {
        let mut text = Vec::new();
        for _ in 0..most {
            matcher.allow(true).map_err(|error| Box::new((String::from_utf8_lossy(&text).into_owned(), error)))?;
            let allowed = |id: &u32| matcher.mask()[*id as usize / 32] >> (id % 32) & 1 == 1;
            let tokens: Vec<u32> = (0..self.tokenizer.vocab_size() as u32).filter(allowed).collect();
            // White space is as likely as any other character, and would be most of the text.
            let space = |id: &u32| matches!(id, 9 | 10 | 13 | 32);
            let words: Vec<u32> = tokens.iter().copied().filter(|id| !space(id)).collect();
            let some = if words.is_empty() || random.below(20) == 0 { &tokens } else { &words };
            let token = *random.pick(some);
            if token != END {
                text.extend(self.tokenizer.token_bytes(token).unwrap());
            }
            if matcher.accept(token).expect("an allowed token") {
                return Ok((String::from_utf8(text).expect("UTF-8"), true));
            }
        }
        Ok((String::from_utf8_lossy(&text).into_owned(), false))
    }

    /// Whether the grammar allows this text as a whole, byte by byte.
    pub(super) fn allows(&self, mut matcher: Matcher, text: &str) -> bool {
        for byte in text.bytes() {
            if matcher.allow(true).is_err() || matcher.mask()[usize::from(byte) / 32] >> (byte % 32) & 1 == 0 {
                return false;
            }
            matcher.accept(u32::from(byte)).expect("an allowed token");
        }
        matcher.allow(true).is_ok() && matcher.mask()[END as usize / 32] >> (END % 32) & 1 == 1
    }
}

#[test]
fn end_tokens_are_allowed_where_the_grammar_is_complete() {
    let compiler = Compiler::new();
    let set = |matcher: &Matcher| {
        (0..END + 1).filter(|id| matcher.mask()[*id as usize / 32] >> (id % 32) & 1 == 1).collect::<Vec<_>>()
    };
    let mut matcher = compiler.compile(&Grammar::Regex("ab?".to_owned())).unwrap();
    matcher.allow(true).unwrap();
    assert_eq!(set(&matcher), [97]);
    assert!(!matcher.accept(97).unwrap());
    matcher.allow(true).unwrap();
    assert_eq!(set(&matcher), [98, END]);
    // Where the text may not end yet, it continues as long as it can.
    matcher.allow(false).unwrap();
    assert_eq!(set(&matcher), [98]);
    assert!(matcher.accept(98).unwrap(), "nothing may follow");
    matcher.allow(false).unwrap();
    assert_eq!(set(&matcher), [END]);
    assert!(matcher.accept(END).unwrap());
}

#[test]
fn control_tokens_are_sampled_where_a_grammar_names_them() {
    let compiler = Compiler::new();
    let mut matcher = compiler.compile(&Grammar::Lark("start: /[a-z<|>]+/ <|tool|> \"x\"".to_owned())).unwrap();
    let allowed = |matcher: &Matcher, id: u32| matcher.mask()[id as usize / 32] >> (id % 32) & 1 == 1;
    matcher.allow(true).unwrap();
    assert!(allowed(&matcher, u32::from(b'<')) && !allowed(&matcher, 259));
    assert!(!matcher.accept(97).unwrap());
    matcher.allow(true).unwrap();
    assert!(allowed(&matcher, 259) && !allowed(&matcher, END));
    assert!(!matcher.accept(259).unwrap());
    assert!(matcher.accept(u32::from(b'x')).unwrap());

    // A string is text: its characters spell no control token.
    let matcher = compiler.schema(&json!({"const": "<|tool|>"})).unwrap();
    let (text, ended) = compiler.draw(matcher, &mut Random::fresh(), 100);
    assert_eq!((text.trim(), ended), ("\"<|tool|>\"", true));
}

#[test]
fn a_token_that_is_not_allowed_is_an_error() {
    let compiler = Compiler::new();
    for token in [98, 259, 400, u32::MAX] {
        let mut matcher = compiler.compile(&Grammar::Regex("a+".to_owned())).unwrap();
        matcher.allow(true).unwrap();
        assert!(matches!(matcher.accept(token), Err(GrammarError::Refused(_))), "{token}");
    }
    // An end-of-generation token in the middle of a text is never allowed.
    let mut matcher = compiler.compile(&Grammar::Lark("start: \"a\" <|im_end|> \"b\"".to_owned())).unwrap();
    matcher.allow(true).unwrap();
    assert!(!matcher.accept(97).unwrap());
    assert!(matches!(matcher.allow(true), Err(GrammarError::Stuck)));
}

#[test]
fn regular_expressions() {
    let compiler = Compiler::new();
    let regex = |text: &str| compiler.compile(&Grammar::Regex(text.to_owned()));
    for (text, yes, no) in [
        ("a/b", "a/b", "a"),
        (r"a\/b", "a/b", r"a\/b"),
        (r"\d{3}-\d{2}", "123-45", "123-4"),
        ("(?i)yes|no", "YES", "yesno"),
        (r#"["'\\]+"#, r#""'\"#, "a"),
        ("x\ny", "x\ny", "x y"),
        (r"\\", r"\", r"\\"),
    ] {
        assert!(compiler.allows(regex(text).expect(text), yes), "{text}");
        assert!(!compiler.allows(regex(text).expect(text), no), "{text}");
    }
    for bad in ["", "a\\", "(", "[a", "a{2,1}", "(?=a)", "\\1", "*"] {
        assert!(matches!(regex(bad), Err(GrammarError::Refused(_))), "{bad:?}");
    }
}

#[test]
fn grammars_in_lark() {
    let compiler = Compiler::new();
    let lark = |text: &str| compiler.compile(&Grammar::Lark(text.to_owned()));
    let sum = "start: term (\"+\" term)*\nterm: /[0-9]+/ | \"(\" start \")\"";
    assert!(compiler.allows(lark(sum).unwrap(), "1+(2+3)"));
    assert!(!compiler.allows(lark(sum).unwrap(), "1+(2+3"));
    let call = "start: \"<\" args \">\"\nargs: %json {\"type\": \"object\", \
                \"properties\": {\"a\": {\"type\": \"integer\"}}, \
                \"required\": [\"a\"], \"additionalProperties\": false}";
    assert!(compiler.allows(lark(call).unwrap(), "<{\"a\": 12}>"));
    assert!(!compiler.allows(lark(call).unwrap(), "<{\"b\":1,\"a\":12}>"));
    for bad in [
        "",
        "start: missing",
        "no_start: \"a\"",
        "start: \"a",
        "start: <|nothing|>",
        "start: @other",
        "start[stop=\"x\"]: /a*/",
        "start: a\na[temperature=0.5]: /a/",
        "%llguidance {\"allow_invalid_utf8\": true}\nstart: /a/",
        "start: %json {\"type\": \"string\", \"x-guidance\": {}}",
    ] {
        assert!(matches!(lark(bad), Err(GrammarError::Refused(_) | GrammarError::Schema { .. })), "{bad:?}");
    }
    let long = format!("start: \"{}\"", "a".repeat(20_000));
    assert!(lark(&long).unwrap_err().to_string().contains("bytes"));
}

/// Without a bound, 100 tokens of such a grammar held up all requests for 20 seconds.
#[test]
fn an_ambiguous_grammar_ends_its_text() {
    let compiler = Compiler::new();
    let grammar = Grammar::Lark("start: e\ne: e e | e e e | \"a\" |".to_owned());
    let mut matcher = compiler.compile(&grammar).unwrap();
    let start = Instant::now();
    let token = |matcher: &mut Matcher| matcher.allow(false).and_then(|()| matcher.accept(u32::from(b'a')));
    let refused = (0..2_000).find_map(|_| token(&mut matcher).err()).expect("2,000 tokens take minutes");
    assert!(matches!(&refused, GrammarError::Refused(reason) if reason.contains("ambiguous")), "{refused}");
    println!("refused after {:.1?}", start.elapsed());
}

/// A model that prefers line breaks fills a call with them.
#[test]
fn white_space_within_json_is_bounded() {
    let compiler = Compiler::new();
    let call = "start: %json {\"type\": \"object\"}".to_owned();
    for grammar in [Grammar::Json, Grammar::JsonSchema(json!({"type": "object"})), Grammar::Lark(call)] {
        for (spaces, allowed) in [(0, true), (20, true), (21, false), (80, false)] {
            let text = format!("{{{}\"a\":1}}", "\n".repeat(spaces));
            assert_eq!(compiler.allows(compiler.compile(&grammar).unwrap(), &text), allowed, "{grammar:?}: {spaces}");
        }
    }
}

/// At each place between tokens, before the first and after the last, of every way to request JSON.
#[test]
fn white_space_is_bounded_at_each_place() {
    let compiler = Compiler::new();
    let tokens =
        ["{", "\"a\"", ":", "[", "1", ",", "true", ",", "{", "}", ",", "[", "]", "]", ",", "\"b\"", ":", "\"\"", "}"];
    let schema = json!({"type": "object", "properties": {"a": {"type": "array"}, "b": {"type": "string"}}});
    let lark = |expression: String| Grammar::Lark(format!("start: answer\nanswer: {expression}"));
    let json = Grammar::JsonSchema(schema.clone());
    let nested = lark(json.expression().unwrap());
    let behind = Grammar::Lark(format!("start: \"<\" call \">\" | \"-\" call\ncall: %json {schema}"));
    for (grammar, [before, after]) in [
        (Grammar::Json, ["", ""]),
        (json, ["", ""]),
        (nested, ["", ""]),
        (behind.clone(), ["<", ">"]),
        (behind, ["-", ""]),
    ] {
        for place in 0..=tokens.len() {
            let allows = |space: &str| {
                let (first, last) = tokens.split_at(place);
                let text = [before, &first.concat(), space, &last.concat(), after].concat();
                compiler.allows(compiler.compile(&grammar).unwrap(), &text)
            };
            assert!(allows(""), "{grammar:?}");
            for space in ["\n".repeat(21), " ".repeat(200), " \n\t".repeat(10)] {
                assert!(!allows(&space), "{grammar:?} takes {space:?} before token {place}");
            }
        }
    }
}

/// Errors of compiling are about what the caller wrote.
#[test]
fn errors_are_in_the_terms_of_the_caller() {
    let compiler = Compiler::new();
    let wrong = json!({"type": "array", "minItems": 3, "maxItems": 1, "items": {"type": "integer"}});
    let within = json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/list"}}, "required": ["x"], "$defs": {"list": wrong}});
    for schema in [&wrong, &within] {
        match compiler.schema(schema) {
            Err(GrammarError::Schema { path, problem }) => {
                assert!(schema.pointer(&path).is_some(), "{path} is not in {schema}");
                assert!(problem.starts_with("no value is valid: ") && !problem.contains("#/$defs/0"), "{problem}");
            }
            other => panic!("{schema}: {other:?}"),
        }
    }
    let both = json!({"type": "string", "pattern": "^a$", "minLength": 5});
    let Err(GrammarError::Schema { problem, .. }) = compiler.schema(&both) else { panic!("{both}") };
    assert!(problem.contains("no text has all") && !problem.contains("Regex"), "{problem}");
    let regex = compiler.compile(&Grammar::Regex("(?=a)b".to_owned())).map(drop).unwrap_err().to_string();
    assert!(regex.contains("look-around") && !regex.contains("start:"), "{regex}");
    let lark = compiler.compile(&Grammar::Lark("start: a\na: /(?=a)b/".to_owned())).map(drop).unwrap_err().to_string();
    assert!(lark.contains("line 2") && lark.contains("look-around") && !lark.contains("1 | start"), "{lark}");
}
