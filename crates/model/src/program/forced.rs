//! Choices of experts that replace those of the routers.
//!
//! The routers' kernels stay as they are: they read other logits, with a rule whose choice of these logits is known. So a forced pass
//! has the launches of any pass, on every backend, also where a kernel routes for itself.
//!
//! # Forced experts
//!
//! `Runner::forward_forced` uploads logits whose choice is known, and the routers' kernels read these with a rule that
//! compares logits only. So no kernel differs, and every backend and placement can be forced.

use gristmill_kernels::Backend;
use gristmill_kernels::ops::{Gating, Routing};
use gristmill_kernels::tensor::{Buffer, View};

use crate::error::{Error, Result};
use crate::spec::{MlpSpec, ModelSpec, MoeSpec, RouterSize};

/// The logit of an expert that is not chosen: finite, and far below those of chosen experts. Its sigmoid is 0.
const NOT_CHOSEN: f32 = -1e30;
/// The smallest weight whose logarithm is taken.
const LEAST_WEIGHT: f32 = 1e-30;
/// The largest weight of a sigmoid, in units of the router's scale.
const SIGMOID_RANGE: f32 = 64.0;

/// The experts of a token, in place of what the routers would choose.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ForcedExperts {
    /// The experts: those of each layer with experts, one layer after another.
    pub ids: Vec<u32>,
    /// Their weights, likewise; none for equal weights. Of routers that normalise the weights of the chosen experts, only the
    /// ratios count.
    pub weights: Vec<f32>,
}

impl ForcedExperts {
    /// Checks the choices for routers of these sizes.
    ///
    /// # Errors
    /// [`Error::ForcedExperts`] with the layer and the reason.
    pub fn check(&self, routers: &[RouterSize]) -> Result<()> {
        let fail = |layer, reason| Err(Error::ForcedExperts { layer, reason });
        let (ids, weights) = (self.ids.len(), self.weights.len());
        if weights != 0 && weights != ids {
            return fail(0, format!("there are {weights} weights (expected {ids}, one for each expert, or none)"));
        }
        let mut first = 0;
        for (layer, router) in routers.iter().enumerate() {
            let Some(chosen) = self.ids.get(first..first + router.top_k) else {
                let left = ids.saturating_sub(first);
                return fail(layer, format!("there are {left} experts (expected {})", router.top_k));
            };
            for (i, &id) in chosen.iter().enumerate() {
                if id as usize >= router.experts {
                    return fail(layer, format!("there is no expert {id} (expected less than {})", router.experts));
                }
                if chosen[..i].contains(&id) {
                    return fail(layer, format!("expert {id} is there twice (expected {} experts)", router.top_k));
                }
            }
            let own = self.weights.iter().skip(first).take(router.top_k);
            if let Some(weight) = own.clone().find(|weight| !(weight.is_finite() && **weight >= 0.0)) {
                return fail(layer, format!("a weight is {weight} (expected a finite number from 0 on)"));
            }
            if !self.weights.is_empty() && router.top_k > 0 && own.sum::<f32>() <= 0.0 {
                return fail(layer, "the sum of the weights is 0 (expected more)".to_owned());
            }
            first += router.top_k;
        }
        if first < ids {
            return fail(routers.len(), format!("there are {} more experts (expected none)", ids - first));
        }
        Ok(())
    }
}

/// A layer of forced choices.
#[derive(Clone, Copy, Debug)]
struct ForcedLayer {
    router: RouterSize,
    /// Choices of a token in earlier layers, and their logits.
    choices: usize,
    column: usize,
    /// How the logits become weights.
    rule: Routing,
    /// Each of equal weights.
    equal_weight: f32,
}

impl ForcedLayer {
    fn logit(&self, weight: f32) -> f32 {
        let weight = weight.max(LEAST_WEIGHT);
        match self.rule.gating {
            Gating::Sigmoid => {
                let share = f64::from(weight / self.rule.scale).min(0.999);
                (share / (1.0 - share)).ln() as f32
            }
            _ => weight.ln(),
        }
    }
}

/// A rule that compares logits only, and whose weights can be those of the router's own rule.
fn rule(spec: &MoeSpec) -> Routing {
    let own = spec.routing;
    let is_normalised = (own.normalise || own.gating == Gating::SoftmaxOfChosen) && !spec.expert_scales;
    let (gating, scale) = match is_normalised {
        true => (Gating::SoftmaxOfChosen, own.scale),
        false => (Gating::Sigmoid, own.scale * SIGMOID_RANGE),
    };
    Routing { gating, scale, normalise: false, groups: 1, top_groups: 1, ..own }
}

/// The logits of forced choices on a device.
#[derive(Debug)]
pub(crate) struct Forced {
    /// The layers with experts.
    layers: Vec<ForcedLayer>,
    /// Logits of a token.
    width: usize,
    /// Tokens × `width`.
    logits: Buffer<f32>,
    /// What is uploaded.
    values: Vec<f32>,
    /// Whether the current pass is forced.
    pub(crate) is_on: bool,
}

impl Forced {
    /// Allocates for passes of up to `tokens` tokens.
    pub(crate) fn new(backend: &Backend, spec: &ModelSpec, tokens: usize) -> Result<Self> {
        let mut layers = Vec::new();
        let mut choices = 0;
        let mut column = 0;
        for (layer, router) in spec.layers.iter().zip(spec.routers()) {
            let Some(MlpSpec::Moe(moe)) = &layer.mlp else { continue };
            let equal_weight = moe.routing.scale / router.top_k as f32;
            layers.push(ForcedLayer { router, choices, column, rule: rule(moe), equal_weight });
            (choices, column) = (choices + router.top_k, column + router.experts);
        }
        let logits = backend.alloc::<f32>(tokens.saturating_mul(column), "forced choices of experts")?;
        Ok(Self { layers, width: column, logits, values: Vec::new(), is_on: false })
    }

    /// Uploads the choices of a pass of `padded` tokens, which are checked.
    pub(crate) fn upload(&mut self, backend: &Backend, tokens: &[ForcedExperts], padded: usize) -> Result<()> {
        self.values.clear();
        self.values.resize(padded * self.width, NOT_CHOSEN);
        for (token, row) in tokens.iter().zip(self.values.chunks_exact_mut(self.width.max(1))) {
            for layer in &self.layers {
                for at in layer.choices..layer.choices + layer.router.top_k {
                    let weight = token.weights.get(at).copied().unwrap_or(layer.equal_weight);
                    row[layer.column + token.ids[at] as usize] = layer.logit(weight);
                }
            }
        }
        Ok(backend.upload(&self.values, &mut self.logits)?)
    }

    /// The logits of the router whose choices start there, and the rule for them. `None` if the pass is not forced, and for the
    /// routers of prediction heads.
    pub(crate) fn of_router(&self, choices: usize, tokens: usize) -> Result<Option<(View<'_, f32>, Routing)>> {
        let layer = self.layers.iter().find(|layer| self.is_on && layer.choices == choices);
        let Some(ForcedLayer { router, column, rule, .. }) = layer else { return Ok(None) };
        let logits = self.logits.view(tokens, self.width)?.columns(*column..column + router.experts)?;
        Ok(Some((logits, *rule)))
    }
}
