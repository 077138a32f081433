//! The layer by gristmill's kernels on CUDA device 0, with operands in memory of cudarc.
//!
//! The rows are `CudaSlice`s in a stream of cudarc, as candle's CUDA tensors have them (`CudaStorage::as_cuda_slice`).

use crate::gristmill::{Prepared, with_rows, wrap};
use crate::{EXPERTS, Experts, HIDDEN, Layer};
use candle_core::{Device, Error, Result, Tensor};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, DevicePtrMut};
use gristmill_cuda::{CudaDevice, Options};
use std::sync::Arc;
use std::time::Instant;

/// Weights in gristmill's memory, operands in cudarc's.
pub struct Cuda {
    device: CudaDevice,
    prepared: Prepared,
    stream: Arc<CudaStream>,
}

impl Cuda {
    pub fn new(experts: &Experts) -> Result<Self> {
        let device = wrap(CudaDevice::open(0))?;
        let prepared = Prepared::new(wrap(device.backend(Options::default()))?, experts)?;
        let stream = CudaContext::new(0).and_then(|context| context.new_stream()).map_err(Error::wrap)?;
        Ok(Self { device, prepared, stream })
    }

    /// Submits the layer behind the stream's work. The stream's later work waits for it.
    fn run(&mut self, x: &CudaSlice<f32>, logits: &CudaSlice<f32>, y: &mut CudaSlice<f32>) -> Result<()> {
        let tokens = x.len() / HIDDEN;
        let (x_len, logits_len, y_len) = (x.len(), logits.len(), y.len());
        let stream = self.stream.cu_stream().cast();
        // When these guards are dropped, cudarc records that the stream has read or written the slices.
        let ((x, _x), (logits, _logits)) = (x.device_ptr(&self.stream), logits.device_ptr(&self.stream));
        let (y, _y) = y.device_ptr_mut(&self.stream);
        // SAFETY: three allocations of the primary context. They outlive the buffers, and cudarc frees them in the order
        // of the stream, which waits for the layer.
        wrap(unsafe {
            (|| {
                let x = self.device.buffer_from_raw(x, x_len)?;
                let logits = self.device.buffer_from_raw(logits, logits_len)?;
                let mut y = self.device.buffer_from_raw(y, y_len)?;
                self.device.wait_for(stream)?;
                let (x, logits) = (x.view(tokens, HIDDEN)?, logits.view(tokens, EXPERTS)?);
                self.prepared.run(x, logits, y.view_mut(tokens, HIDDEN)?)?;
                self.device.make_wait(stream)
            })()
        })
    }

    /// The layer, and its seconds without the copies from and to the host.
    fn measured(&mut self, x: &Tensor, logits: &Tensor) -> Result<(Vec<f32>, f64)> {
        let mut y = self.stream.alloc_zeros::<f32>(x.elem_count()).map_err(Error::wrap)?;
        let x = with_rows(x, |x| self.stream.clone_htod(x).map_err(Error::wrap))?;
        let logits = with_rows(logits, |logits| self.stream.clone_htod(logits).map_err(Error::wrap))?;
        self.stream.synchronize().map_err(Error::wrap)?;
        let start = Instant::now();
        self.run(&x, &logits, &mut y)?;
        self.stream.synchronize().map_err(Error::wrap)?;
        let seconds = start.elapsed().as_secs_f64();
        Ok((self.stream.clone_dtoh(&y).map_err(Error::wrap)?, seconds))
    }
}

impl Layer for Cuda {
    fn name(&self) -> String {
        format!("gristmill, {}", self.prepared.backend.name())
    }

    fn forward(&mut self, x: &Tensor, logits: &Tensor) -> Result<Tensor> {
        Tensor::from_vec(self.measured(x, logits)?.0, x.shape(), &Device::Cpu)
    }

    fn seconds(&mut self, x: &Tensor, logits: &Tensor) -> Result<f64> {
        self.measured(x, logits).map(|(_, seconds)| seconds)
    }
}
