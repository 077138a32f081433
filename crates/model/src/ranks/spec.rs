//! The spec of a rank's part of a model.

use gristmill_files::gguf::GgufFile;
use gristmill_kernels::kv::KvFormat;
use gristmill_kernels::ops::Window;

use super::{RankPart, Split};
use crate::error::{Error, Result};
use crate::program::tensors::has_column_order;
use crate::spec::{AttentionSpec, LayerSpec, Mixer, ModelSpec, QkNorm};

/// The model with the attention heads that a rank has: of a layer whose attention cannot be split, all.
pub(crate) fn own_spec(spec: &ModelSpec, file: &GgufFile, part: &RankPart) -> ModelSpec {
    let mut own = spec.clone();
    if part.is_in_a_row() {
        let layers = part.layers(spec.layers.len());
        let others = own.layers.iter_mut().enumerate().filter(|(layer, _)| !layers.contains(layer));
        others.for_each(|(_, layer)| *layer = LayerSpec { mixer: Mixer::Sum(Vec::new()), mlp: None });
        return own;
    }
    if part.is_whole() || part.split != Split::Tensor {
        return own;
    }
    let mut is_split: Vec<bool> = (0..)
        .zip(&spec.layers)
        .map(|(index, layer)| layer.attention().is_some_and(|attention| can_split(attention, file, index, part)))
        .collect();
    // Layers that share keys and values are split together.
    let sources = || spec.layers.iter().map(|layer| layer.attention().and_then(|attention| attention.kv_from));
    for (layer, source) in sources().enumerate().filter_map(|(layer, source)| Some((layer, source?))) {
        is_split[source] &= is_split[layer];
    }
    for (layer, source) in sources().enumerate().filter_map(|(layer, source)| Some((layer, source?))) {
        is_split[layer] &= is_split[source];
    }
    for (layer, _) in own.layers.iter_mut().zip(is_split).filter(|(_, is_split)| *is_split) {
        if let Some(attention) = attention_mut(&mut layer.mixer)
            && let Some([queries, keys]) = part.heads(attention)
        {
            (attention.heads, attention.kv_heads) = (queries.len(), keys.len());
        }
    }
    own
}

/// Refuses a model whose layers cannot be split.
pub(crate) fn check_layers(spec: &ModelSpec, part: &RankPart) -> Result<()> {
    let refuse =
        |reason: String| Err(Error::Split { reason: format!("{reason}; name one device, or choose another split") });
    let (ranks, count) = (part.ranks, spec.layers.len());
    if count < ranks {
        return refuse(format!("{ranks} devices have no layer each of {count}"));
    }
    if spec.layer_inputs.is_some() {
        return refuse("the model's embeddings of each layer cannot be on several devices".to_owned());
    }
    let layers = |rank: usize| part.of_rank(rank).layers(count);
    // Ranks with other kinds of state would find other starts of texts in their caches.
    let kinds = |rank: usize| {
        let mut kinds = Vec::new();
        for layer in &spec.layers[layers(rank)] {
            let window = layer.attention().and_then(|attention| attention.window).map(Window::positions);
            let kind = (layer.cache(KvFormat::F16).map(|_| window), layer.mixer.fixed_state(spec.hidden).is_empty());
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        kinds
    };
    let first = kinds(0);
    let is_same = |rank: &usize| {
        let kinds = kinds(*rank);
        kinds.len() == first.len() && kinds.iter().all(|kind| first.contains(kind))
    };
    if let Some(rank) = (1..ranks).find(|rank| !is_same(rank)) {
        return refuse(format!("the layers of device {rank} have other kinds of state than those of device 0"));
    }
    let shared = (0..ranks).any(|rank| {
        let own = layers(rank);
        let mut sources = spec.layers[own.clone()].iter().filter_map(|layer| layer.attention()?.kv_from);
        sources.any(|source| !own.contains(&source))
    });
    if shared { refuse("layers read keys and values of another device's layers".to_owned()) } else { Ok(()) }
}

/// Whether each rank can have some of the heads, and the columns of the output matrix that belong to them.
fn can_split(spec: &AttentionSpec, file: &GgufFile, layer: usize, part: &RankPart) -> bool {
    let name = format!("blk.{layer}.attn_output.weight");
    let block = file.tensor(&name).map_or(1, |tensor| tensor.format.block_len());
    // A norm over all heads needs the heads of all ranks.
    spec.qk_norm != Some(QkNorm::WholeRow)
        && part.heads(spec).is_some_and(|[queries, _]| (queries.len() * spec.value_width).is_multiple_of(block))
        && !has_column_order(file, &name)
}

fn attention_mut(mixer: &mut Mixer) -> Option<&mut AttentionSpec> {
    match mixer {
        Mixer::Attention(spec) => Some(spec),
        Mixer::Sum(mixers) => mixers.iter_mut().find_map(attention_mut),
        _ => None,
    }
}
