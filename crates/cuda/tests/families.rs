//! The op suite by kernels of one family, on a CUDA device of this machine and on the simulated one.

use gristmill_conformance::families::{PARTS, limited};
use gristmill_conformance::op_suite::drawn;
use gristmill_cuda::family::Family;
use gristmill_cuda::{Choice, CudaDevice, Options, driver};
use gristmill_kernels::act::Precision;
use gristmill_kernels::format::Format;
use gristmill_kernels::{Backend, Error};
use gristmill_suite::ops::ALL;
use gristmill_suite::suite::{Repeats, Suite, Worst};
use gristmill_suite::testing::seed;
use std::io::Write;

/// Parts in which a deterministic backend has kernels of its own.
fn deterministic_parts() -> Vec<&'static str> {
    [&PARTS[..], &["attention_long"]].concat()
}

/// A backend of a choice, with a number of threads.
type Open<'a> = &'a dyn Fn(Choice, usize) -> gristmill_kernels::Result<Backend>;

fn run(family: Family, one_in: usize, open: Open) {
    run_by(Choice::Family(family), family, &PARTS, one_in, open);
}

/// Parts of the suite, with what a family takes.
fn run_by(choice: Choice, family: Family, parts: &[&str], one_in: usize, open: Open) {
    let make = |threads| open(choice, threads);
    let suite = Suite::new(&make, seed()).expect("a device");
    let suite = limited(drawn(suite).one_in(one_in), family);
    for (part, cases) in ALL.iter().filter(|(part, _)| parts.contains(part)) {
        cases(&suite);
        let _ = writeln!(std::io::stderr(), "executed: {part} by {choice:?} on {}", suite.backend().name());
    }
    for Worst { kind, nmse, bound } in suite.errors() {
        let _ = writeln!(std::io::stderr(), "    {kind:<28} NMSE {nmse:.1e} of {bound:.1e}  ({choice:?})");
    }
}

/// The suite's other runs in the simulator take the others.
#[cfg(all(target_arch = "x86_64", unix))]
#[test]
fn wgmma_simulated() {
    use gristmill_conformance::simulated::{Simulator, order};
    use gristmill_cuda::Cuda;
    run(Family::Wgmma, 6, &|choice, threads| {
        Cuda::backend(Simulator::new(order(threads), gpu_sim::Mode::Fast), Options { choice })
    });
}

/// A deterministic backend, whose rows have the same bits in large batches and alone. It multiplies int8
/// activations by two variants of one family.
#[cfg(all(target_arch = "x86_64", unix))]
#[test]
fn deterministic_simulated() {
    use gristmill_conformance::simulated::{Simulator, order};
    use gristmill_cuda::Cuda;
    let gpus = std::sync::Mutex::new(Vec::new());
    run_by(Choice::Deterministic, Family::Int8, &deterministic_parts(), 3, &|choice, threads| {
        let gpu = Simulator::new(order(threads), gpu_sim::Mode::Fast);
        gpus.lock().unwrap().push(gpu.clone());
        Cuda::backend(gpu, Options { choice })
    });
    let gpus = gpus.into_inner().unwrap();
    for file in ["gemm_int8.cu", "gemm_int8_tile.cu"] {
        assert!(gpus.iter().any(|gpu| gpu.files().contains(file)), "{file} was not launched");
    }
}

/// A consumer's device, whose tensor cores and shared memory are other ones.
#[cfg(all(target_arch = "x86_64", unix))]
#[test]
fn attention_of_a_small_device_simulated() {
    use gristmill_conformance::simulated::{Simulator, order};
    use gristmill_cuda::Cuda;
    let make =
        |threads| Cuda::backend(Simulator::of_capability(89, order(threads), gpu_sim::Mode::Fast), Options::default());
    let suite = Suite::new(&make, seed()).expect("a device");
    let suite = suite.one_in(6).repeated(Repeats::One);
    let (_, cases) = ALL.iter().find(|(part, _)| *part == "attention").expect("the part");
    cases(&suite);
}

#[test]
fn all_on_the_device() {
    let mut err = std::io::stderr();
    if driver::count().is_ok_and(|devices| devices == 0) {
        let _ = writeln!(err, "skipped:  families of kernels: no such device on this machine");
        return;
    }
    let device = CudaDevice::open(0).expect("a device");
    let capability = device.properties().architecture;
    let open = |choice, _| device.backend(Options { choice });
    for family in Family::ALL {
        if family.runs_on(capability) {
            run(family, 1, &open);
            if family == Family::Int8 {
                run_by(Choice::Deterministic, family, &deterministic_parts(), 1, &open);
            }
        } else {
            let refused = device.backend(Options { choice: Choice::Family(family) });
            assert!(matches!(refused, Err(Error::Device { .. })), "{family}");
            let _ = writeln!(err, "skipped:  {family}: not on this device");
        }
    }
}

/// A product that a family cannot compute is an error, and nothing else multiplies instead.
#[cfg(all(target_arch = "x86_64", unix))]
#[test]
fn what_a_family_cannot_do_is_refused_simulated() {
    use gristmill_conformance::simulated::Simulator;
    use gristmill_cuda::Cuda;
    use gristmill_kernels::ops::{Matmul, PrepareActivations};
    use gristmill_kernels::tensor::SharedBytes;
    use gristmill_kernels::weight::{Role, TensorView};
    for (family, format, precision, refused) in [
        (Family::Gemv, Format::F32, Precision::Exact, false),
        (Family::Int8, Format::BF16, Precision::Fast, true),
        (Family::Int8, Format::Q8_0, Precision::Fast, false),
        (Family::Mma, Format::Q8_0, Precision::Exact, true),
        (Family::Mma, Format::Q8_0, Precision::Fast, false),
        (Family::Wgmma, Format::F16, Precision::Fast, true),
        (Family::Wgmma, Format::Q8_0, Precision::Exact, true),
        (Family::Wgmma, Format::Q8_0, Precision::Fast, false),
    ] {
        let simulator = Simulator::new(gpu_sim::Order::Ascending, gpu_sim::Mode::Fast);
        let b = Cuda::backend(simulator, Options { choice: Choice::Family(family) }).unwrap();
        let bytes = SharedBytes::from(vec![0; 32 / format.block_len() * format.block_bytes()]);
        let tensor = TensorView { name: "w".into(), format, experts: 1, rows: 1, cols: 32, bytes };
        let weight = b.prepare(&[tensor], Role::Matrix).unwrap();
        let (x, mut y) = (b.alloc::<f32>(32, "x").unwrap(), b.alloc::<f32>(1, "y").unwrap());
        let mut act = b.alloc_act(precision, 1, 32).unwrap();
        b.run(PrepareActivations { x: x.view(1, 32).unwrap(), act: &mut act }).unwrap();
        let outcome = b.run(Matmul::new(&weight, &act, y.view_mut(1, 1).unwrap()));
        assert_eq!(matches!(outcome, Err(Error::Range { .. })), refused, "{family}, {format}, {precision:?}");
        assert_eq!(outcome.is_err(), refused, "{family}, {format}, {precision:?}");
    }
}
