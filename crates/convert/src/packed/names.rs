//! Names of tensors in quantised folders.

/// Ends of the names of quantised weights, where floats end in `weight`.
pub(crate) const WEIGHTS: [&str; 2] = ["qweight", "weight_packed"];

/// Ends of the names of scales with which other programs round activations and KV caches; here both keep their types.
pub(crate) const SCALES_OF_ACTIVATIONS: [&str; 9] = [
    "activation_scale",
    "input_scale",
    "input_zero_point",
    "input_global_scale",
    "output_scale",
    ".k_scale",
    ".v_scale",
    ".q_scale",
    ".prob_output_scale",
];
