//! Common parts of the tests: a source is compiled with `ptx.cuh` before it, and launched on slices.
#![allow(dead_code, unreachable_pub, unused_imports)]

pub mod metal;
pub mod planted;

use gpu_sim::{Access, Arg, Error, Launch, Mode, Order, Program, Source};
pub use gristmill_suite::testing::seed_of_test as seed;
use std::path::Path;

/// The thread orders that every clean kernel must bear.
pub const ORDERS: [Order; 4] = [Order::Ascending, Order::Descending, Order::Shuffled(1), Order::Shuffled(99)];

/// Compiles a source, whose first line is line 1 of `name`.
pub fn compile_with(name: &str, text: &str, defines: &[(&str, &str)], mode: Mode) -> Result<Program, Error> {
    let text = format!(
        "#line 1 \"ptx.cuh\"\n{}\n#define KERNEL(name) GPU_SIM_KERNEL(name)\n#define SHARED(T, name, n) \
         GPU_SIM_SHARED(T, name, n)\n#define DYNAMIC_SHARED(T, name) GPU_SIM_DYNAMIC_SHARED(T, name)\n#line 1 \
         \"{name}\"\n{text}",
        gpu_sim::PTX
    );
    Program::compile(
        &Source { name, text: &text, defines, mode, ..Source::default() },
        Path::new(env!("CARGO_TARGET_TMPDIR")),
    )
}

pub const MODES: [Mode; 2] = [Mode::Fast, Mode::Checked];

pub fn compile(text: &str, mode: Mode) -> Program {
    compile_with("test.cu", text, &[], mode).unwrap_or_else(|error| panic!("{error}"))
}

/// Compiles a source in each mode and runs `test` in each order.
pub fn everywhere(text: &str, test: impl Fn(&Program, Order)) {
    for program in MODES.map(|mode| compile(text, mode)) {
        ORDERS.into_iter().for_each(|order| test(&program, order));
    }
}

/// The fault with which a launch ended.
pub fn fault(result: Result<(), Error>) -> gpu_sim::Fault {
    match result {
        Err(Error::Fault(fault)) => *fault,
        Err(error) => panic!("{error}"),
        Ok(()) => panic!("the launch ended without a fault"),
    }
}

/// The line of a fault, in the source itself.
pub fn innermost(fault: &gpu_sim::Fault) -> u32 {
    fault.place.lines.first().map_or(0, |(_, line)| *line)
}

/// The number of the first line that has `part` in it.
pub fn line(text: &str, part: &str) -> u32 {
    text.lines().position(|line| line.contains(part)).unwrap() as u32 + 1
}

/// An argument that is read, of any plain type.
pub fn read<T: Copy>(values: &[T]) -> Arg<'static> {
    Arg::Buffer {
        address: values.as_ptr().cast_mut().cast(),
        bytes: size_of_val(values),
        access: Access::Read,
        settled: false,
    }
}

/// The same of what no launch before writes.
pub fn settled<T: Copy>(values: &[T]) -> Arg<'static> {
    Arg::Buffer {
        address: values.as_ptr().cast_mut().cast(),
        bytes: size_of_val(values),
        access: Access::Read,
        settled: true,
    }
}

pub fn write<T: Copy>(values: &mut [T]) -> Arg<'static> {
    Arg::Buffer {
        address: values.as_mut_ptr().cast(),
        bytes: size_of_val(values),
        access: Access::Write,
        settled: false,
    }
}

pub fn change<T: Copy>(values: &mut [T]) -> Arg<'static> {
    Arg::Buffer {
        address: values.as_mut_ptr().cast(),
        bytes: size_of_val(values),
        access: Access::ReadWrite,
        settled: false,
    }
}

/// A value by its bytes.
pub fn value<T: Copy>(value: &T) -> Arg<'_> {
    // SAFETY: any value that tests pass has no padding.
    Arg::Bytes(unsafe { std::slice::from_raw_parts((&raw const *value).cast(), size_of::<T>()) })
}

pub fn run(
    program: &Program,
    kernel: &str,
    grid: u32,
    block: u32,
    shared: u32,
    order: Order,
    args: &[Arg],
) -> Result<(), Error> {
    // SAFETY: the arguments are made of slices that live until the launch has ended.
    unsafe {
        program.launch(&Launch {
            kernel,
            grid: [grid, 1, 1],
            block: [block, 1, 1],
            shared,
            args,
            order,
            overlaps: false,
        })
    }
}

/// Numbers without pattern, from −1 to 1.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    pub fn float(&mut self) -> f32 {
        (self.next() % 2_000_001) as f32 / 1e6 - 1.0
    }
}
