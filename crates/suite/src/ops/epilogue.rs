//! Products that are stored, or added to what the output holds.

use super::common::*;
use crate::guarded::buffer;
use crate::rng::Rng;
use crate::suite::Output;
use crate::weights::{energy, tensor};
use gristmill_kernels::tensor::ViewMut;
use gristmill_kernels::weight::Role;

/// An output with an epilogue.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) epilogue: Epilogue,
    /// The output before, to which the epilogue may add.
    before: Vec<f32>,
}

impl Target {
    pub(super) fn new(rng: &mut Rng, len: usize) -> Self {
        let scale = rng.pick(&[1.0, 0.22]);
        let epilogue = if rng.chance(0.6) { Epilogue::Add { scale } } else { Epilogue::Store };
        Self { epilogue, before: rng.normals(len) }
    }

    /// Calls `work` with the output and reads it.
    pub(super) fn after(&self, b: &Backend, rows: usize, cols: usize, work: &dyn Fn(ViewMut<f32>)) -> Output {
        let mut y = match self.epilogue {
            Epilogue::Add { .. } => Guarded::of(b, &self.before, rows, cols, Guard::ODD),
            Epilogue::Store => Guarded::poisoned(b, rows, cols, Guard::ODD),
        };
        work(y.view_mut());
        y.read(b).into()
    }
}

/// [`Matmul`] with every epilogue, of all rows of X and of some.
pub fn epilogues(suite: &Suite) {
    let rng = &mut suite.rng("epilogues");
    for (i, &tokens) in suite.some("epilogues", TOKENS.iter().chain(TOKENS).enumerate()) {
        let precision = PRECISIONS[i % 2];
        let tensors: Vec<_> = (0..rng.between(1, 2))
            .map(|_| {
                let format = rng.pick(suite.formats());
                let rows = rng.pick(&[1, 17, 130]);
                tensor(rng, format, 1, rows, 256)
            })
            .collect();
        let rows: usize = tensors.iter().map(|tensor| tensor.rows).sum();
        let x = rng.normals(tokens * 256);
        let target = Target::new(rng, tokens * rows);
        let bias = rng.chance(0.5).then(|| rng.normals(rows));
        let chosen =
            (tokens > 0 && rng.chance(0.4)).then(|| (0..tokens).map(|_| rng.below(tokens) as u32).collect::<Vec<_>>());
        let run = |b: &Backend| {
            let weight = b.prepare(&tensors, Role::Matrix).expect("prepare");
            let bias = bias.as_ref().map(|bias| buffer(b, bias));
            let chosen = chosen.as_ref().map(|chosen| Guarded::of(b, chosen, tokens, 1, Guard::ODD));
            target.after(b, tokens, rows, &|y| {
                let act = activations(b, precision, &x, tokens, 256);
                let bias = bias.as_ref();
                let epilogue = target.epilogue;
                let rows = chosen.as_ref().map(Guarded::view);
                b.run(Matmul { rows, bias, epilogue, ..Matmul::new(&weight, &act, y) }).expect("matmul");
            })
        };
        let case = format!("{} · {tokens}, {precision:?}, {:?}, rows {chosen:?}", tensors[0].name, target.epilogue);
        let kind = kind(["epilogues exact", "epilogues bf16", "epilogues int8"], &tensors, precision);
        suite.check(kind, &case, nmse(product_bound(&tensors, precision, &x), energy(&tensors, &x)), &run);
    }
}
