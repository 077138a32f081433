//! Golden folders with changed settings: what transformers computes, which `scripts/golden/changed.py` wrote.

use std::fs;

use gristmill_conformance::golden;
use gristmill_conformance::losses::losses;
use serde_json::Value;

use super::direct::open;
use super::folder::Folder;

/// Of the median difference of a dozen losses, which are about 6. Keys and values are stored with 16 bits.
const TOLERANCE: f64 = 1.2e-2;
const DOZEN: usize = 12;

/// The largest median of a dozen tokens' differences: one token whose router is close to a tie does not count.
fn gap(found: &[f64], wanted: &[f64]) -> f64 {
    assert_eq!(found.len(), wanted.len());
    let differences: Vec<f64> = found.iter().zip(wanted).map(|(a, b)| (a - b).abs()).collect();
    let median = |dozen: &[f64]| {
        let mut sorted = dozen.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    };
    differences.chunks(DOZEN).filter(|dozen| dozen.len() >= DOZEN / 2).map(median).fold(0.0, f64::max)
}

#[test]
fn changed_settings_have_the_losses_of_transformers() {
    let path = golden::models_folder().join("changed.json");
    let cases: Vec<Value> = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    assert!(cases.len() >= 9);
    let mut wrong = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let name = case["folder"].as_str().unwrap();
        let folder = Folder::copy(name, "changed");
        folder.write("config.json", case["config"].to_string());
        let tokens: Vec<Vec<u32>> = serde_json::from_value(case["tokens"].clone()).unwrap();
        let wanted: Vec<Vec<f64>> = serde_json::from_value(case["losses"].clone()).unwrap();
        let found = losses(open(&folder.0), &tokens).unwrap();
        let gap = found.iter().zip(&wanted).map(|(found, wanted)| gap(found, wanted)).fold(0.0, f64::max);
        assert!(found.iter().flatten().all(|loss| loss.is_finite()), "case {number}, {name}");
        if gap > TOLERANCE {
            wrong.push(format!("case {number}, {name}: {gap:.3}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
