//! The counts of `experts --json`, as the load by which devices share experts.

use std::io::{BufReader, Read};

use gristmill_engine::model::ExpertLoad;
use serde::Deserialize;

/// More layers than any model has.
const MOST_LAYERS: usize = 4096;

/// The part of a [`Report`](super::Report) that is read.
#[derive(Deserialize)]
struct Counted {
    layers: Vec<CountedLayer>,
}

#[derive(Deserialize)]
struct CountedLayer {
    layer: usize,
    counts: Vec<u64>,
}

/// Reads what `experts --json` has written.
///
/// # Errors
/// What is wrong with it, and what to do.
pub fn read_load(from: impl Read) -> Result<ExpertLoad, String> {
    let remedy = "write the file with gristmill experts --json";
    let counted: Counted =
        serde_json::from_reader(BufReader::new(from)).map_err(|error| format!("invalid JSON ({error}); {remedy}"))?;
    let mut layers = Vec::new();
    for CountedLayer { layer, counts } in counted.layers {
        if layer >= MOST_LAYERS {
            return Err(format!(
                "layers: a layer is out of range (found {layer}, expected less than {MOST_LAYERS}); {remedy}"
            ));
        }
        layers.resize(layers.len().max(layer + 1), Vec::new());
        layers[layer] = counts;
    }
    Ok(ExpertLoad { layers })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experts::{LayerUsage, Report};

    #[test]
    fn what_experts_prints_is_read() {
        let layers = vec![LayerUsage::new(1, 2, vec![3, 0, 5]), LayerUsage::new(3, 2, vec![1, 1, 1])];
        let text = serde_json::to_string(&Report { model: "a model".to_owned(), tokens: 4, layers }).unwrap();
        let expected = ExpertLoad { layers: vec![vec![], vec![3, 0, 5], vec![], vec![1, 1, 1]] };
        assert_eq!(read_load(text.as_bytes()), Ok(expected));
    }

    #[test]
    fn other_files_are_refused_with_what_writes_one() {
        for text in [
            "",
            "[]",
            "{\"layers\": [{\"layer\": 0, \"counts\": [-1]}]}",
            "{\"layers\": [{\"layer\": 99999, \"counts\": []}]}",
        ] {
            let error = read_load(text.as_bytes()).unwrap_err();
            assert!(error.ends_with("write the file with gristmill experts --json"), "{error}");
        }
    }
}
