//! Experts outside the device: in host memory, where the CPU multiplies them for a GPU, or in the model's file.
//!
//! [`Backend::offload`] is their interface, and [`OffloadKernels`] what a backend implements for it. Operations are not part of
//! either: [`crate::ops::Experts`] accepts weights of every [`Location`].

use crate::act::{ACT_BLOCK, Act, Int8Words, Precision};
use crate::backend::{Backend, joined};
use crate::error::{Error, Result};
use crate::groups::Groups;
use crate::ops::check::{elements, expect, on_device, require};
use crate::storage::Storage;
use crate::weight::{Location, Prepared, Role, TensorShape, TensorView, Weight};
use std::fmt::Debug;
use std::sync::Arc;

/// A backend's part of [`Offload`]. A GPU implements the methods for a device with a host, a CPU those for a host. The defaults
/// are those of a backend without experts outside.
pub trait OffloadKernels: Send + Sync {
    /// See [`Offload::host`].
    fn host(&self) -> Option<&Arc<Backend>> {
        None
    }
    /// Pins the memory of a weight that [`OffloadKernels::host`] prepared, for copies to slots, until the storage is dropped.
    fn pin(&self, weight: &Weight) -> Result<Option<Storage>> {
        let _ = weight;
        Ok(None)
    }
    /// See [`Offload::free_slots`].
    fn free_slots(&self, weights: [&Weight; 2]) -> Result<u64> {
        let _ = weights;
        Ok(0)
    }
    /// See [`Offload::slot_usage`].
    fn slot_usage(&self) -> Option<SlotUsage> {
        None
    }
    /// See [`Offload::largest_captured`].
    fn largest_captured(&self) -> usize {
        usize::MAX
    }
    /// See [`Offload::stay_awake`].
    fn stay_awake(&self, on: bool) {
        let _ = on;
    }
    /// See [`Offload::tiles`].
    fn tiles<'a>(&self, weight: &'a Weight) -> Option<Vec<&'a [u8]>> {
        let _ = weight;
        None
    }
    /// See [`Offload::reads_int8`].
    fn reads_int8(&self, precision: Precision, weight: &Weight) -> bool {
        let _ = (precision, weight);
        false
    }
    /// See [`Offload::import_int8`]. There are as many blocks as the activations have.
    fn import_int8(&self, blocks: &[Int8Words], act: &mut Act) -> Result<()> {
        let _ = (blocks, act);
        Err(Error::ForeignLayout { op: "import_int8", what: "activations" })
    }
    /// See [`Offload::prepare_streamed`]. The tensors have been checked. `None` if the backend reads no experts from files.
    fn prepare_streamed(&self, tensors: &[StreamedTensor], role: Role, slots: usize) -> Result<Option<Prepared>> {
        let _ = (tensors, role, slots);
        Ok(None)
    }
    /// See [`Offload::request_experts`].
    fn request_experts(&self, weights: [&Weight; 2], groups: &Groups) -> Result<()> {
        let _ = (weights, groups);
        Ok(())
    }
}

/// The experts outside a device: [`Backend::offload`].
#[derive(Clone, Copy)]
pub struct Offload<'a> {
    backend: &'a Backend,
    /// `None` if the backend computes only with weights in its own memory.
    kernels: Option<&'a dyn OffloadKernels>,
}

impl<'a> Offload<'a> {
    pub(crate) fn new(backend: &'a Backend, kernels: Option<&'a dyn OffloadKernels>) -> Self {
        Self { backend, kernels }
    }

    /// The CPU's backend that multiplies weights in host memory for this device; `None` if the device was opened without.
    pub fn host(&self) -> Option<&'a Arc<Backend>> {
        self.kernels?.host()
    }

    /// Prepares a weight of experts that stays in host memory, in the layout of [`Offload::host`], with this number of slots for
    /// experts in the device's memory, at most one for each expert. Only [`crate::ops::Experts`] accepts it.
    ///
    /// # Errors
    /// Those of [`Backend::prepare`], and [`Error::Range`] if there is no host.
    pub fn prepare_on_host(&self, tensors: &[TensorView], role: Role, slots: usize) -> Result<Weight> {
        let op = "prepare_on_host";
        let rule = "has no CPU that computes experts; open the device with one";
        let refused = || Error::Range { op, what: "backend", found: self.backend.name(), rule };
        let weight = self.host().ok_or_else(refused)?.prepare(tensors, role)?;
        let mut owned_bytes = weight.owned_bytes();
        let mut matrices = HostMatrices { pinned: None, weight, slots: None };
        if slots > 0 {
            let first: Option<Vec<_>> = tensors.iter().map(|tensor| tensor.first_experts(slots)).collect();
            let first = first.ok_or(Error::ForeignLayout { op, what: "a tensor" })?;
            let slots = self.backend.prepare(&first, role)?;
            owned_bytes += slots.owned_bytes();
            matrices.pinned = self.kernels.map(|kernels| kernels.pin(&matrices.weight)).transpose()?.flatten();
            matrices.slots = Some(slots);
        }
        Ok(self.on_host(matrices, owned_bytes))
    }

    /// Prepares a weight of experts whose matrices are read when they are chosen. Memory keeps this number of experts, at least 1
    /// and at most all: those that were used last. [`Role::Matrix`], [`Role::GateUp`] and [`Role::Up`] are as in [`Backend::prepare`]. Products
    /// have the same bits as with all experts in memory, and fail with [`Error::Read`] if one cannot be read. With an
    /// [`Offload::host`], the memory is the host's, where the CPU multiplies the experts: the weight is of [`Location::Host`].
    ///
    /// # Errors
    /// Also [`Error::Range`] if the backend cannot read experts, or the role is another.
    pub fn prepare_streamed(&self, tensors: &[StreamedTensor], role: Role, slots: usize) -> Result<Weight> {
        let op = "prepare_streamed";
        let is_product = matches!(role, Role::Matrix | Role::GateUp | Role::Up);
        require(is_product, op, "role", format!("{role:?}"), "must be Matrix, GateUp or Up")?;
        require(slots > 0, op, "slots", slots, "must not be 0")?;
        for StreamedTensor { name, shape, .. } in tensors {
            if !shape.cols.is_multiple_of(shape.format.block_len()) {
                let what = name.clone();
                let block = shape.format.block_len();
                return Err(Error::Columns { what, cols: shape.cols, format: shape.format, block });
            }
            let is_empty = shape.experts == 0 || shape.rows == 0 || shape.cols == 0;
            require(!is_empty, op, "dimensions of a tensor", format!("{shape:?}"), "none may be 0")?;
        }
        let shapes: Vec<_> = tensors.iter().map(|tensor| tensor.shape).collect();
        let (experts, rows, cols) = joined(op, &shapes, role)?;
        if let Some(host) = self.host() {
            let weight = host.offload().prepare_streamed(tensors, role, slots)?;
            let owned_bytes = weight.owned_bytes();
            return Ok(self.on_host(HostMatrices { pinned: None, weight, slots: None }, owned_bytes));
        }
        let prepare = |kernels: &dyn OffloadKernels| kernels.prepare_streamed(tensors, role, slots.min(experts));
        let prepared = self.kernels.map(prepare).transpose()?.flatten().ok_or_else(|| {
            let rule = "reads no experts from files; use the CPU";
            Error::Range { op, what: "backend", found: self.backend.name(), rule }
        })?;
        Ok(Weight { device: self.backend.device(), location: Location::File, role, experts, rows, cols, prepared })
    }

    fn on_host(&self, matrices: HostMatrices, owned_bytes: usize) -> Weight {
        let Weight { role, experts, rows, cols, .. } = matrices.weight;
        let prepared = Prepared { storage: Storage::new(HostWeight(Arc::new(matrices))), owned_bytes };
        Weight { device: self.backend.device(), location: Location::Host, role, experts, rows, cols, prepared }
    }

    /// Starts to read the experts that products with these groups need, if they are in a file ([`Offload::prepare_streamed`]). The
    /// weights are gate and up, and down. The products wait for the experts.
    ///
    /// # Errors
    /// [`Error::ForeignLayout`] if another backend prepared the weights or the groups.
    pub fn request_experts(&self, weights: [&Weight; 2], groups: &Groups) -> Result<()> {
        self.kernels.map_or(Ok(()), |kernels| kernels.request_experts(weights, groups))
    }

    /// Frees the slots of a layer, whose gate and up and whose down have these weights. From then on the CPU computes all experts
    /// of the layer. Returns the bytes that were freed: 0 if there are no slots, or no more.
    ///
    /// # Errors
    /// If the device fails, or the weights are not in host memory.
    pub fn free_slots(&self, weights: [&Weight; 2]) -> Result<u64> {
        self.kernels.map_or(Ok(0), |kernels| kernels.free_slots(weights))
    }

    /// What was found in the slots for experts so far; `None` without slots.
    pub fn slot_usage(&self) -> Option<SlotUsage> {
        self.kernels?.slot_usage()
    }

    /// Rows of the largest step that should be captured: in larger ones, the host decides something while the step runs.
    pub fn largest_captured(&self) -> usize {
        self.kernels.map_or(usize::MAX, |kernels| kernels.largest_captured())
    }

    /// Sets whether idle threads of a CPU keep polling for the next operation instead of parking. A caller sets it while operations
    /// follow each other with gaps that are shorter than a thread needs to wake.
    pub fn stay_awake(&self, on: bool) {
        self.kernels.into_iter().for_each(|kernels| kernels.stay_awake(on));
    }

    /// The bytes of each tensor of a weight that this backend of a CPU prepared in tiles of 16 rows, experts outermost, each with
    /// the same number of bytes. A tile is one block of each of 16 rows, interleaved by the units of the format's planes
    /// ([`crate::format::Quantised`]); the rows after the last are zero. `None` if the backend has another layout.
    pub fn tiles<'w>(&self, weight: &'w Weight) -> Option<Vec<&'w [u8]>> {
        self.kernels?.tiles(weight)
    }

    /// Whether products with a weight read activations of a precision as int8 only, so that [`Offload::import_int8`] prepares
    /// all that they need.
    pub fn reads_int8(&self, precision: Precision, weight: &Weight) -> bool {
        self.kernels.is_some_and(|kernels| kernels.reads_int8(precision, weight))
    }

    /// Fills activations with `rows` rows of ⌈cols / 32⌉ blocks that another device has prepared. Only products for which
    /// [`Offload::reads_int8`] is true can read them.
    ///
    /// # Errors
    /// If the activations are of another device, have too little capacity or no int8 representation, or the number of blocks
    /// differs.
    pub fn import_int8(&self, blocks: &[Int8Words], rows: usize, cols: usize, act: &mut Act) -> Result<()> {
        let op = "import_int8";
        on_device(op, self.backend.device(), &[act.device()])?;
        act.check_capacity(op, rows, cols)?;
        expect(op, "blocks", blocks.len(), elements(op, &[rows, cols.div_ceil(ACT_BLOCK)])?)?;
        let foreign = Error::ForeignLayout { op, what: "activations" };
        let kernels = self.kernels.ok_or(foreign)?;
        act.fill(rows, cols);
        kernels.import_int8(blocks, act)
    }
}

/// Experts that were found in slots, and experts that were not; one for each choice of a token, except in long batches, whose
/// experts a GPU computes all. A GPU's slots are for experts that host memory has too, a CPU's for experts of the model's file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotUsage {
    /// Choices whose expert was in a slot.
    pub hits: u64,
    /// Choices whose expert was not: the CPU computed it for the GPU, or it was read from the file.
    pub misses: u64,
    /// Experts that were copied to slots. A CPU counts each matrix.
    pub insertions: u64,
    /// Choices of long batches whose expert the CPU computed.
    pub shared: u64,
    /// Bytes of slots that were freed, because other memory was needed.
    pub freed_bytes: u64,
    /// Bytes of experts that were read from the model's file.
    pub read_bytes: u64,
    /// Nanoseconds during which at least one read was in flight.
    pub read_nanoseconds: u64,
}

/// A tensor of experts whose matrices are read while the model runs.
#[derive(Clone, Debug)]
pub struct StreamedTensor {
    /// The tensor's name, for errors.
    pub name: String,
    /// Format and dimensions.
    pub shape: TensorShape,
    /// Reads its matrices.
    pub source: Arc<dyn MatrixSource>,
}

/// Reads the matrices of a [`StreamedTensor`].
pub trait MatrixSource: Debug + Send + Sync {
    /// Reads one matrix and passes its blocks, rows contiguous, to `take`. Several threads call it at the same time.
    ///
    /// # Errors
    /// Where the bytes should be, what is wrong, and a remedy.
    fn read(&self, expert: usize, take: &mut dyn FnMut(&[u8])) -> std::result::Result<(), String>;
}

/// The storage of a weight of [`Location::Host`].
#[derive(Clone, Debug)]
pub struct HostWeight(pub Arc<HostMatrices>);

/// The matrices of experts in host memory, or in a file from which the host reads them.
#[derive(Debug)]
pub struct HostMatrices {
    /// Keeps the memory of `weight` pinned. Dropped before it.
    pub pinned: Option<Storage>,
    /// The weight as the host's backend prepared it.
    pub weight: Weight,
    /// Slots in the device's memory, of one matrix each: an ordinary weight of the device. They start with the matrices of the
    /// first experts.
    pub slots: Option<Weight>,
}
