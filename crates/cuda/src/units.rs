//! The units that the backend may compile, for tools that compile all of them.

use super::jit::{self, Input};
use super::nvrtc::Nvrtc;
use super::{attention, experts, gather_rows, gemm_sum, plan};
pub use gristmill_gpu::Unit;
use gristmill_gpu::common;

/// Needs of one kernel of a compiled unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The kernel's name.
    pub kernel: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes that a thread spills to memory, stores and loads together.
    pub spilled: u32,
    /// Shared memory of fixed size, in bytes.
    pub shared: u32,
}

/// Every unit that the backend may compile.
pub fn all() -> Vec<Unit> {
    let mut units = vec![Unit::new("rates.cu", &[]), Unit::new("host_experts.cu", &[])];
    units.extend(common::units());
    units.extend(gristmill_offload::units());
    units.extend(attention::form::units());
    units.extend(plan::units());
    units.extend(gather_rows::units());
    units.extend(gemm_sum::units());
    units.extend(experts::units());
    units.sort();
    units.dedup();
    units
}

/// Compiles a source for a compute capability (90 for 9.0), past the cache, and reads what its kernels need. It may be a
/// unit's with its inclusions, or include the backend's files.
///
/// # Errors
/// Why not, for people: there is no NVRTC, or it refused the source.
pub fn compile(unit: &Unit, content: &str, capability: u32) -> Result<Vec<Usage>, String> {
    let input = Input::other(unit, &architecture(capability), content, &["--ptxas-options=-v"])?;
    let (_, log) = input.compile(&Nvrtc::open()?)?;
    Ok(usages(&log))
}

/// The compiler's version: major and minor.
///
/// # Errors
/// There is no NVRTC.
pub fn compiler() -> Result<(i32, i32), String> {
    Ok(Nvrtc::open()?.version())
}

/// NVRTC's name of a compute capability.
pub fn architecture(capability: u32) -> String {
    jit::architecture(capability)
}

/// Reads ptxas' report.
fn usages(log: &str) -> Vec<Usage> {
    let number_before = |line: &str, words: &str| -> Option<u32> {
        let before = line.split(words).next().filter(|before| before.len() < line.len())?;
        before.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    let mut found: Vec<Usage> = Vec::new();
    for line in log.lines() {
        if let Some(name) = line.split("Compiling entry function '").nth(1).and_then(|rest| rest.split('\'').next()) {
            found.push(Usage { kernel: name.to_owned(), registers: 0, spilled: 0, shared: 0 });
        }
        let Some(last) = found.last_mut() else { continue };
        for words in [" bytes spill stores", " bytes spill loads"] {
            last.spilled += number_before(line, words).unwrap_or(0);
        }
        if let Some(registers) = number_before(line, " registers") {
            last.registers = registers;
            last.shared = number_before(line, " bytes smem").unwrap_or(0);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_ptxas_is_read() {
        let log = "ptxas info    : 0 bytes gmem\n\
            ptxas info    : Compiling entry function 'read_all' for 'sm_90a'\n\
            ptxas info    : Function properties for read_all\n\
            ptxas         .     8 bytes stack frame, 16 bytes spill stores, 12 bytes spill loads\n\
            ptxas info    : Used 40 registers, used 1 barriers, 8 bytes cumulative stack size, 1024 bytes smem\n\
            ptxas info    : Compiling entry function 'other' for 'sm_90a'\n\
            ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
            ptxas info    : Used 12 registers, used 0 barriers\n";
        let usage =
            |kernel: &str, registers, spilled, shared| Usage { kernel: kernel.to_owned(), registers, spilled, shared };
        assert_eq!(usages(log), [usage("read_all", 40, 28, 1024), usage("other", 12, 0, 0)]);
    }
}
