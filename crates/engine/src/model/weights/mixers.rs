//! The tensors of mixers.

use gristmill_kernels::weight::Role;

use super::table::{Make, RowOrder, TensorSpec, tensor_spec};
use super::{AttentionWeights, ConvolutionWeights, DeltaWeights, MixerWeights};
use crate::error::Result;
use crate::model::spec::{AttentionSpec, ConvolutionSpec, DeltaProjections, DeltaSpec, GateRows, Mixer, QkNorm};

/// The weights of a mixer of `hidden` columns; `name` makes a tensor's name of a part of it.
pub(super) fn mixer<T: Make>(
    name: &dyn Fn(&str) -> String,
    hidden: usize,
    spec: &Mixer,
    make: &mut T,
) -> Result<MixerWeights<T::Matrix, T::Vector>> {
    Ok(match spec {
        Mixer::Attention(spec) => MixerWeights::Attention(attention(name, hidden, spec, make)?),
        Mixer::Delta(spec) => MixerWeights::Delta(delta(name, hidden, spec, make)?),
        Mixer::Convolution(spec) => MixerWeights::Convolution(convolution(name, hidden, *spec, make)?),
    })
}

fn attention<T: Make>(
    name: &dyn Fn(&str) -> String,
    hidden: usize,
    spec: &AttentionSpec,
    make: &mut T,
) -> Result<AttentionWeights<T::Matrix, T::Vector>> {
    let parts = attention_parts(spec, make.shape(&name("attn_qkv.weight")).is_some());
    let tensors = parts.iter().map(|(part, rows)| tensor_spec(name(&format!("attn_{part}.weight")), &[hidden, *rows]));
    let mut weights: Vec<_> = tensors.collect();
    // The gate comes first, so that queries, keys and values stay together.
    match (spec.gate.map(|gate| gate.rows), weights.first_mut()) {
        (None, _) | (_, None) => {}
        (Some(GateRows::WithQueries), Some(queries)) => {
            let order = RowOrder { parts: vec![spec.key_width, spec.value_width], order: vec![1, 0] };
            let rows = spec.query_columns() + spec.attended_columns();
            *queries = TensorSpec { order: Some(order), ..tensor_spec(name("attn_q.weight"), &[hidden, rows]) };
        }
        (Some(GateRows::Apart), _) => {
            weights.insert(0, tensor_spec(name("attn_gate.weight"), &[hidden, spec.gate_columns()]));
        }
    }
    let biases: Vec<_> =
        parts.iter().map(|(part, rows)| tensor_spec(name(&format!("attn_{part}.bias")), &[*rows])).collect();
    let norms = spec.qk_norm.map(|over| match over {
        QkNorm::PerHead | QkNorm::PerHeadUnweighted => [spec.key_width; 2],
        QkNorm::WholeRow => [spec.query_columns(), spec.key_columns()],
    });
    let [q_norm, k_norm] = [norms.map(|[q, _]| q), norms.map(|[_, k]| k).filter(|_| spec.kv_from.is_none())];
    let unweighted = spec.qk_norm == Some(QkNorm::PerHeadUnweighted);
    let mut norm = |part: &str, width: Option<usize>| {
        let weight = |width| match unweighted {
            true => make.ones(width),
            false => make.vector(&[tensor_spec(name(part), &[width])]),
        };
        width.map(weight).transpose()
    };
    let (q_norm, k_norm) = (norm("attn_q_norm.weight", q_norm)?, norm("attn_k_norm.weight", k_norm)?);
    Ok(AttentionWeights {
        qkv: make.matrix(Role::Matrix, &weights)?,
        qkv_bias: spec.qkv_bias.then(|| make.vector(&biases)).transpose()?,
        q_norm,
        k_norm,
        value_norm: spec.value_norm.then(|| make.ones(spec.value_width)).transpose()?,
        sinks: spec.sinks.then(|| make.vector(&[tensor_spec(name("attn_sinks.weight"), &[spec.heads])])).transpose()?,
        output: make
            .matrix(Role::Matrix, &[tensor_spec(name("attn_output.weight"), &[spec.attended_columns(), hidden])])?,
        output_bias: spec
            .output_bias
            .then(|| make.vector(&[tensor_spec(name("attn_output.bias"), &[hidden])]))
            .transpose()?,
    })
}

/// The tensors of queries, keys and values, with their rows: one if the file has them `together`.
fn attention_parts(spec: &AttentionSpec, together: bool) -> Vec<(&'static str, usize)> {
    let apart = [("q", spec.query_columns()), ("k", spec.key_columns()), ("v", spec.value_columns())];
    if spec.kv_from.is_some() {
        return apart[..1].to_vec();
    }
    match (together, spec.values_are_keys) {
        (true, false) if spec.gate.map(|gate| gate.rows) != Some(GateRows::WithQueries) => {
            vec![("qkv", spec.qkv_columns())]
        }
        (_, true) => [apart[0], apart[1], ("k", spec.value_columns())].into(),
        _ => apart.into(),
    }
}

/// Queries, keys and values, then the gate, β and α, whatever tensors they are in.
fn projections(name: &dyn Fn(&str) -> String, hidden: usize, spec: &DeltaSpec) -> Vec<TensorSpec> {
    let (keys, values, width) = (spec.heads.keys, spec.heads.values, spec.heads.width);
    let shared = values / keys;
    let matrix = |part: &str, rows| tensor_spec(name(&format!("{part}.weight")), &[hidden, rows]);
    let ordered = |part: &str, parts: Vec<usize>| {
        let (rows, order) = (keys * parts.iter().sum::<usize>(), (0..parts.len()).collect());
        TensorSpec { order: Some(RowOrder { parts, order }), ..matrix(part, rows) }
    };
    let apart = [matrix("attn_qkv", spec.heads.columns()), matrix("attn_gate", values * width)];
    let gates = ordered("ssm_ba", vec![shared, shared]);
    match spec.projections {
        DeltaProjections::Apart => {
            apart.into_iter().chain([matrix("ssm_beta", values), matrix("ssm_alpha", values)]).collect()
        }
        DeltaProjections::GatesJoined => apart.into_iter().chain([gates]).collect(),
        DeltaProjections::Joined => {
            vec![ordered("ssm_in", vec![width, width, shared * width, shared * width]), gates]
        }
    }
}

fn delta<T: Make>(
    name: &dyn Fn(&str) -> String,
    hidden: usize,
    spec: &DeltaSpec,
    make: &mut T,
) -> Result<DeltaWeights<T::Matrix, T::Vector>> {
    let (heads, values) = (spec.heads, spec.heads.values);
    let mut vector = |part: &str, shape: &[usize]| make.vector(&[tensor_spec(name(part), shape)]);
    Ok(DeltaWeights {
        convolution: vector("ssm_conv1d.weight", &[spec.taps, heads.columns()])?,
        decay: vector("ssm_a", &[values])?,
        dt_bias: vector("ssm_dt.bias", &[values])?,
        norm: vector("ssm_norm.weight", &[heads.width])?,
        input: make.matrix(Role::Matrix, &projections(name, hidden, spec))?,
        output: make.matrix(Role::Matrix, &[tensor_spec(name("ssm_out.weight"), &[values * heads.width, hidden])])?,
    })
}

fn convolution<T: Make>(
    name: &dyn Fn(&str) -> String,
    hidden: usize,
    ConvolutionSpec { taps }: ConvolutionSpec,
    make: &mut T,
) -> Result<ConvolutionWeights<T::Matrix, T::Vector>> {
    Ok(ConvolutionWeights {
        convolution: make.vector(&[tensor_spec(name("shortconv.conv.weight"), &[taps, hidden])])?,
        input: make.matrix(Role::Matrix, &[tensor_spec(name("shortconv.in_proj.weight"), &[hidden, 3 * hidden])])?,
        output: make.matrix(Role::Matrix, &[tensor_spec(name("shortconv.out_proj.weight"), &[hidden, hidden])])?,
    })
}
