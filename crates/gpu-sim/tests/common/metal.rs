//! The same for texts in MSL.

use super::{MODES, ORDERS};
use gpu_sim::{Arg, Constant, Error, Language, Launch, Mode, Order, Program, Source};
use std::path::Path;

/// Compiles a text after the lines that all begin with; its first line is line 1 of `name`.
pub fn compile_with(
    name: &str,
    text: &str,
    defines: &[(&str, &str)],
    constants: &[(u32, Constant)],
    mode: Mode,
) -> Result<Program, Error> {
    let text = format!("#include <metal_stdlib>\nusing namespace metal;\n#line 1 \"{name}\"\n{text}");
    let source = Source { language: Language::Metal, name, text: &text, defines, constants, mode };
    Program::compile(&source, Path::new(env!("CARGO_TARGET_TMPDIR")))
}

pub fn compile(text: &str, mode: Mode) -> Program {
    compile_with("test.metal", text, &[], &[], mode).unwrap_or_else(|error| panic!("{error}"))
}

/// Compiles a text in each mode, and does something in each order.
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
