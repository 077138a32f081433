//! CUDA graphs.

use super::context::{Context, check};
use cudarc::driver::sys;
use gristmill_kernels::error::Result;
use gristmill_kernels::ops::Graph;
use std::fmt::Debug;
use std::ptr;
use std::sync::Arc;

pub(super) struct CudaGraph {
    executable: sys::CUgraphExec,
    context: Arc<Context>,
}

// SAFETY: as for `Context`.
unsafe impl Send for CudaGraph {}
// SAFETY: as for `Context`.
unsafe impl Sync for CudaGraph {}

impl Debug for CudaGraph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CudaGraph")
    }
}

impl CudaGraph {
    /// Captures the work that `work` submits to the context's stream, instead of running it.
    pub(super) fn capture(context: &Arc<Context>, work: &mut dyn FnMut() -> Result<()>) -> Result<Self> {
        context.enter()?;
        let (id, stream) = (context.id, context.stream);
        let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives as long as the context.
        check(id, "capturing a graph", unsafe { sys::cuStreamBeginCapture_v2(stream, mode) })?;
        let outcome = work();
        let mut graph = ptr::null_mut();
        // SAFETY: the stream is being captured; the graph's place lives through the call.
        let ended = check(id, "capturing a graph", unsafe { sys::cuStreamEndCapture(stream, &mut graph) });
        outcome?;
        ended?;
        let mut executable = ptr::null_mut();
        // SAFETY: the graph is whole; it is not needed after it was instantiated.
        let code = unsafe {
            let code = sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0);
            sys::cuGraphDestroy(graph);
            code
        };
        check(id, "instantiating a graph", code)?;
        Ok(Self { executable, context: Arc::clone(context) })
    }
}

impl Graph for CudaGraph {
    fn replay(&self) -> Result<()> {
        self.context.enter()?;
        // SAFETY: the graph lives as long as `self`; the buffers that it names are its maker's to keep.
        check(self.context.id, "replaying a graph", unsafe { sys::cuGraphLaunch(self.executable, self.context.stream) })
    }
}

impl Drop for CudaGraph {
    fn drop(&mut self) {
        // SAFETY: the only owner of the handle. A failure here has no caller to report to.
        unsafe {
            if self.context.enter().is_ok() {
                sys::cuGraphExecDestroy(self.executable);
            }
        }
    }
}
