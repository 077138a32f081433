//! A struct that host and kernels declare differently is refused where the kernel is compiled.
#![cfg(all(target_arch = "x86_64", unix))]

use gpu_sim::{Language, Mode, Order};
use gristmill_conformance::simulated::Simulator;
use gristmill_conformance::sources;
use gristmill_gpu::{Gpu, Unit};

/// The compiler's message for a source whose shared struct was changed.
fn refusal(language: Language, file: &'static str, changed: &'static str, [from, to]: [&str; 2]) -> String {
    let text = &sources::all().iter().find(|(name, _)| *name == changed).expect("a source").1;
    assert!(text.contains(from), "{changed} has no `{from}` any more");
    let simulator =
        Simulator::with(language, Order::Ascending, Mode::Fast, vec![(changed, text.replacen(from, to, 1))]);
    let outcome = simulator.prepare(&Unit {
        file,
        defines: vec![("FORMAT", "Q8_0".to_owned()), ("INT8", "1".to_owned()), ("TOKENS", "1".to_owned())],
    });
    outcome.expect_err("a struct that lies otherwise").to_string()
}

#[test]
fn fields_that_lie_elsewhere_are_refused() {
    for (language, file) in [(Language::Metal, "gemv.metal"), (Language::Cuda, "gemv.cu")] {
        // Swapped neighbours, another size of a field, one more.
        for (from, to, field) in [
            ("u32 outputs, blocks;", "u32 blocks, outputs;", "outputs of ProductParams"),
            ("u64 bias_stride;", "u32 bias_stride;", "bias_stride of ProductParams"),
            ("third, padding;", "third, padding, more, still;", "size of ProductParams"),
        ] {
            let said = refusal(language, file, "product.h", [from, to]);
            assert!(said.contains(field), "{file}: {to}: {said}");
        }
    }
}
