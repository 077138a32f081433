//! Kernels with a bug, and the same kernels without it.
//!
//! In a source, `BUG(x)` is there in the version with the bug alone, `FIX(x)` in the other alone. The lines to which a
//! fault may point end in `// !`; of a race either of two, by the order of threads.

use super::*;
use gpu_sim::{Kind, Launch};

/// A kernel `k(float* out, const float* in)` on buffers of 256 floats, and how it is launched.
pub struct Planted {
    pub kind: Kind,
    pub text: &'static str,
    pub grid: u32,
    pub block: u32,
    pub shared: u32,
    /// How `out` is declared.
    pub access: Access,
    /// Whether it may overlap with launches before.
    pub overlaps: bool,
    /// Whether launches before write neither.
    pub settled: bool,
}

/// One block of 64 threads with 1,024 bytes of dynamic shared memory, `out` read and written.
pub const fn planted(kind: Kind, text: &'static str) -> Planted {
    Planted {
        kind,
        text,
        grid: 1,
        block: 64,
        shared: 1_024,
        access: Access::ReadWrite,
        overlaps: false,
        settled: false,
    }
}

fn launch(planted: &Planted, program: &Program, order: Order) -> Result<(), Error> {
    let (mut out, input) = (vec![0_f32; 256], vec![1_f32; 256]);
    let out = Arg::Buffer {
        address: out.as_mut_ptr().cast(),
        bytes: size_of_val(&out[..]),
        access: planted.access,
        settled: planted.settled,
    };
    let (grid, block) = ([planted.grid, 1, 1], [planted.block, 1, 1]);
    let args = [out, if planted.settled { settled(&input) } else { read(&input) }];
    let (shared, overlaps) = (planted.shared, planted.overlaps);
    // SAFETY: the kernel is checked, and stopped before it leaves its arguments.
    unsafe { program.launch(&Launch { kernel: "k", grid, block, shared, args: &args, order, overlaps }) }
}

/// Fails unless each bug is found, in each order, in the right line, and the kernels without it end well.
pub fn all_are_found(cases: &[Planted]) {
    for case in cases {
        let text = format!("{}\n", case.text);
        let marked: Vec<u32> =
            (1..).zip(text.lines()).filter(|(_, line)| line.ends_with("// !")).map(|(number, _)| number).collect();
        assert!(!marked.is_empty(), "no line is marked:\n{text}");
        let compile = |defines| {
            compile_with("planted.cu", &text, defines, Mode::Checked).unwrap_or_else(|error| panic!("{text}\n{error}"))
        };
        let clean = compile(&[("BUG(x)", ""), ("FIX(x)", "x")]);
        let wrong = compile(&[("BUG(x)", "x"), ("FIX(x)", "")]);
        for order in ORDERS {
            if let Err(error) = launch(case, &clean, order) {
                panic!("without the bug, {order:?}:\n{text}\n{error}");
            }
            let found = match launch(case, &wrong, order) {
                Err(Error::Fault(fault)) => *fault,
                other => panic!("{:?} was not found, {order:?}:\n{text}\n{other:?}", case.kind),
            };
            assert_eq!(found.kind, case.kind, "{order:?}:\n{text}\n{found}");
            assert!(marked.contains(&innermost(&found)), "{order:?}, not in lines {marked:?}:\n{text}\n{found}");
        }
    }
}
