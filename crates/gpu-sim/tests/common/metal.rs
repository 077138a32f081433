//! The same for Metal sources.

use super::{MODES, ORDERS, innermost, read};
use gpu_sim::{Access, Arg, Constant, Error, Kind, Language, Launch, Mode, Order, Program, Source};
use std::fmt::Write;
use std::path::Path;

/// A source after the lines that all start with; its own first line is line 1 of `name`.
pub fn with_header(name: &str, text: &str) -> String {
    format!("#include <metal_stdlib>\nusing namespace metal;\n#line 1 \"{name}\"\n{text}")
}

pub fn source<'a>(name: &'a str, text: &'a str, mode: Mode) -> Source<'a> {
    Source { language: Language::Metal, name, text, mode, ..Source::default() }
}

/// Compiles a source after those lines.
pub fn compile_with(
    name: &str,
    text: &str,
    defines: &[(&str, &str)],
    constants: &[(u32, Constant)],
    mode: Mode,
) -> Result<Program, Error> {
    let text = with_header(name, text);
    let source = Source { defines, constants, ..source(name, &text, mode) };
    Program::compile(&source, Path::new(env!("CARGO_TARGET_TMPDIR")))
}

pub fn compile(text: &str, mode: Mode) -> Program {
    compile_with("test.metal", text, &[], &[], mode).unwrap_or_else(|error| panic!("{error}"))
}

/// Compiles a source in each mode and runs `test` in each order.
pub fn everywhere(text: &str, test: impl Fn(&Program, Order)) {
    for program in MODES.map(|mode| compile(text, mode)) {
        ORDERS.into_iter().for_each(|order| test(&program, order));
    }
}

pub fn launch(
    program: &Program,
    kernel: &str,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    order: Order,
    args: &[Arg],
) -> Result<(), Error> {
    // SAFETY: the arguments are made of slices that live until the launch has ended.
    unsafe { program.launch(&Launch { kernel, grid, block, shared, args, order, overlaps: false }) }
}

/// The bits of a half, of a number that is one.
pub fn half(x: f32) -> u16 {
    if x == 0.0 {
        return 0;
    }
    let bits = x.to_bits();
    let exponent = (bits >> 23 & 255) as i32 - 127 + 15;
    assert!((1..31).contains(&exponent) && bits & 0x1fff == 0, "{x} is no normal half");
    (bits >> 16 & 0x8000) as u16 | (exponent as u16) << 10 | (bits >> 13 & 0x3ff) as u16
}

/// A kernel with a bug, as in `planted.rs`. `KERNEL` declares it: `out` and `in` are buffers of 256 floats, `s` is
/// threadgroup memory, `t` the thread's number in its threadgroup. `ZERO` clears `s`.
pub struct Planted {
    pub text: &'static str,
    pub grid: u32,
    pub block: u32,
    pub shared: u32,
    /// How `out` is declared.
    pub access: Access,
}

/// One threadgroup of 64 threads with 1,024 bytes of threadgroup memory, `out` read and written.
pub const fn planted(text: &'static str) -> Planted {
    Planted { text, grid: 1, block: 64, shared: 1_024, access: Access::ReadWrite }
}

const PARAMETERS: &str = "(device float* out [[buffer(0)]], const device float* in [[buffer(1)]], threadgroup float* s \
    [[threadgroup(0)]], uint t [[thread_index_in_threadgroup]], uint group [[threadgroup_position_in_grid]], ushort lane \
    [[thread_index_in_simdgroup]], ushort simd [[simdgroup_index_in_threadgroup]])";

/// Fails unless each bug is found, in each order, in the right line, and the kernels without it end well. All are
/// compiled as one source.
pub fn all_are_found(kind: Kind, cases: &[Planted]) {
    let barrier = "threadgroup_barrier(mem_flags::mem_threadgroup);";
    let mut text = format!("#define ZERO s[t] = 0; {barrier}\n");
    for (i, case) in cases.iter().enumerate() {
        let _ = write!(
            text,
            "#undef KERNEL\n#define KERNEL kernel void k{i}{PARAMETERS}\nnamespace case_{i} {{\n#line 1 \"{i}.metal\"\n{}\n}}\n",
            case.text
        );
    }
    let compile = |defines| {
        compile_with("planted.metal", &text, defines, &[], Mode::Checked).unwrap_or_else(|error| panic!("{error}"))
    };
    let clean = compile(&[("BUG(...)", ""), ("FIX(...)", "__VA_ARGS__")]);
    let wrong = compile(&[("BUG(...)", "__VA_ARGS__"), ("FIX(...)", "")]);
    for (i, case) in cases.iter().enumerate() {
        let text = case.text;
        let marked: Vec<u32> =
            (1..).zip(text.lines()).filter(|(_, line)| line.ends_with("// !")).map(|(number, _)| number).collect();
        assert!(!marked.is_empty(), "no line is marked:\n{text}");
        let run = |program: &Program, order| {
            // Nothing else lies near: what runs out of one buffer does not come into the other.
            let (mut out, input) = (vec![0_f32; 1_024], vec![1_f32; 1_024]);
            let out = &mut out[384..640];
            let input = &input[384..640];
            let bytes = size_of_val(out);
            let out = Arg::Buffer { address: out.as_mut_ptr().cast(), bytes, access: case.access, settled: false };
            let args = [out, read(input)];
            launch(program, &format!("k{i}"), [case.grid, 1, 1], [case.block, 1, 1], case.shared, order, &args)
        };
        for order in ORDERS {
            if let Err(error) = run(&clean, order) {
                panic!("without the bug, {order:?}:\n{text}\n{error}");
            }
            let found = match run(&wrong, order) {
                Err(Error::Fault(fault)) => *fault,
                other => panic!("{kind:?} was not found, {order:?}:\n{text}\n{other:?}"),
            };
            assert_eq!(found.kind, kind, "{order:?}:\n{text}\n{found}");
            let file = found.place.lines.first().map_or("", |(file, _)| file);
            assert_eq!(file, format!("{i}.metal"), "{order:?}:\n{text}\n{found}");
            assert!(marked.contains(&innermost(&found)), "{order:?}, not in lines {marked:?}:\n{text}\n{found}");
        }
    }
}
