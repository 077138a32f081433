//! Repetitions of prefill and decode of one model.

use std::sync::Arc;

use gristmill_cpu::Profile;
use gristmill_engine::{Limits, Model};

use super::cost::{Cost, StepSpans};
use super::machine::Machine;
use super::measure::{Bench, Ran, Workload};
use super::profile::Phase;
use super::report::{Report, Row};
use crate::error::LabError;
use crate::routing::{Routing, RoutingArg};

/// The settings that measurements share.
#[derive(Clone, Copy)]
pub struct Measurement<'a> {
    /// Of the CPU, for the report.
    pub threads: usize,
    /// Repetitions after the one that warms up.
    pub repeats: usize,
    /// Whose limits the rates are compared with.
    pub machine: Machine,
    /// The experts that passes are forced to use.
    pub routing: Option<&'a RoutingArg>,
}

impl Measurement<'_> {
    /// The experts that passes of a model are forced to use.
    ///
    /// # Errors
    /// If the model has no experts, or the trace is not one of this model.
    pub fn forced(routing: Option<&RoutingArg>, model: &Model, sequences: usize) -> Result<Option<Routing>, LabError> {
        routing.map(|routing| routing.open(&model.spec().routers(), sequences)).transpose()
    }

    /// Measures a model, whose operations go into `profile` if there is one. `name` is that of the model in the report,
    /// and `progress` is called after each repetition.
    ///
    /// # Errors
    /// If a pass fails.
    pub fn run(
        &self,
        name: String,
        model: &Arc<Model>,
        workload: Workload,
        limits: Limits,
        profile: Option<Arc<Profile>>,
        progress: &dyn Fn(),
    ) -> Result<Report, LabError> {
        let Measurement { threads, repeats, machine, routing } = *self;
        let cost = Cost::of(model.spec(), &model.tensor_uses(), model.file(), limits.kv_format);
        let forced = Measurement::forced(routing, model, workload.batch)?;
        let mut bench = Bench::new(Arc::clone(model), workload, limits, profile.clone(), forced)?;
        let [warm_prefill, warm_decode] = bench.warm_up()?;
        progress();
        let (mut prefill, mut decode) = (Vec::new(), Vec::new());
        for _ in 0..repeats {
            prefill.extend((workload.prompt > 0).then(|| bench.prefill()).transpose()?);
            decode.extend((workload.decode > 0).then(|| bench.decode()).transpose()?);
            progress();
        }
        let row = |steps: &[StepSpans], Ran { routing, .. }: Ran, runs: &[Ran]| {
            let seconds = runs.iter().map(|ran| ran.seconds).collect();
            Some(Row::new(&cost.of_steps(steps, &routing), &routing, seconds, &machine)?.with_slots(runs))
        };
        Ok(Report {
            model: name,
            architecture: model.spec().architecture.clone(),
            layers: model.spec().layers.len(),
            file_bytes: model.file().file_bytes(),
            device: model.device_name(),
            threads,
            workload,
            repeats,
            routing: routing.map(RoutingArg::to_string),
            machine,
            prefill: row(&bench.prefill_steps(), warm_prefill, &prefill),
            decode: row(&bench.decode_steps(), warm_decode, &decode),
            profile: profile.map(|_| [prefill, decode].map(|runs| Phase::new(&runs, &machine))),
        })
    }
}
