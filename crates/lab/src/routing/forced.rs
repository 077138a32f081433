//! The value of `--routing`, and the experts that it gives.

use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use gristmill_engine::ForcedExperts;
use gristmill_engine::model::spec::RouterSize;

use super::locality::{LOCALITIES, Locality, Text};
use super::trace;
use crate::error::LabError;

/// The value of `--routing`.
#[derive(Clone, Debug, PartialEq)]
pub enum RoutingArg {
    /// Generated.
    Generated {
        /// How often a text uses the same experts again.
        locality: &'static Locality,
        /// Another seed gives other experts.
        seed: u64,
    },
    /// The path of a trace.
    Trace(PathBuf),
}

impl FromStr for RoutingArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, seed) = text.split_once(':').map_or((text, None), |(name, seed)| (name, Some(seed)));
        let Some(locality) = LOCALITIES.iter().find(|locality| locality.name == name) else {
            return Ok(Self::Trace(PathBuf::from(text)));
        };
        let seed = seed.map_or(Ok(0), str::parse);
        let seed = seed.map_err(|_| format!("the seed must be a whole number, as in {name}:7"))?;
        Ok(Self::Generated { locality, seed })
    }
}

impl Display for RoutingArg {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            Self::Generated { locality, seed } => write!(f, "{}:{seed}", locality.name),
            Self::Trace(path) => path.display().fmt(f),
        }
    }
}

/// The experts of the next tokens of each sequence. Its experts never repeat earlier ones, except if a trace ends: then it starts
/// again.
pub struct Routing {
    sequences: Vec<Source>,
}

enum Source {
    Text(Text),
    Trace { tokens: Arc<[ForcedExperts]>, next: usize },
}

impl RoutingArg {
    /// The experts for sequences of a model with these routers. Sequences start at equal distances in a trace.
    ///
    /// # Errors
    /// If the model has no experts, or the trace is not one of this model.
    pub fn open(&self, routers: &[RouterSize], sequences: usize) -> Result<Routing, LabError> {
        if routers.iter().all(|router| router.experts == 0) {
            return Err(LabError::NoExperts);
        }
        let sequences = match self {
            Self::Generated { locality, seed } => {
                (0..sequences).map(|at| Source::Text(locality.text(routers, *seed, at))).collect()
            }
            Self::Trace(path) => {
                let tokens: Arc<[ForcedExperts]> = trace::read(path, routers)?.into();
                let start = |at| at * tokens.len() / sequences.max(1);
                (0..sequences).map(|at| Source::Trace { tokens: Arc::clone(&tokens), next: start(at) }).collect()
            }
        };
        Ok(Routing { sequences })
    }
}

impl Routing {
    /// The experts of the next token of a sequence, which is one of those that were opened.
    pub fn next(&mut self, sequence: usize) -> ForcedExperts {
        match &mut self.sequences[sequence] {
            Source::Text(text) => text.next(),
            Source::Trace { tokens, next } => {
                let token = tokens[*next % tokens.len()].clone();
                *next += 1;
                token
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_seeds_and_paths_are_told_apart() {
        let read = |text: &str| text.parse::<RoutingArg>();
        for locality in &LOCALITIES {
            assert_eq!(read(locality.name), Ok(RoutingArg::Generated { locality, seed: 0 }));
            assert_eq!(read(&format!("{}:7", locality.name)), Ok(RoutingArg::Generated { locality, seed: 7 }));
        }
        assert_eq!(read("./weak"), Ok(RoutingArg::Trace("./weak".into())));
        assert_eq!(read("C:7"), Ok(RoutingArg::Trace("C:7".into())));
        assert!(read("strong:seven").unwrap_err().contains("strong:7"));
    }
}
