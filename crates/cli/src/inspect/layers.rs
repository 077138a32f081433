//! The layers of a model in words.

use gristmill_engine::model::spec::{
    AttentionSpec, BlockInputs, ChannelGates, ConvolutionSpec, DeltaProjections, DeltaSpec, LatentSpec, LayerSpec,
    Mixer, MlpSpec, ModelSpec, MoeSpec, ScanSpec, SharedExpert,
};
use gristmill_kernels::ops::{DecayKind, GateKind, Gating, GroupWorth, Routing, Window};
use serde::Serialize;

/// Layers that follow each other and are alike.
#[derive(Serialize, Debug, PartialEq)]
pub(super) struct LayerRun {
    /// From 0.
    first: usize,
    last: usize,
    pub(super) what: String,
}

impl LayerRun {
    /// The numbers of the layers.
    pub(super) fn name(&self) -> String {
        match self.first == self.last {
            true => format!("layer {}", self.first),
            false => format!("layers {}-{}", self.first, self.last),
        }
    }
}

/// All layers of the file, those that are not loaded too.
pub(super) fn runs(spec: &ModelSpec) -> Vec<LayerRun> {
    let mut runs: Vec<LayerRun> = Vec::new();
    let left_out =
        (0..spec.prediction_layers).map(|_| "predicts further tokens (MTP); loaded only to draft".to_owned());
    for (index, what) in spec.layers.iter().map(|it| layer(it, spec)).chain(left_out).enumerate() {
        match runs.last_mut().filter(|run| run.what == what) {
            Some(run) => run.last = index,
            None => runs.push(LayerRun { first: index, last: index, what }),
        }
    }
    runs
}

fn layer(layer: &LayerSpec, spec: &ModelSpec) -> String {
    let mixers: Vec<String> = layer.mixer.parts().iter().map(mixer_in_words).collect();
    let mixer = if mixers.is_empty() { "no mixer".to_owned() } else { mixers.join(" and beside it ") };
    let mlp = match &layer.mlp {
        None => "no MLP".to_owned(),
        Some(MlpSpec::Dense { inner, .. }) => format!("dense MLP of width {inner}"),
        Some(MlpSpec::Moe(MoeSpec {
            experts,
            inner,
            routing,
            selection_bias,
            shared,
            beside,
            weighs_input,
            latent,
            ..
        })) => {
            let router = router(routing, *selection_bias);
            let weighed = if *weighs_input { ", whose input is weighed" } else { "" };
            let shared = shared.as_ref().map_or(String::new(), for_all);
            let beside = beside.map_or(String::new(), |inner| format!("; beside them an MLP of width {inner}"));
            let latent = latent.map_or(String::new(), |width| format!(" on rows of width {width}"));
            format!("{experts} experts of width {inner}{latent}, {router}{weighed}{shared}{beside}")
        }
        Some(other) => format!("{other:?}"),
    };
    let then = if spec.inputs == BlockInputs::Shared { " and beside it" } else { "," };
    let own = spec.layer_inputs.map_or(String::new(), |width| format!("; an input of its own of width {width}"));
    format!("{mixer}{then} {mlp}{own}")
}

fn mixer_in_words(mixer: &Mixer) -> String {
    match mixer {
        Mixer::Attention(attention) => attention_in_words(attention),
        Mixer::Delta(delta) => delta_in_words(delta),
        Mixer::Convolution(ConvolutionSpec { taps }) => format!("convolution of {taps} tokens between two gates"),
        Mixer::Latent(latent) => latent_in_words(latent),
        Mixer::Scan(ScanSpec { heads, taps, .. }) => format!(
            "selective scan of {} heads, each with a state of {} x {}, after a convolution of {taps} tokens",
            heads.heads, heads.width, heads.state
        ),
        other => format!("{other:?}"),
    }
}

fn delta_in_words(DeltaSpec { heads, taps, projections, .. }: &DeltaSpec) -> String {
    let gates = match projections {
        DeltaProjections::PerChannel(ChannelGates { decay: DecayKind::Bounded(bound), .. }) => {
            format!(" (a gate for each element, from {bound})")
        }
        DeltaProjections::PerChannel(_) => " (a gate for each element)".to_owned(),
        _ => String::new(),
    };
    format!(
        "gated delta rule of {} heads, each with a state of {width} x {width}{gates}, after a convolution of {taps} tokens",
        heads.values,
        width = heads.width
    )
}

/// Latent attention, and the width of what the cache has for a token.
fn latent_in_words(latent: &LatentSpec) -> String {
    let unlike = [
        latent.query_rank.map(|rank| format!("queries through {rank} elements")),
        latent.rope.is_none().then(|| "nothing rotated".to_owned()),
        latent.is_gated.then(|| "a gate for each head".to_owned()),
    ];
    let unlike: Vec<String> = unlike.into_iter().flatten().collect();
    let unlike = if unlike.is_empty() { String::new() } else { format!(" ({})", unlike.join(", ")) };
    format!("latent attention of {} heads to rows of {} elements{unlike}", latent.heads, latent.row())
}

/// The tokens that are seen, then what is unlike plain attention.
fn attention_in_words(attention: &AttentionSpec) -> String {
    let seen = match attention.window {
        Some(Window::Last(tokens)) => format!("attention to the last {tokens} tokens"),
        Some(Window::Chunk(tokens)) => format!("attention to the token's own chunk of {tokens}"),
        None => "attention".to_owned(),
    };
    let gate = attention.gate.map(|gate| {
        let of = if gate.per_head { "head" } else { "element" };
        match gate.kind {
            GateKind::Softplus => format!("a gate (softplus) for each {of}"),
            _ => format!("a gate for each {of}"),
        }
    });
    let unlike = [
        attention.rope.is_none().then(|| "nothing rotated".to_owned()),
        attention.kv_from.map(|layer| format!("keys and values of layer {layer}")),
        attention.values_are_keys.then(|| "keys that are the values too".to_owned()),
        attention.temperature.map(|_| "a temperature of queries".to_owned()),
        attention.cap.map(|cap| format!("logits below {cap}")),
        attention.sinks.then(|| "a sink for each head".to_owned()),
        gate,
    ];
    let unlike: Vec<String> = unlike.into_iter().flatten().collect();
    if unlike.is_empty() { seen } else { format!("{seen} ({})", unlike.join(", ")) }
}

fn router(routing: &Routing, biased: bool) -> String {
    let Routing { top_k, gating, normalise, scale, groups, top_groups, worth } = *routing;
    let mut text = format!("{top_k} chosen by ");
    text += match gating {
        Gating::Softmax => "softmax",
        Gating::SoftmaxOfChosen => "their logits, weighed by softmax of the chosen",
        Gating::Sigmoid => "sigmoid",
        Gating::SparseMixer { .. } => "SparseMixer",
    };
    if biased {
        text += " plus a bias";
    }
    if top_groups < groups {
        text += &format!(" in the best {top_groups} of {groups} groups");
        if worth == GroupWorth::Highest {
            text += " by their best expert";
        }
    }
    if normalise && gating != Gating::SoftmaxOfChosen {
        text += ", weights with a sum of 1";
    }
    if scale != 1.0 {
        text += &format!(", times {scale}");
    }
    text
}

fn for_all(shared: &SharedExpert) -> String {
    let gate = if shared.gated { " behind a gate" } else { "" };
    format!("; one of width {} for every token{gate}", shared.inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routers_in_words() {
        let plain = Routing::softmax(8, true);
        let groups = Routing { gating: Gating::Sigmoid, scale: 2.5, groups: 8, top_groups: 4, ..plain };
        let chosen = Routing { gating: Gating::SoftmaxOfChosen, ..plain };
        for (routing, biased, text) in [
            (plain, false, "8 chosen by softmax, weights with a sum of 1"),
            (
                groups,
                true,
                "8 chosen by sigmoid plus a bias in the best 4 of 8 groups, weights with a sum of 1, times 2.5",
            ),
            (chosen, false, "8 chosen by their logits, weighed by softmax of the chosen"),
        ] {
            assert_eq!(router(&routing, biased), text);
        }
    }

    #[test]
    fn equal_layers_are_one_run() {
        let run = |first, last| LayerRun { first, last, what: String::new() }.name();
        assert_eq!((run(0, 0), run(1, 45)), ("layer 0".to_owned(), "layers 1-45".to_owned()));
    }
}
