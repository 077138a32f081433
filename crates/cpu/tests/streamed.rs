//! Experts that are read while the model runs have the bits of experts in memory, with any number of slots; a read that fails
//! is an error of the product, and no product waits forever.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use gristmill_cpu::{Cpu, Level};
use gristmill_kernels::act::Precision;
use gristmill_kernels::format::Format;
use gristmill_kernels::offload::{MatrixSource, StreamedTensor};
use gristmill_kernels::ops::{
    ExpertScratch, ExpertWeights, Experts, GroupByExpert, MoeGateUp, MoeMatmul, PADDING, PrepareActivations, Route,
    Routing,
};
use gristmill_kernels::weight::{Role, TensorView, Weight};
use gristmill_kernels::{Backend, Error};
use gristmill_suite::rng::Rng;
use gristmill_suite::testing::seed;
use gristmill_suite::weights::tensor;

/// Inputs, inner width and outputs of the experts.
const COLS: usize = 256;
const INNER: usize = 512;
const ROWS: usize = 37;

/// What a read of an expert does instead.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Fault {
    #[default]
    None,
    Fails,
    Panics,
    IsShort,
}

/// A tensor in memory, read slowly and with faults.
#[derive(Debug)]
struct Slow {
    view: TensorView,
    delays: Mutex<Rng>,
    fault: Mutex<(usize, Fault)>,
    reads: AtomicUsize,
}

impl MatrixSource for Slow {
    fn read(&self, expert: usize, take: &mut dyn FnMut(&[u8])) -> Result<(), String> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let delay = self.delays.lock().unwrap().below(300) as u64;
        std::thread::sleep(Duration::from_micros(delay));
        let bytes = self.view.bytes.as_slice();
        let size = self.view.shape().matrix_bytes() as usize;
        let matrix = &bytes[expert * size..][..size];
        let (faulty, fault) = *self.fault.lock().unwrap();
        match fault {
            Fault::Fails if expert == faulty => Err("the disk is gone; bring it back".to_owned()),
            Fault::Panics if expert == faulty => panic!("planned"),
            Fault::IsShort if expert == faulty => {
                take(&matrix[1..]);
                Ok(())
            }
            _ => {
                take(matrix);
                Ok(())
            }
        }
    }
}

fn slow(rng: &mut Rng, view: &TensorView) -> (Arc<Slow>, StreamedTensor) {
    let delays = Mutex::new(Rng::new(rng.bits()));
    let fault = Mutex::default();
    let source = Arc::new(Slow { view: view.clone(), delays, fault, reads: AtomicUsize::new(0) });
    let name = view.name.clone();
    let shape = view.shape();
    (Arc::clone(&source), StreamedTensor { name, shape, source })
}

/// The experts of a layer in memory and streamed, with the sources of the latter: gate, up and down.
struct Layer {
    in_memory: [Weight; 2],
    streamed: [Weight; 2],
    sources: Vec<Arc<Slow>>,
}

impl Layer {
    fn new(rng: &mut Rng, backend: &Backend, experts: usize, slots: usize) -> Self {
        let formats = [Format::Q4_K, Format::Q6_K, Format::Q8_0, Format::IQ4_XS, Format::BF16, Format::F32];
        let mut any = |rows, cols| {
            let format = rng.pick(&formats);
            tensor(rng, format, experts, rows, cols)
        };
        let views = [(vec![any(INNER, COLS), any(INNER, COLS)], Role::GateUp), (vec![any(ROWS, INNER)], Role::Matrix)];
        let mut sources = Vec::new();
        let mut streamed = |(views, role): &(Vec<TensorView>, Role)| {
            let (slow, tensors): (Vec<_>, Vec<_>) = views.iter().map(|view| slow(rng, view)).unzip();
            sources.extend(slow);
            backend.offload().prepare_streamed(&tensors, *role, slots).unwrap()
        };
        let streamed = [streamed(&views[0]), streamed(&views[1])];
        let in_memory = views.map(|(views, role)| backend.prepare(&views, role).unwrap());
        Self { in_memory, streamed, sources }
    }

    fn set_fault(&self, source: usize, expert: usize, fault: Fault) {
        *self.sources[source].fault.lock().unwrap() = (expert, fault);
    }

    fn reads(&self) -> usize {
        self.sources.iter().map(|source| source.reads.load(Ordering::Relaxed)).sum()
    }
}

/// Tokens of a batch and how they are routed.
struct Tokens {
    top_k: usize,
    x: Vec<f32>,
    logits: Vec<f32>,
}

impl Tokens {
    fn new(rng: &mut Rng, experts: usize, count: usize) -> Self {
        let top_k = rng.between(1, experts.min(4));
        Self { top_k, x: rng.normals(count * COLS), logits: rng.normals(count * experts) }
    }

    fn count(&self) -> usize {
        self.x.len() / COLS
    }
}

/// The output of a layer, computed at once.
fn layer(b: &Backend, [gate_up, down]: [&Weight; 2], tokens: &Tokens, precision: Precision) -> Result<Vec<f32>, Error> {
    let count = tokens.count();
    let experts = gate_up.experts();
    let top_k = tokens.top_k;
    let pairs = count * top_k;
    let mut x = b.alloc::<f32>(tokens.x.len(), "x")?;
    b.upload(&tokens.x, &mut x)?;
    let mut act = b.alloc_act(precision, count, COLS)?;
    b.run(PrepareActivations::new(x.view(count, COLS)?, &mut act))?;
    let mut logits = b.alloc::<f32>(tokens.logits.len(), "logits")?;
    b.upload(&tokens.logits, &mut logits)?;
    let (mut ids, mut weights) = (b.alloc::<u32>(pairs, "ids")?, b.alloc::<f32>(pairs, "weights")?);
    let routing = Routing::softmax(top_k, true);
    let (chosen, shares) = (ids.view_mut(count, top_k)?, weights.view_mut(count, top_k)?);
    let route = Route::new(logits.view(count, experts)?, &routing, chosen, shares);
    let mut groups = b.alloc_groups(experts, pairs)?;
    let mut h = b.alloc::<f32>(pairs * INNER, "h")?;
    let mut h_act = b.alloc_act(precision, pairs, INNER)?;
    let (mut out, mut y) = (b.alloc::<f32>(pairs * ROWS, "out")?, b.alloc::<f32>(count * ROWS, "y")?);
    let (h, out) = (h.view_mut(pairs, INNER)?, out.view_mut(pairs, ROWS)?);
    let scratch = ExpertScratch::new(&mut groups, h, &mut h_act, out);
    b.run(Experts::new(route, ExpertWeights::new(gate_up, down), &act, scratch, y.view_mut(count, ROWS)?))?;
    b.into_host(y)
}

/// The products of gate and up, without a request before it; some choices are padding.
fn product(b: &Backend, weight: &Weight, x: &[f32], ids: &[u32], precision: Precision) -> Result<Vec<f32>, Error> {
    let cols = weight.cols();
    let count = x.len() / cols;
    let top_k = ids.len() / count;
    let mut rows = b.alloc::<f32>(x.len(), "x")?;
    b.upload(x, &mut rows)?;
    let mut act = b.alloc_act(precision, count, cols)?;
    b.run(PrepareActivations::new(rows.view(count, cols)?, &mut act))?;
    let mut chosen = b.alloc::<u32>(ids.len(), "ids")?;
    b.upload(ids, &mut chosen)?;
    let mut groups = b.alloc_groups(weight.experts(), ids.len())?;
    b.run(GroupByExpert::new(chosen.view(count, top_k)?, &mut groups))?;
    let mut out = b.alloc::<f32>(ids.len() * weight.rows(), "out")?;
    let out_rows = out.view_mut(ids.len(), weight.rows())?;
    match weight.role() {
        Role::GateUp => b.run(MoeGateUp::new(weight, &act, &groups, top_k, out_rows))?,
        _ => b.run(MoeMatmul::new(weight, &act, &groups, top_k, out_rows))?,
    }
    b.into_host(out)
}

/// Fails if the work takes a minute.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    std::thread::spawn(move || done.send(work()));
    result.recv_timeout(Duration::from_secs(60)).expect("it must end within a minute, without a panic")
}

fn rng(what: &str) -> Rng {
    let seed = seed();
    println!("{what}: seed {seed}");
    Rng::new(seed)
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn bits_are_those_of_experts_in_memory() {
    in_time(|| {
        let rng = &mut rng("bits");
        for threads in [1, 2, 3] {
            let backend = Cpu::backend(Level::best(), threads).unwrap();
            let experts = rng.between(5, 9);
            for slots in [1, 2, experts / 2, experts - 1, experts, experts + 3] {
                let layer = Layer::new(rng, &backend, experts, slots);
                for (turn, count) in [1, 1, 70, 1, 3, 150, 1, 1].into_iter().enumerate() {
                    let precision = if turn % 3 == 2 { Precision::Exact } else { Precision::Fast };
                    let case = format!("{threads} threads, {slots} of {experts} slots, {count} tokens, turn {turn}");
                    let tokens = Tokens::new(rng, experts, count);
                    let run =
                        |weights: &[Weight; 2]| self::layer(&backend, weights.each_ref(), &tokens, precision).unwrap();
                    let before = layer.reads();
                    assert_eq!(bits(&run(&layer.streamed)), bits(&run(&layer.in_memory)), "{case}");
                    let reads = layer.reads() - before;
                    assert!(reads <= 3 * experts, "{case}: {reads} reads of {experts} experts");

                    let padded = |rng: &mut Rng| if rng.chance(0.2) { PADDING } else { rng.below(experts) as u32 };
                    let ids: Vec<u32> = (0..2 * count).map(|_| padded(rng)).collect();
                    let x = rng.normals(count * INNER);
                    let run = |weight: &Weight| {
                        product(&backend, weight, &x[..count * weight.cols()], &ids, precision).unwrap()
                    };
                    for (streamed, in_memory) in layer.streamed.iter().zip(&layer.in_memory) {
                        assert_eq!(bits(&run(streamed)), bits(&run(in_memory)), "{case}: products");
                    }
                }
                let usage = backend.offload().slot_usage().unwrap();
                assert!(usage.misses > 0 && usage.read_bytes > 0 && usage.read_nanoseconds > 0, "{usage:?}");
                if slots >= experts {
                    assert!(layer.reads() <= 3 * experts, "{} reads of {experts} experts", layer.reads());
                }
            }
        }
    });
}

/// The experts that were used last are in memory, and are not read again.
#[test]
fn the_least_recently_used_expert_is_evicted() {
    in_time(|| {
        let rng = &mut rng("evicted");
        let backend = Cpu::backend(Level::best(), 2).unwrap();
        let layer = Layer::new(rng, &backend, 6, 3);
        let x = rng.normals(COLS);
        let mut in_memory: Vec<u32> = Vec::new();
        for turn in 0..200 {
            let id = rng.below(6) as u32;
            let before = (layer.reads(), backend.offload().slot_usage().unwrap());
            product(&backend, &layer.streamed[0], &x, &[id], Precision::Fast).unwrap();
            let reads = layer.reads() - before.0;
            let usage = backend.offload().slot_usage().unwrap();
            let is_hit = in_memory.contains(&id);
            assert_eq!(reads, if is_hit { 0 } else { 2 }, "turn {turn}: {id} of {in_memory:?}");
            let counted = (usage.hits - before.1.hits, usage.misses - before.1.misses);
            assert_eq!(counted, (u64::from(is_hit), u64::from(!is_hit)), "turn {turn}");
            in_memory.retain(|&other| other != id);
            in_memory.push(id);
            let first = in_memory.len().saturating_sub(3);
            in_memory.drain(..first);
        }
    });
}

#[test]
fn reads_that_fail_are_errors() {
    in_time(|| {
        let rng = &mut rng("faults");
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        for slots in [1, 2, 5] {
            for (fault, expected) in [
                (Fault::Fails, "the disk is gone; bring it back"),
                (Fault::Panics, "the read panicked"),
                (Fault::IsShort, "bytes were read (expected "),
            ] {
                let backend = Cpu::backend(Level::best(), 2).unwrap();
                let layer = Layer::new(rng, &backend, 5, slots);
                let (source, expert) = (rng.below(3), rng.below(5));
                layer.set_fault(source, expert, fault);
                // Every expert is used.
                let tokens = Tokens { top_k: 5, ..Tokens::new(rng, 5, 9) };
                let run = |weights: &[Weight; 2]| self::layer(&backend, weights.each_ref(), &tokens, Precision::Fast);
                for _ in 0..2 {
                    match run(&layer.streamed) {
                        Err(Error::Read { tensor, expert: found, reason }) => {
                            let name = &layer.sources[source].view.name;
                            assert!(&tensor == name || fault == Fault::Panics, "{tensor}, expected {name}");
                            assert_eq!(found, expert);
                            assert!(reason.contains(expected), "{reason}");
                        }
                        other => panic!("{fault:?} with {slots} slots: {other:?}"),
                    }
                }
                layer.set_fault(source, expert, Fault::None);
                let (found, expected) = (run(&layer.streamed).unwrap(), run(&layer.in_memory).unwrap());
                assert_eq!(bits(&found), bits(&expected), "after the fault");
            }
        }
        std::panic::set_hook(hook);
    });
}

/// Several callers share a layer whose slots suffice for one expert.
#[test]
fn callers_do_not_wait_for_each_other_forever() {
    in_time(|| {
        let rng = &mut rng("callers");
        for slots in [1, 2] {
            let backend = Cpu::backend(Level::best(), 2).unwrap();
            let layer = Layer::new(rng, &backend, 6, slots);
            let batches: Vec<Tokens> = (0..4).map(|_| Tokens::new(rng, 6, 5)).collect();
            std::thread::scope(|scope| {
                for tokens in &batches {
                    let (backend, layer) = (&backend, &layer);
                    scope.spawn(move || {
                        let run = |weights: &[Weight; 2]| {
                            self::layer(backend, weights.each_ref(), tokens, Precision::Fast).unwrap()
                        };
                        let expected = bits(&run(&layer.in_memory));
                        (0..20).for_each(|_| assert_eq!(bits(&run(&layer.streamed)), expected));
                    });
                }
            });
        }
    });
}

/// A backend can be dropped while experts are read that no product needs, and before its weights.
#[test]
fn reads_in_flight_end_with_the_backend() {
    in_time(|| {
        let rng = &mut rng("dropped");
        for _ in 0..20 {
            let backend = Cpu::backend(Level::best(), 1).unwrap();
            let layer = Layer::new(rng, &backend, 8, 4);
            layer.set_fault(0, 0, Fault::Fails);
            let tokens = Tokens { top_k: 8, ..Tokens::new(rng, 8, 2) };
            // Gate and up fail while experts of down are read.
            let failed = self::layer(&backend, layer.streamed.each_ref(), &tokens, Precision::Fast);
            assert!(matches!(failed, Err(Error::Read { .. })));
            drop(backend);
        }
    });
}

#[test]
fn what_cannot_be_streamed_is_refused() {
    let rng = &mut rng("refused");
    let backend = Cpu::backend(Level::best(), 1).unwrap();
    let (_, whole) = {
        let view = tensor(rng, Format::Q8_0, 4, 8, 64);
        slow(rng, &view)
    };
    let refused =
        |tensors: &[StreamedTensor], role, slots| backend.offload().prepare_streamed(tensors, role, slots).unwrap_err();
    let one = std::slice::from_ref(&whole);
    assert!(matches!(refused(one, Role::Table, 1), Error::Range { what: "role", .. }));
    assert!(matches!(refused(one, Role::Matrix, 0), Error::Range { what: "slots", .. }));
    assert!(matches!(refused(one, Role::GateUp, 1), Error::Shape { .. }));
    assert!(matches!(refused(&[], Role::Matrix, 1), Error::Range { what: "tensors", .. }));
    let mut odd = whole.clone();
    odd.shape.cols = 33;
    assert!(matches!(refused(&[odd], Role::Matrix, 1), Error::Columns { cols: 33, .. }));
    let mut empty = whole.clone();
    empty.shape.rows = 0;
    assert!(matches!(refused(&[empty], Role::Matrix, 1), Error::Range { .. }));
}
