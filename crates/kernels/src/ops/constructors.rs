//! Constructors of operations, as one table.
//!
//! `new` takes the fields without defaults, in the order of the struct but outputs last. A setter, named like its field,
//! sets each of the others. A new field of an operation gets a default here, so calls of `new` do not change.
//!
//! # Structs of operations are open, their constructors are stable
//!
//! A backend destructures an operation without `..`, so the compiler reports each backend that ignores a new field;
//! `#[non_exhaustive]` would turn this error into wrong numbers. Applications call `new` and setters
//! (`ops/constructors.rs`), in which a new field has a default.
//!
//! - *The caller provides outputs and scratch, so an operation does not allocate. A GPU's workspace grows to the need
//!   of its largest operation, and is kept.*
//! - *A result does not depend on the number of threads. Except for the cases under "GPU", it does not depend on other
//!   rows of the batch. The same batch gives the same bits.*

use super::attention::*;
use super::elementwise::*;
use super::experts::*;
use super::matrix::*;
use super::norm::*;
use super::positions::*;
use super::recurrent::*;
use super::route::*;
use super::sample::*;
use crate::act::{Act, Precision};
use crate::groups::Groups;
use crate::kv::{KvCache, Placement};
use crate::tensor::{Buffer, View, ViewMut};
use crate::weight::Weight;

/// `Type(required fields) optional(fields that are `None`) default(fields with a value);`
macro_rules! constructors {
    ($(
        $Type:ident<$life:lifetime>($($field:ident: $Field:ty),*)
        $(optional($($optional:ident: $Optional:ty),*))?
        $(default($($default:ident: $Default:ty = $value:expr),*))?;
    )*) => {
        $(
            impl<$life> $Type<$life> {
                /// Takes the fields that have no default.
                $($(#[doc = concat!("`", stringify!($optional), "` is `None`.")])*)?
                $($(#[doc = concat!("`", stringify!($default), "` is `", stringify!($value), "`.")])*)?
                pub fn new($($field: $Field),*) -> Self {
                    Self { $($field,)* $($($optional: None,)*)? $($($default: $value,)*)? }
                }

                $($(
                    #[doc = concat!("Sets `", stringify!($optional), "`.")]
                    #[must_use]
                    pub fn $optional(self, $optional: impl Into<Option<$Optional>>) -> Self {
                        Self { $optional: $optional.into(), ..self }
                    }
                )*)?

                $($(
                    #[doc = concat!("Sets `", stringify!($default), "`.")]
                    #[must_use]
                    pub fn $default(self, $default: $Default) -> Self {
                        Self { $default, ..self }
                    }
                )*)?
            }
        )*
    };
}

constructors! {
    Embed<'a>(table: &'a Weight, rows: View<'a, u32>, out: ViewMut<'a, f32>) default(scale: f32 = 1.0);
    PrepareActivations<'a>(x: View<'a, f32>, act: &'a mut Act);

    Matmul<'a>(weight: &'a Weight, x: &'a Act, y: ViewMut<'a, f32>)
        optional(rows: View<'a, u32>, bias: &'a Buffer<f32>)
        default(epilogue: Epilogue = Epilogue::Store);
    GateUp<'a>(weight: &'a Weight, x: &'a Act, h: ViewMut<'a, f32>)
        optional(bias: [&'a Buffer<f32>; 2])
        default(activation: Activation = Activation::SwiGlu);
    GateUpAct<'a>(gate_up: GateUp<'a>, act: &'a mut Act);

    Route<'a>(logits: View<'a, f32>, routing: &'a Routing, ids: ViewMut<'a, u32>, weights: ViewMut<'a, f32>)
        optional(selection_bias: &'a Buffer<f32>, expert_scales: &'a Buffer<f32>, tokens: View<'a, u32>);
    GroupByExpert<'a>(ids: View<'a, u32>, groups: &'a mut Groups);
    RouteAndGroup<'a>(route: Route<'a>, groups: &'a mut Groups);

    MoeMatmul<'a>(weight: &'a Weight, x: &'a Act, groups: &'a Groups, top_k: usize, out: ViewMut<'a, f32>)
        optional(bias: &'a Buffer<f32>);
    MoeGateUp<'a>(weight: &'a Weight, x: &'a Act, groups: &'a Groups, top_k: usize, h: ViewMut<'a, f32>)
        optional(bias: [&'a Buffer<f32>; 2])
        default(activation: Activation = Activation::SwiGlu);
    MoeGateUpAct<'a>(gate_up: MoeGateUp<'a>, act: &'a mut Act);
    MoeCombine<'a>(out: View<'a, f32>, weights: View<'a, f32>, y: ViewMut<'a, f32>)
        default(epilogue: Epilogue = Epilogue::Store);
    ExpertWeights<'a>(gate_up: &'a Weight, down: &'a Weight)
        optional(gate_up_bias: [&'a Buffer<f32>; 2], down_bias: &'a Buffer<f32>)
        default(activation: Activation = Activation::SwiGlu);
    ExpertScratch<'a>(groups: &'a mut Groups, h: ViewMut<'a, f32>, act: &'a mut Act, out: ViewMut<'a, f32>);
    Experts<'a>(route: Route<'a>, weights: ExpertWeights<'a>, x: &'a Act, scratch: ExpertScratch<'a>, y: ViewMut<'a, f32>)
        default(epilogue: Epilogue = Epilogue::Store);

    RmsNorm<'a>(x: View<'a, f32>, weight: &'a Buffer<f32>, eps: f32, out: ViewMut<'a, f32>);
    LayerNorm<'a>(x: View<'a, f32>, weight: &'a Buffer<f32>, bias: &'a Buffer<f32>, eps: f32, out: ViewMut<'a, f32>);
    QkNorm<'a>(x: ViewMut<'a, f32>, weight: &'a Buffer<f32>, eps: f32);
    NormAct<'a>(norm: RmsNorm<'a>, acts: [Option<&'a mut Act>; 2]);
    AddNorm<'a>(norm: RmsNorm<'a>, y: ViewMut<'a, f32>) default(scale: f32 = 1.0, factor: f32 = 1.0);
    AddNormAct<'a>(sum: AddNorm<'a>, act: &'a mut Act) optional(next: (&'a Buffer<f32>, f32));
    AddNorms<'a>(norms: [RmsNorm<'a>; 2], weight: &'a Buffer<f32>, eps: f32, y: ViewMut<'a, f32>)
        default(scale: f32 = 1.0, factor: f32 = 1.0);
    NormMatmul<'a>(norm: RmsNorm<'a>, act: &'a mut Act, weight: &'a Weight, y: ViewMut<'a, f32>)
        optional(other: &'a mut Act, bias: &'a Buffer<f32>);

    Rope<'a>(x: ViewMut<'a, f32>, head_width: usize, positions: View<'a, u32>, rotary: &'a Rotary)
        default(first: usize = 0);
    CopyRows<'a>(x: View<'a, f32>, out: ViewMut<'a, f32>);
    GatherColumns<'a>(x: View<'a, f32>, order: View<'a, u32>, out: ViewMut<'a, f32>);
    Add<'a>(x: View<'a, f32>, y: ViewMut<'a, f32>) default(scale: f32 = 1.0);
    AddGated<'a>(x: View<'a, f32>, gate: View<'a, f32>, y: ViewMut<'a, f32>);
    Scale<'a>(factor: f32, y: ViewMut<'a, f32>);
    SoftCap<'a>(cap: f32, y: ViewMut<'a, f32>);
    Clamp<'a>(low: f32, high: f32, y: ViewMut<'a, f32>);

    KvWrite<'a>(cache: &'a mut KvCache, k: View<'a, f32>, placement: &'a Placement) optional(v: View<'a, f32>);
    KvCopy<'a>(cache: &'a mut KvCache, blocks: &'a [(u32, u32)]);
    AttentionOptions<'a>(heads: usize, scale: f32, precision: Precision)
        optional(temperature: Temperature, window: Window, ends: &'a Buffer<u32>, sinks: &'a Buffer<f32>, softcap: f32)
        default(first: usize = 0);
    Attention<'a>(
        q: View<'a, f32>, cache: &'a KvCache, placement: &'a Placement, options: AttentionOptions<'a>,
        out: ViewMut<'a, f32>
    );
    AttentionAct<'a>(attention: Attention<'a>, act: &'a mut Act) default(by_head: bool = false);
    LatentWrite<'a>(
        rows: ViewMut<'a, f32>, queries: ViewMut<'a, f32>, heads: usize, norm: &'a Buffer<f32>, eps: f32,
        cache: &'a mut KvCache, placement: &'a Placement, plain: &'a mut Act, rotated: ViewMut<'a, f32>
    )
        optional(rotary: &'a Rotary);
    QkNorms<'a>(weights: [&'a Buffer<f32>; 2], eps: f32)
        optional(values: &'a Buffer<f32>)
        default(after_rotation: bool = false);
    QkvWrite<'a>(
        qkv: ViewMut<'a, f32>, heads: usize, rotary: &'a Rotary, cache: &'a mut KvCache, placement: &'a Placement
    )
        optional(norms: QkNorms<'a>);
    Attend<'a>(
        qkv: ViewMut<'a, f32>, rotary: &'a Rotary, cache: &'a mut KvCache, placement: &'a Placement,
        options: AttentionOptions<'a>, out: ViewMut<'a, f32>, act: &'a mut Act
    )
        optional(norms: QkNorms<'a>);

    CausalConv<'a>(
        x: View<'a, f32>, weight: &'a Buffer<f32>, state: ViewMut<'a, f32>, runs: &'a Runs, out: ViewMut<'a, f32>
    )
        optional(bias: &'a Buffer<f32>)
        default(silu: bool = false);
    GatedNorm<'a>(x: ViewMut<'a, f32>, gate: View<'a, f32>, weight: &'a Buffer<f32>, eps: f32)
        default(width: usize = weight.len(), order: GateOrder = GateOrder::AfterNorm);
    Multiply<'a>(x: View<'a, f32>, gate: View<'a, f32>, kind: GateKind, out: ViewMut<'a, f32>);
    MultiplyAct<'a>(multiply: Multiply<'a>, act: &'a mut Act);

    Argmax<'a>(x: View<'a, f32>, out: ViewMut<'a, u32>);
    Sample<'a>(logits: ViewMut<'a, f32>, parameters: &'a [Sampling<'a>], out: ViewMut<'a, u32>);
}
