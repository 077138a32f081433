//! A grammar, and how it is compiled for a vocabulary.

use std::sync::{Arc, OnceLock};
use std::thread;

use llguidance::Logger;
use llguidance::api::{GrammarInit, GrammarWithLexer, ParserLimits, TopLevelGrammar};
use llguidance::earley::Parser;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::budget::Budget;
use super::error::GrammarError;
use super::guarded::{guarded, message};
use super::matcher::Matcher;
use super::vocabulary::Vocabulary;
use super::words::Reason;
use super::{ecma, gbnf, lark, schema, text};
use crate::tokenizer::Tokenizer;

/// A grammar that a completion must follow. The completion ends where the grammar is complete. Only there
/// end-of-generation tokens can be sampled. If no text can follow, the request ends without such a token, even before
/// its minimum number of tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Grammar {
    /// Any JSON object.
    Json,
    /// JSON that is valid for this schema. Properties come in the order of the schema, and at most 20 characters of
    /// white space are between tokens. Strings have no `\u` escapes, so that a property's name is written in one way.
    ///
    /// A keyword that cannot be enforced is refused with its path; annotations, such as `description`, are left out.
    /// References lead into the schema itself (`#/$defs/name`). `format` stands for the syntax of its values; an
    /// unknown format is an annotation, as are keywords that start with `x-`. `propertyNames` is a pattern or a list of
    /// names. `oneOf` is `anyOf`: a value can be valid for several of its schemas. `uniqueItems` is enforced for items of
    /// few values.
    ///
    /// A receipt keeps the schema as its JSON text, because the order of its properties counts, which some programs
    /// change.
    JsonSchema(#[serde(with = "text")] Value),
    /// A context-free grammar in llguidance's dialect of Lark, from the rule `start`. A schema may stand in it (`%json
    /// {…}`), and special tokens by name (`<|start|>`). Refused are `%llguidance`, `stop=` and `temperature=`.
    Lark(String),
    /// A context-free grammar in GBNF, as llama.cpp's server has it, from the rule `root`. A control token is written
    /// `<name>` or `<[id]>`.
    Gbnf(String),
    /// A regular expression (syntax of the crate `regex`, without look-around) for the whole text.
    Regex(String),
}

impl Grammar {
    /// A context-free grammar in GBNF or in Lark: GBNF if its first rule is defined by `::=`.
    pub fn of_text(text: String) -> Grammar {
        if gbnf::is_gbnf(&text) { Grammar::Gbnf(text) } else { Grammar::Lark(text) }
    }
}

/// Bytes of a regular expression, whose time grows with their square.
const MAX_REGEX: usize = 8 << 10;

/// The stack of a thread that compiles: llguidance descends once for each property of an object. Only used pages need
/// memory.
const STACK: usize = 64 << 20;

/// Bounds on the cost of compiling and of one mask: milliseconds for most grammars, at most 1 to 2 kB for each state.
fn limits() -> ParserLimits {
    ParserLimits {
        // Four for each property of an object that may be left out.
        max_items_in_row: 5_000,
        initial_lexer_fuel: 500_000,
        step_lexer_fuel: 100_000,
        max_lexer_states: 50_000,
        max_grammar_size: 200_000,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

/// Compiles grammars for one model. Its vocabulary is read with the first grammar.
#[derive(Debug, Default)]
pub struct Grammars(OnceLock<Result<Arc<Vocabulary>, String>>);

impl Grammars {
    /// The matcher of a new text, for a model with this number of logits.
    ///
    /// # Errors
    /// [`GrammarError::Schema`], [`GrammarError::Refused`], or [`GrammarError::Thread`] if there is no thread to
    /// compile on.
    pub fn compile(&self, grammar: &Grammar, tokenizer: &Tokenizer, logits: usize) -> Result<Matcher, GrammarError> {
        let vocabulary = self.0.get_or_init(|| guarded(|| Vocabulary::new(tokenizer, logits)).map(Arc::new));
        let vocabulary = vocabulary.as_ref().map_err(|reason| GrammarError::Refused(reason.clone()))?;
        let compile = || -> Result<Matcher, GrammarError> {
            let Source { grammar, targets } = source(grammar)?;
            let parser = guarded(|| Ok(parser(grammar, vocabulary))).map_err(GrammarError::Refused)?;
            let parser =
                parser.map_err(|Reason { text, definition }| match definition.and_then(|at| targets.get(at)) {
                    Some(path) => GrammarError::Schema { path: path.clone(), problem: text },
                    None => GrammarError::Refused(text),
                })?;
            let mut matcher = Matcher::new(parser, vocabulary.clone());
            // A pattern may want characters that no text has: JSON has no \u escapes here.
            matcher.allow(true).map_err(|error| match error {
                GrammarError::Stuck => GrammarError::Refused("no text of the model's tokens follows it".to_owned()),
                error => error,
            })?;
            Ok(matcher)
        };
        thread::scope(|scope| {
            let thread = thread::Builder::new().name("gristmill-grammar".to_owned()).stack_size(STACK);
            let running = thread.spawn_scoped(scope, compile).map_err(GrammarError::Thread)?;
            running.join().unwrap_or_else(|panic| Err(GrammarError::Refused(message(&*panic))))
        })
    }
}

/// Checks which JSON schemas can be enforced together in one grammar, and returns the result of each in their order.
/// The schemas share the limits on the size of a grammar; a refused schema does not count. The check takes
/// milliseconds; compiling can still refuse a schema.
pub fn check_schemas<'a>(schemas: impl IntoIterator<Item = &'a Value>) -> Vec<Result<(), GrammarError>> {
    let mut budget = Budget::default();
    let check = |schema| {
        let mut used = budget.clone();
        schema::rewrite(schema, &mut used)?;
        budget = used;
        Ok(())
    };
    schemas.into_iter().map(check).collect()
}

/// A grammar in llguidance's terms.
struct Source {
    grammar: GrammarWithLexer,
    /// The pointers, in the caller's schema, of the definitions of the rewritten one; none of a grammar of several.
    targets: Vec<String>,
}

fn source(grammar: &Grammar) -> Result<Source, GrammarError> {
    let plain = |grammar| Source { grammar, targets: Vec::new() };
    let json_schema = |schema: &Value| {
        let (rewritten, targets) = schema::rewrite(schema, &mut Budget::default())?;
        Ok(Source { grammar: GrammarWithLexer::from_json_schema(rewritten), targets })
    };
    match grammar {
        Grammar::Json => json_schema(&serde_json::json!({"type": "object"})),
        Grammar::JsonSchema(schema) => json_schema(schema),
        Grammar::Lark(text) => Ok(plain(GrammarWithLexer::from_lark(lark::rewrite(text)?))),
        Grammar::Gbnf(text) => Ok(plain(GrammarWithLexer::from_lark(gbnf::lark(text)?))),
        Grammar::Regex(text) => {
            check_regex(text)?;
            Ok(plain(GrammarWithLexer::from_regex(text)))
        }
    }
}

/// Checks that a regular expression is whole and not too long.
pub(super) fn check_regex(text: &str) -> Result<(), GrammarError> {
    let refuse = |reason: String| Err(GrammarError::Refused(reason));
    let escapes = text.len() - text.trim_end_matches('\\').len();
    match text.len() {
        0 => refuse("the regular expression is empty, and no text would follow".to_owned()),
        bytes if bytes > MAX_REGEX => {
            refuse(format!("the regular expression has {bytes} bytes; at most {MAX_REGEX} are taken"))
        }
        _ if !escapes.is_multiple_of(2) => refuse("the regular expression ends with a backslash".to_owned()),
        // Compiling would name the rule that it becomes.
        _ => ecma::check(text).or_else(refuse),
    }
}

fn parser(source: GrammarWithLexer, vocabulary: &Vocabulary) -> Result<Parser, Reason> {
    let init = GrammarInit::Serialized(TopLevelGrammar::from_grammar(source));
    let env = vocabulary.env();
    let mut silent = Logger::new(0, 0);
    let grammar = init.to_cgrammar(Some(env.clone()), &mut silent, limits(), vocabulary.lexemes());
    let grammar = grammar.map_err(|error| Reason::new(&error))?;
    // `stop` would take its match out of the text, which the model has sampled already.
    if grammar.lexer_spec().has_stop {
        return Err(Reason::new(&"`stop=` is not supported; write what ends the text as a part of the grammar"));
    }
    Parser::new(env, grammar, limits(), Arc::default()).map_err(|error| Reason::new(&error))
}
