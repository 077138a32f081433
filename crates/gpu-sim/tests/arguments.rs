//! Launches that do not fit their kernel, and sources that do not compile, are errors that say why.
#![cfg(all(target_arch = "x86_64", unix))]

mod common;

use common::*;
use gpu_sim::{Arg, Error, Launch, Mode, Order, SHARED_LIMIT};

const TEXT: &str = "struct Params { u64 n; u32 a, b; };
KERNEL(copy)(u32* out, const u32* in, const Params p) {
    if (threadIdx.x < p.n) out[threadIdx.x] = (in ? in[threadIdx.x] : 1) * p.a + p.b;
}
KERNEL(large)(u32* out) {
    SHARED(u32, s, 12289);
    out[threadIdx.x] = s[threadIdx.x];
}";

#[repr(C)]
#[derive(Clone, Copy)]
struct Params {
    n: u64,
    a: u32,
    b: u32,
}

#[test]
fn arguments_are_counted_and_measured() {
    let program = compile(TEXT, Mode::Fast);
    assert_eq!(program.kernels().collect::<Vec<_>>(), ["copy", "large"]);
    let mut out = [0_u32; 8];
    let input = [3_u32; 8];
    let params = Params { n: 8, a: 10, b: 1 };
    let launch = |args: &[Arg]| run(&program, "copy", 1, 32, 0, Order::Ascending, args);
    let o = write(&mut out);
    let i = read(&input);
    let p = value(&params);
    launch(&[o, i, p]).unwrap();
    assert_eq!(out, [31; 8]);
    launch(&[o, Arg::Null, p]).unwrap();
    assert_eq!(out, [11; 8]);

    assert!(matches!(launch(&[o, i]), Err(Error::ArgumentCount { wanted: 3, given: 2, .. })));
    assert!(matches!(launch(&[o, i, p, p]), Err(Error::ArgumentCount { wanted: 3, given: 4, .. })));
    assert!(matches!(
        launch(&[o, i, value(&[1_u32; 3])]),
        Err(Error::ArgumentSize { argument: 2, wanted: 16, given: 12, .. })
    ));
    assert!(matches!(
        launch(&[o, i, value(&[1_u32; 5])]),
        Err(Error::ArgumentSize { argument: 2, wanted: 16, given: 20, .. })
    ));
    assert!(matches!(launch(&[o, p, p]), Err(Error::ArgumentKind { argument: 1, .. })));
    assert!(matches!(launch(&[o, i, i]), Err(Error::ArgumentKind { argument: 2, .. })));
    let unknown = run(&program, "cpoy", 1, 32, 0, Order::Ascending, &[]).unwrap_err();
    assert_eq!(unknown.to_string(), r#"no kernel "cpoy"; the source has ["copy", "large"]"#);
}

#[test]
fn limits_of_a_device() {
    let program = compile(TEXT, Mode::Fast);
    let mut out = [0_u32; 8];
    let params = Params { n: 0, a: 0, b: 0 };
    let args = [write(&mut out), Arg::Null, value(&params)];
    let launch = |grid, block, shared| {
        // SAFETY: with n = 0 the kernel touches nothing.
        unsafe {
            program.launch(&Launch {
                kernel: "copy",
                grid,
                block,
                shared,
                args: &args,
                order: Order::Ascending,
                overlaps: false,
            })
        }
    };
    launch([1, 65_535, 1], [16, 8, 8], SHARED_LIMIT).unwrap();
    for (grid, block, shared) in [
        ([0, 1, 1], [32, 1, 1], 0),
        ([1, 65_536, 1], [32, 1, 1], 0),
        ([1, 1, 65_536], [32, 1, 1], 0),
        ([1, 1, 1], [0, 1, 1], 0),
        ([1, 1, 1], [1_025, 1, 1], 0),
        ([1, 1, 1], [513, 2, 1], 0),
        ([1, 1, 1], [1, 1, 65], 0),
        ([1, 1, 1], [32, 1, 1], SHARED_LIMIT + 1),
    ] {
        assert!(matches!(launch(grid, block, shared), Err(Error::Limit { .. })), "{grid:?} {block:?} {shared}");
    }
    let large = run(&program, "large", 1, 32, 0, Order::Ascending, &[write(&mut out)]).unwrap_err();
    assert!(large.to_string().starts_with("test.cu:6: a shared variable of 49156 bytes does not fit"), "{large}");
}

#[test]
fn complaints_of_the_compiler_name_the_line() {
    let error = compile_with(
        "bad.cu",
        "KERNEL(bad)(u32* out) {\n    out[0] = FACTOR * missing;\n}",
        &[("FACTOR", "2")],
        Mode::Fast,
    );
    let Err(Error::Compile { name, log }) = error else { panic!("{error:?}") };
    assert_eq!(name, "bad.cu");
    assert!(log.contains("bad.cu:2:") && log.contains("missing"), "{log}");
}

#[test]
fn a_cache_that_cannot_be_written() {
    let folder = std::env::temp_dir().join(format!("gpu-sim-{}", std::process::id()));
    std::fs::write(&folder, "a file").unwrap();
    let source = gpu_sim::Source {
        name: "x",
        text: "// never compiled before",
        defines: &[],
        mode: Mode::Fast,
        ..Default::default()
    };
    let error = gpu_sim::Program::compile(&source, &folder).unwrap_err();
    std::fs::remove_file(&folder).unwrap();
    assert!(matches!(error, Error::Cache { .. }), "{error}");
}
