//! Changes of logits before sampling: logit bias, and the repetition penalty DRY.

use clap::Args;
use gristmill_engine::{Dry, EngineError, Model, Request};

use crate::failure::Failure;
use crate::numbers;

/// Logit bias and DRY.
#[derive(Args)]
pub(crate) struct BiasArgs {
    /// Add BIAS to the logit of a token. TOKEN is an id, or a text of exactly one token in double quotes (as in JSON):
    /// '" the"=-2'. Can be repeated.
    #[arg(long, value_name = "TOKEN=BIAS", allow_hyphen_values = true, help_heading = "Length and sampling")]
    logit_bias: Vec<String>,
    /// Lower the logits of tokens that would continue a repetition (DRY) by X; 0 turns it off, 0.8 is usual.
    #[arg(
        long, value_name = "X", default_value_t = Dry::default().multiplier,
        allow_hyphen_values = true, value_parser = numbers::number,
        help_heading = "Length and sampling"
    )]
    dry_multiplier: f32,
    /// The factor by which each further repeated token raises DRY's penalty.
    #[arg(
        long, value_name = "X", default_value_t = Dry::default().base, allow_hyphen_values = true,
        value_parser = numbers::number, requires = "dry_multiplier",
        help_heading = "Length and sampling"
    )]
    dry_base: f32,
    /// The minimum length of a repetition, in tokens, whose continuation DRY penalises.
    #[arg(
        long, value_name = "N", default_value_t = Dry::default().allowed_length,
        allow_negative_numbers = true, value_parser = numbers::at_least::<usize>(1),
        requires = "dry_multiplier",
        help_heading = "Length and sampling"
    )]
    dry_allowed_length: usize,
    /// The number of last tokens, including the prompt, in which DRY looks for repetitions; -1 means all, 0 turns DRY
    /// off.
    #[arg(
        long, value_name = "N", default_value_t = -1, allow_negative_numbers = true,
        value_parser = numbers::whole, requires = "dry_multiplier",
        help_heading = "Length and sampling"
    )]
    dry_penalty_last_n: i64,
    /// A text that ends a repetition. "none" means no such text [default: line break, colon, double quote, asterisk].
    /// Can be repeated.
    #[arg(
        long,
        value_name = "TEXT",
        allow_hyphen_values = true,
        requires = "dry_multiplier",
        help_heading = "Length and sampling"
    )]
    dry_sequence_breaker: Vec<String>,
}

/// The token in `--logit-bias`.
#[derive(Debug, PartialEq)]
enum TokenName {
    Id(u32),
    Text(String),
}

/// [`BiasArgs`] with checked ranges; names of tokens need a model.
pub(crate) struct BiasOptions {
    named: Vec<(TokenName, f32)>,
    dry: Dry,
}

impl BiasArgs {
    /// Checks the ranges before the model is loaded.
    pub(crate) fn check(&self) -> Result<BiasOptions, Failure> {
        let penalty_last_n = match self.dry_penalty_last_n {
            -1 => None,
            n => Some(usize::try_from(n).map_err(|_| {
                Failure::new(format!("--dry-penalty-last-n is {n}; it must be 0 or greater, or -1 for the whole text"))
            })?),
        };
        let sequence_breakers = match self.dry_sequence_breaker.as_slice() {
            [] => Dry::default().sequence_breakers,
            [none] if none == "none" => Vec::new(),
            given => given.to_vec(),
        };
        let dry = Dry {
            multiplier: self.dry_multiplier,
            base: self.dry_base,
            allowed_length: self.dry_allowed_length,
            penalty_last_n,
            sequence_breakers,
        };
        dry.check()?;
        Ok(BiasOptions { named: self.logit_bias.iter().map(|text| parse(text)).collect::<Result<_, _>>()?, dry })
    }
}

/// Reads `TOKEN=BIAS`.
fn parse(text: &str) -> Result<(TokenName, f32), Failure> {
    let wrong = || {
        let example = "as in 42=-1.5 or '\" the\"=-2'";
        Failure::new(format!("--logit-bias {text} is not TOKEN=BIAS, {example}; put a text in double quotes"))
    };
    let (token, bias) = text.rsplit_once('=').ok_or_else(wrong)?;
    let bias = bias.parse().map_err(|_| wrong())?;
    let name = match token.starts_with('"') {
        true => TokenName::Text(serde_json::from_str(token).map_err(|_| wrong())?),
        false => TokenName::Id(token.parse().map_err(|_| wrong())?),
    };
    Ok((name, bias))
}

impl BiasOptions {
    /// Writes bias and DRY into a request to this model. Fails if a name stands for no token of this model, or for
    /// several.
    pub(crate) fn apply(&self, request: &mut Request, model: &Model) -> Result<(), Failure> {
        request.dry = self.dry.clone();
        request.logit_bias =
            self.named.iter().map(|(name, bias)| Ok((id(name, model)?, *bias))).collect::<Result<_, Failure>>()?;
        Ok(())
    }
}

/// The token that a name stands for.
fn id(name: &TokenName, model: &Model) -> Result<u32, Failure> {
    let vocabulary = model.spec().vocab;
    let text = match name {
        TokenName::Id(id) if (*id as usize) < vocabulary => return Ok(*id),
        TokenName::Id(token) => return Err(EngineError::LogitBiasToken { token: *token, vocabulary }.into()),
        TokenName::Text(text) => text,
    };
    let ids: Vec<u32> = model.tokenizer()?.tokens_of_bytes(text.as_bytes()).collect();
    match ids.as_slice() {
        [id] => Ok(*id),
        [] => {
            let hint = "spaces count; gristmill tokenize shows the tokens of a text";
            Err(Failure::new(format!("--logit-bias: {text:?} is not one token of this model; {hint}")))
        }
        several => {
            Err(Failure::new(format!("--logit-bias: {text:?} is several tokens, {several:?}; give the id of one")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_ids_or_quoted_texts() {
        let text = |text: &str| TokenName::Text(text.to_owned());
        for (given, name, bias) in [
            ("42=1.5", TokenName::Id(42), 1.5),
            ("0=-1e2", TokenName::Id(0), -100.0),
            ("\" the\"=-2", text(" the"), -2.0),
            ("\"a=b\"=3", text("a=b"), 3.0),
            ("\"\\n\"=0", text("\n"), 0.0),
        ] {
            assert_eq!(parse(given).expect("valid"), (name, bias), "{given}");
        }
        for bad in ["", "42", "=1", "the=1", "-1=1", "42=", "42=x", "\"a=1", "a\"=1", "4294967296=1"] {
            let Err(Failure::Message(message)) = parse(bad) else { panic!("{bad}") };
            assert!(message.contains("TOKEN=BIAS"), "{message}");
        }
    }
}
