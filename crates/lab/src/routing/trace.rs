//! Traces of the experts that were chosen: a line of JSON for each token.
//!
//! ```text
//! {"experts": [[[3, 0.412], [11, 0.288]], [], [[0, 0.5], [7, 0.5]]]}
//! ```
//!
//! contains for each layer the experts with their weights in the router's order, as a server's replies do; a layer without experts is
//! empty. An expert can also be a number without a weight, if all of the token are.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use gristmill_engine::model::spec::RouterSize;
use gristmill_engine::{ForcedExperts, RoutingTrace};
use serde::{Deserialize, Serialize};

use crate::error::LabError;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    experts: Vec<Vec<Choice>>,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Choice {
    Weighted(u32, f32),
    Expert(u32),
}

/// Writes lines.
pub struct TraceWriter<'a> {
    /// To where.
    pub out: &'a mut dyn Write,
}

impl TraceWriter<'_> {
    /// Writes the tokens of a pass.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn write(&mut self, routing: &RoutingTrace) -> std::io::Result<()> {
        for token in 0..routing.tokens() {
            let weighted = |(id, weight)| Choice::Weighted(id, weight);
            let layers = routing.of_token(token).into_iter();
            let line = Line { experts: layers.map(|layer| layer.into_iter().map(weighted).collect()).collect() };
            serde_json::to_writer(&mut *self.out, &line)?;
            self.out.write_all(b"\n")?;
        }
        Ok(())
    }
}

/// Reads the tokens of a trace, and checks them for a model with these routers.
pub(super) fn read(path: &Path, routers: &[RouterSize]) -> Result<Vec<ForcedExperts>, LabError> {
    let file = File::open(path).map_err(|reason| LabError::OpenTrace { path: path.to_owned(), reason })?;
    parse(path, BufReader::new(file), routers)
}

fn parse(path: &Path, lines: impl BufRead, routers: &[RouterSize]) -> Result<Vec<ForcedExperts>, LabError> {
    let mut tokens = Vec::new();
    for (number, line) in (1..).zip(lines.lines()) {
        let wrong = |reason| LabError::TraceLine { path: path.to_owned(), line: number, reason };
        let line = line.map_err(|error| wrong(error.to_string()))?;
        let token = token(&line, routers).map_err(wrong)?;
        tokens.push(token);
    }
    if tokens.is_empty() {
        return Err(LabError::EmptyTrace(path.to_owned()));
    }
    Ok(tokens)
}

fn token(line: &str, routers: &[RouterSize]) -> Result<ForcedExperts, String> {
    let Line { experts } = serde_json::from_str(line).map_err(|error| format!("no trace of experts: {error}"))?;
    let (found, layers) = (experts.len(), routers.len());
    if found != layers {
        return Err(format!("there are {found} layers (expected {layers}); use a trace of this model"));
    }
    for (layer, (experts, router)) in experts.iter().zip(routers).enumerate() {
        let found = experts.len();
        let expected = router.top_k;
        if found != expected {
            return Err(format!("layer {layer} has {found} experts (expected {expected}); use a trace of this model"));
        }
    }
    let mut token = ForcedExperts::default();
    for choice in experts.into_iter().flatten() {
        let (id, weight) = match choice {
            Choice::Weighted(id, weight) => (id, Some(weight)),
            Choice::Expert(id) => (id, None),
        };
        token.ids.push(id);
        token.weights.extend(weight);
    }
    token.check(routers).map_err(|error| error.to_string())?;
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routers() -> [RouterSize; 3] {
        let router = |experts, top_k| {
            let mut router = RouterSize::default();
            (router.experts, router.top_k) = (experts, top_k);
            router
        };
        [router(16, 2), router(0, 0), router(8, 1)]
    }

    #[test]
    fn lines_with_and_without_weights_are_read() {
        let text = "{\"experts\": [[[3, 0.75], [11, 0.25]], [], [[7, 1]]]}\n{\"experts\": [[3, 11], [], [7]]}\n";
        let tokens = parse(Path::new("t"), text.as_bytes(), &routers()).unwrap();
        assert_eq!(tokens[0], ForcedExperts { ids: vec![3, 11, 7], weights: vec![0.75, 0.25, 1.0] });
        assert_eq!(tokens[1], ForcedExperts { ids: vec![3, 11, 7], weights: vec![] });
    }

    #[test]
    fn errors_name_the_line_and_the_layer() {
        let first = "{\"experts\": [[3, 11], [], [7]]}\n";
        for (second, expected) in [
            ("{\"experts\": [[3, 11], [7]]}", "line 2: there are 2 layers (expected 3)"),
            ("{\"experts\": [[3], [], [7]]}", "line 2: layer 0 has 1 experts (expected 2)"),
            ("{\"experts\": [[3, 16], [], [7]]}", "there is no expert 16 (expected less than 16)"),
            ("{\"experts\": [[3, 3], [], [7]]}", "layer 0: expert 3 is there twice"),
            ("{\"experts\": [[3, [4, 0.5]], [], [7]]}", "there are 1 weights (expected 3"),
            ("{\"experts\": [[-3, 4], [], [7]]}", "line 2: no trace of experts"),
            ("{\"tokens\": []}", "line 2: no trace of experts"),
            ("", "line 2: no trace of experts"),
        ] {
            let text = format!("{first}{second}\n");
            let message = parse(Path::new("t"), text.as_bytes(), &routers()).unwrap_err().to_string();
            assert!(message.starts_with("t: line "), "{message}");
            assert!(message.contains(expected), "{message}");
        }
        assert!(matches!(parse(Path::new("t"), &b""[..], &routers()), Err(LabError::EmptyTrace(_))));
    }
}
