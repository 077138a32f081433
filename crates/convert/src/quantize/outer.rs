//! Scales of whole tensors next to NVFP4 weights: a tensor `X.scale` for `X.weight`, with a number for each expert.
//!
//! E4M3 scales of groups span a factor of 2¹⁸ at most, and small weights would get few of them. So a weight is divided by a
//! scale of its own before it is encoded, as ModelOpt does it. llama.cpp multiplies the product by the scale.

use std::collections::HashSet;

use gristmill_kernels::format::Format;

use super::role::OUTPUT;

/// The weights of a layer of which llama.cpp reads a scale (`load_tensors`, all architectures).
const SCALED: &[&str] = &[
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "attn_qkv",
    "attn_gate",
    "ffn_gate",
    "ffn_down",
    "ffn_up",
    "ffn_gate_shexp",
    "ffn_down_shexp",
    "ffn_up_shexp",
    "ffn_gate_exps",
    "ffn_down_exps",
    "ffn_up_exps",
    "ssm_in",
    "ssm_out",
    "ssm_alpha",
    "ssm_beta",
    "nextn.eh_proj",
    "nextn.shared_head_head",
];

/// The name of the scale of a weight, unless llama.cpp reads none, or the model has another tensor of this name (as Gemma 4
/// has for its experts).
pub(crate) fn scale_name(name: &str, names: &HashSet<&str>) -> Option<String> {
    let weight = name.strip_suffix(".weight")?;
    let in_layer = || weight.strip_prefix("blk.")?.split_once('.').filter(|(_, part)| SCALED.contains(part));
    let scale = format!("{weight}.scale");
    (name == OUTPUT || in_layer().is_some()).then_some(scale).filter(|scale| !names.contains(scale.as_str()))
}

/// The scale that a tensor gets when its format changes: name, and how many numbers it has.
pub(crate) fn scale_of(
    name: &str,
    shape: &[u64],
    [from, to]: [Format; 2],
    names: &HashSet<&str>,
) -> Option<(String, u64)> {
    let is_new = to == Format::NVFP4 && from != to;
    let name = scale_name(name, names).filter(|_| is_new)?;
    Some((name, shape.iter().skip(2).product()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_scales() {
        let names = HashSet::from(["blk.1.ffn_down_exps.scale"]);
        let scale = |name: &str| scale_name(name, &names);
        assert_eq!(scale("blk.0.ffn_down_exps.weight").as_deref(), Some("blk.0.ffn_down_exps.scale"));
        assert_eq!(scale("output.weight").as_deref(), Some("output.scale"));
        for none in ["blk.1.ffn_down_exps.weight", "token_embd.weight", "blk.0.attn_kv_b.weight", "blk.0.attn_q.bias"] {
            assert_eq!(scale(none), None, "{none}");
        }
        let of = |from, to| scale_of("blk.0.ffn_up_exps.weight", &[64, 8, 5], [from, to], &names);
        assert_eq!(of(Format::BF16, Format::NVFP4), Some(("blk.0.ffn_up_exps.scale".to_owned(), 5)));
        assert_eq!(of(Format::NVFP4, Format::NVFP4), None);
        assert_eq!(of(Format::BF16, Format::Q8_0), None);
        assert_eq!(scale_of("output.weight", &[64, 8], [Format::F32, Format::NVFP4], &names).map(|s| s.1), Some(1));
    }
}
