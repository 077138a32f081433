//! The formats that a model has, or can be quantised to.

use std::collections::HashMap;

use gristmill_convert::quantize::{Mix, Quantizer};
use gristmill_engine::ModelInfo;
use gristmill_engine::model::spec::{MlpSpec, ModelSpec, MoeSpec};
use gristmill_files::gguf::GgufFile;
use gristmill_kernels::format::Format;

use super::table::Candidate;
use crate::error::LabError;
use crate::slots::TokenBytes;

/// What is known of a model's formats.
pub struct Candidates<'a> {
    /// The header of one of its files.
    pub file: &'a GgufFile,
    /// The name of that file among the formats, if the model can be run from it: this file or this folder.
    pub own: Option<&'static str>,
    /// Formats and sizes of the hub.
    pub published: &'a [(String, u64)],
}

/// Formats of a file or a synthetic model.
const FORMATS: [&str; 8] = ["Q8_0", "Q6_K", "Q5_K_M", "MXFP4_MOE", "Q4_K_M", "IQ4_XS", "Q3_K_M", "Q2_K"];

/// The formats of a model, the largest first. `loaded` are the bytes that the header's own tensors take in memory.
///
/// # Errors
/// If the model cannot be quantised.
pub fn candidates(model: &Candidates<'_>, info: &ModelInfo, loaded: u64) -> Result<Vec<Candidate>, LabError> {
    let file = model.file;
    let uses = info.tensor_uses();
    let own: u64 = file.tensors().iter().map(|tensor| tensor.bytes).sum();
    let token = TokenBytes::new(&uses, |name| file.tensor(name).map_or(0, |tensor| tensor.bytes));
    let active = token.active;
    let scaled = |bytes: u64, by: u64| (bytes as f64 * by as f64 / own.max(1) as f64) as u64;
    let mut found: Vec<Candidate> = model
        .published
        .iter()
        .map(|(format, bytes)| Candidate {
            format: format.clone(),
            file: *bytes,
            weights: scaled(loaded, *bytes),
            active: scaled(active, *bytes),
            experts: TokenBytes {
                active: scaled(token.active, *bytes),
                chosen: scaled(token.chosen, *bytes),
                experts: scaled(token.experts, *bytes),
            },
        })
        .collect();
    // What MLX has quantised is not quantised again.
    let codes = |format: Format| !format.is_float() && format != Format::MXFP4;
    let kept = !file.is_gguf() && file.tensors().iter().any(|tensor| codes(tensor.format));
    if found.is_empty() && !kept {
        let mxfp4 = file.tensors().iter().any(|tensor| tensor.format.name() == "MXFP4");
        for mix in FORMATS.iter().filter(|name| mxfp4 || **name != "MXFP4_MOE").filter_map(|name| Mix::named(name)) {
            let planned = Quantizer::new(file, mix, &[])?;
            let bytes: HashMap<&str, u64> =
                planned.tensors().iter().map(|tensor| (tensor.name.as_str(), tensor.bytes)).collect();
            let all: u64 = bytes.values().sum();
            let experts = TokenBytes::new(&uses, |name| bytes.get(name).copied().unwrap_or(0));
            found.push(Candidate {
                format: mix.name().to_owned(),
                file: planned.file_bytes(),
                weights: scaled(loaded, all),
                active: experts.active,
                experts,
            });
        }
        // A model that was published in MXFP4 gains nothing by larger formats, and no other model is meant for MXFP4.
        let published = found.iter().find(|candidate| candidate.format == "MXFP4_MOE").map(|candidate| candidate.file);
        found.retain(|candidate| published.is_none_or(|published| candidate.file <= published));
    }
    if let Some(own) = model.own {
        found.push(Candidate {
            format: own.to_owned(),
            file: file.file_bytes(),
            weights: loaded,
            active,
            experts: token,
        });
    }
    found.sort_by_key(|candidate| std::cmp::Reverse(candidate.file));
    Ok(found)
}

/// Experts of the first layer that has some, and those chosen for a token.
pub fn experts(spec: &ModelSpec) -> Option<(usize, usize)> {
    spec.layers.iter().find_map(|layer| match &layer.mlp {
        Some(MlpSpec::Moe(MoeSpec { experts, routing, .. })) => Some((*experts, routing.top_k)),
        _ => None,
    })
}
