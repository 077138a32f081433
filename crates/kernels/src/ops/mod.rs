//! Every operation, once: a struct with its arguments, its contract, its check and, for a composition, its parts.
//!
//! [`crate::Backend::run`] is the only way to run one. It checks shapes, devices and ids before anything is written,
//! and hands the checked arguments to a backend's [`Kernels`].
//!
//! Operations are built with `new` where it exists, and optional arguments are set as fields. Fields are public because
//! backends read them; a new version may add fields, so a struct literal can need a change where `new` does not.
//!
//! Letters: T tokens, K inputs, N outputs, E experts, k top-k, H heads, D head width. Matrices are row-major; a
//! dimension that an operation can see from two arguments must agree, or it is an [`Error::Shape`]. Outputs and
//! scratch come from the caller; no operation allocates. Every operation accepts zero rows, and does nothing then.
//! The reduction order of an output depends on nothing but its own row: not on the other rows of the batch, nor on
//! the number of threads. (On a GPU, attention may also look at how many tokens of its own sequence are in the batch,
//! and products of rounded activations, [`Precision::Fast`], or with weights in F32, at how many rows there are.)
//!
//! [`Error::Shape`]: crate::error::Error::Shape
//! [`Precision::Fast`]: crate::act::Precision::Fast

mod attention;
pub(crate) mod check;
mod elementwise;
mod experts;
mod kernels;
mod matrix;
mod norm;
mod positions;
mod recurrent;
mod route;
mod sample;
mod sampling;

pub(crate) use kernels::run;

pub use attention::{
    Attend, Attention, AttentionAct, AttentionOptions, KvCopy, KvWrite, QkNorms, QkvWrite, key_and_value_columns,
};
pub use check::{MAX_EXPERTS, PADDING, elements, require};
pub use elementwise::{Add, AddGated, CopyRows, Rope, RopeStyle, Rotary, Scale, SoftCap};
pub use experts::{ExpertScratch, ExpertWeights, Experts, MoeCombine, MoeGateUp, MoeGateUpAct, MoeMatmul};
pub use kernels::{Checked, Fused, Graph, Heap, Kernels, Operation, PendingRead, Rates};
pub use matrix::{Activation, Embed, Epilogue, GateUp, GateUpAct, Matmul, PrepareActivations};
pub use norm::{AddNorm, AddNormAct, AddNorms, LayerNorm, NormAct, NormMatmul, QkNorm, RmsNorm};
pub use positions::{Temperature, Window, visible};
pub use recurrent::{
    CONV_TAPS, CausalConv, DELTA_EPS, DELTA_TILE, DELTA_WIDTHS, DeltaHeads, DeltaRule, GateKind, GatedNorm, HeadMap,
    Multiply, MultiplyAct, RUN_WORDS, Run, Runs,
};
pub use route::{Gating, GroupByExpert, GroupWorth, Route, RouteAndGroup, Routing};
pub use sample::{Argmax, Sample, Sampling};
pub use sampling::{SETTINGS, SamplingOptions, Setting};
