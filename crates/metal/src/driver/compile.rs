//! Compiles kernel sources to pipelines, once per device.

use super::error;
use gristmill_gpu::{Kernel, Unit, source};
use gristmill_kernels::error::Result;
use gristmill_kernels::tensor::DeviceId;
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_foundation::{NSError, NSString};
use objc2_metal::{
    MTLCompileOptions, MTLComputePipelineState, MTLDevice, MTLLanguageVersion, MTLLibrary,
    MTLMathFloatingPointFunctions, MTLMathMode,
};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{PoisonError, RwLock};

/// SIMD width that the kernels assume.
const WARP: usize = 32;

/// A device's compiler and its compiled kernels.
pub(super) struct Compiler {
    id: DeviceId,
    device: Retained<ProtocolObject<dyn MTLDevice>>,
    pipelines: RwLock<HashMap<(Unit, String), Pipeline>>,
}

/// A compiled kernel.
#[derive(Clone)]
pub(super) struct Pipeline(pub(super) Retained<ProtocolObject<dyn MTLComputePipelineState>>);

impl Pipeline {
    /// Static threadgroup memory in bytes.
    pub(super) fn shared(&self) -> usize {
        self.0.staticThreadgroupMemoryLength()
    }
}

impl Compiler {
    pub(super) fn new(id: DeviceId, device: Retained<ProtocolObject<dyn MTLDevice>>) -> Self {
        Self { id, device, pipelines: RwLock::default() }
    }

    /// All kernels of a unit.
    pub(super) fn prepare(&self, unit: &Unit) -> Result<()> {
        let library = self.library(unit)?;
        for name in library.functionNames() {
            let pipeline = self.build(&library, unit, &name)?;
            let mut pipelines = self.pipelines.write().unwrap_or_else(PoisonError::into_inner);
            pipelines.entry((unit.clone(), name.to_string())).or_insert(pipeline);
        }
        Ok(())
    }

    /// A kernel for blocks of this number of threads.
    pub(super) fn pipeline(&self, kernel: &Kernel, threads: u32) -> Result<Pipeline> {
        let unit = kernel.unit();
        let name = kernel.entry.to_owned();
        let failed = |reason: &str| error(self.id, &format!("kernel {} of {unit}", kernel.entry), reason);
        let key = (unit.clone(), name);
        let known = || self.pipelines.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        let pipeline = match known() {
            Some(pipeline) => pipeline,
            None => {
                self.prepare(&unit)?;
                known().ok_or_else(|| failed("the source has no such kernel"))?
            }
        };
        if threads as usize > pipeline.0.maxTotalThreadsPerThreadgroup() {
            return Err(failed(&format!("{threads} threads, and it has registers for fewer")));
        }
        Ok(pipeline)
    }

    fn library(&self, unit: &Unit) -> Result<Retained<ProtocolObject<dyn MTLLibrary>>> {
        let what = unit.to_string();
        let missing = || error(self.id, &what, "there is no such source, or none that it includes");
        let mut source = String::new();
        for (name, value) in &unit.defines {
            let _ = writeln!(source, "#define {name} {value}");
        }
        source += &source::expand(unit, crate::SOURCES, &[]).ok_or_else(missing)?;
        let options = MTLCompileOptions::new();
        options.setLanguageVersion(MTLLanguageVersion::Version3_1);
        // NaN and infinity must behave as on other backends, and products must round where the source says.
        if objc2::available!(macos = 15.0) {
            options.setMathMode(MTLMathMode::Safe);
            options.setMathFloatingPointFunctions(MTLMathFloatingPointFunctions::Precise);
        } else {
            #[allow(deprecated)]
            options.setFastMathEnabled(false);
        }
        let library = self.device.newLibraryWithSource_options_error(&NSString::from_str(&source), Some(&options));
        library.map_err(|refused| error(self.id, &what, said(&refused)))
    }

    fn build(&self, library: &ProtocolObject<dyn MTLLibrary>, unit: &Unit, name: &NSString) -> Result<Pipeline> {
        let failed = |reason: String| error(self.id, &format!("kernel {name} of {unit}"), reason);
        let function =
            library.newFunctionWithName(name).ok_or_else(|| failed("the source has no such kernel".to_owned()))?;
        let pipeline = self.device.newComputePipelineStateWithFunction_error(&function);
        let pipeline = pipeline.map_err(|refused| failed(said(&refused)))?;
        match pipeline.threadExecutionWidth() {
            WARP => Ok(Pipeline(pipeline)),
            width => Err(failed(format!("its SIMD groups have {width} lanes, not {WARP}"))),
        }
    }
}

/// The error message of an Apple framework.
pub(super) fn said(refused: &NSError) -> String {
    format!("{} ({} {})", refused.localizedDescription(), refused.domain(), refused.code())
}
