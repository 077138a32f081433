//! A device: the only access to its kernels.
//!
//! # One checked entry
//!
//! An operation is a struct of arguments (`kernels/src/ops`). `Backend::run` checks shapes, devices and ids, then calls
//! the backend's `Kernels` with `Checked<…>`. Only the check can construct `Checked<…>`. So no kernel repeats a check,
//! and a call that skips the check does not compile (a `compile_fail` test).

use crate::act::{Act, ActReader, Precision, Representations};
use crate::error::{Error, Result};
use crate::groups::{Groups, max_tiles};
use crate::kv::{KvCache, KvSpec};
use crate::offload::Offload;
use crate::ops::check::{MAX_EXPERTS, at_least, elements, expect, on_device, require};
use crate::ops::{self, Dispatch, Graph, Kernels, PendingRead, Rates};
use crate::ranks::Ranks;
use crate::tensor::{Buffer, DeviceId, Element, View, zeroed};
use crate::weight::{Footprint, Location, Role, TensorShape, TensorView, Weight};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::MutexGuard;

/// One device. All of it is `&self`: threads may share a backend, whose operations run one after another.
pub struct Backend {
    kernels: Box<dyn Kernels>,
}

impl Backend {
    /// Wraps a backend's kernels in the checks.
    pub fn new(kernels: impl Kernels + 'static) -> Self {
        Self { kernels: Box::new(kernels) }
    }

    /// Checks an operation's arguments and runs it.
    ///
    /// # Errors
    /// If an argument is invalid, in which case nothing was written, or the device fails.
    pub fn run<O: Dispatch>(&self, operation: O) -> Result<()> {
        ops::run(&*self.kernels, operation)
    }

    /// The human-readable name of the device and its level.
    pub fn name(&self) -> String {
        self.kernels.name()
    }

    /// Which device.
    pub fn device(&self) -> DeviceId {
        self.kernels.device()
    }

    /// Properties on which the bits of results depend next to the operations and the build: the instruction sets of a
    /// CPU, the model of a GPU.
    pub fn arithmetic(&self) -> Vec<String> {
        self.kernels.arithmetic()
    }

    /// Whether a row of a result has the same bits whatever other rows the operation has, and however a sequence's
    /// tokens are split into steps: true of CPUs, and of a GPU that was opened with that option
    /// (`docs/determinism.md`).
    pub fn deterministic(&self) -> bool {
        self.kernels.deterministic()
    }

    /// Bytes that can still be allocated, or `None` for host memory without a limit, which is the system's to tell.
    pub fn free_memory(&self) -> Result<Option<u64>> {
        self.kernels.free_memory()
    }

    /// The device's peak rates, measured quickly; `None` for the CPU.
    pub fn rates(&self) -> Result<Option<Rates>> {
        self.kernels.rates()
    }

    /// Rows that a step of `rows` rows is padded to, so that one captured graph serves several counts. `rows` itself
    /// for a backend that captures nothing.
    pub fn batch_bucket(&self, rows: usize) -> usize {
        self.kernels.batch_bucket(rows)
    }

    /// The [`crate::kv::Placement::context_columns`] of a step whose tokens reach `columns` columns of the block table,
    /// so that one captured graph serves several lengths. `columns` itself for a backend that captures nothing.
    pub fn context_bucket(&self, columns: usize) -> usize {
        self.kernels.context_bucket(columns)
    }

    /// Captures the operations that `work` runs into a graph, instead of running them. `work` must have run once
    /// before, with the same shapes and buffers. `None` if this backend cannot capture; then `work` has not run.
    pub fn capture(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Option<Box<dyn Graph>>> {
        self.kernels.capture(work)
    }

    /// Prepares what `work` needs without running it: on a GPU kernels are compiled, several at a time. `work` gets a
    /// backend that accepts this backend's buffers and weights, and computes nothing. `progress` gets the number of
    /// compiled kernel sources, and of those to compile; nothing if none is to be compiled.
    ///
    /// # Errors
    /// Errors of `work`, or of the preparation.
    pub fn make_ready(
        &self,
        work: &mut dyn FnMut(&Backend) -> Result<()>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<()> {
        self.kernels.make_ready(work, progress)
    }

    /// Exclusive use of the device, to be held around operations that belong together when several threads share a
    /// backend: a GPU has one order of work, one workspace, and captures whatever is launched meanwhile. `None` on a
    /// CPU, where operations share only their arguments.
    pub fn exclusive(&self) -> Option<MutexGuard<'_, ()>> {
        self.kernels.exclusive()
    }

    /// A warning for the user, for instance that compiled kernels cannot be kept.
    pub fn notice(&self) -> Option<String> {
        self.kernels.notice()
    }

    /// For the user: how many kernels were kept on disk, compiled ahead, or compiled now. `None` if nothing is compiled.
    pub fn code_report(&self) -> Option<String> {
        self.kernels.code_report()
    }

    /// A zeroed buffer. `what` names it in an out-of-memory error.
    pub fn alloc<T: Element>(&self, len: usize, what: &'static str) -> Result<Buffer<T>> {
        match self.kernels.heap() {
            None => Buffer::host_zeroed(len, what),
            Some(heap) => Ok(Buffer::on_device(heap.allocate(elements(what, &[len, size_of::<T>()])?, what)?)),
        }
    }

    /// Storage for activations of up to `rows` × `cols`.
    pub fn alloc_act(&self, precision: Precision, rows: usize, cols: usize) -> Result<Act> {
        elements("activations", &[rows, cols.next_multiple_of(crate::act::ACT_BLOCK)])?;
        self.kernels.alloc_act(precision, rows, cols)
    }

    /// Names all readers of the activations that the next operation fills. It then prepares them only for these
    /// readers, and can leave other outputs with the same numbers undefined, for example the rows of a norm.
    pub fn name_readers(&self, act: &mut Act, readers: &[ActReader]) {
        let wanted = readers.iter().map(|reader| self.kernels.wanted(act.precision(), reader).0);
        act.want(Representations(wanted.fold(0, |all, wanted| all | wanted)));
    }

    /// A zeroed cache.
    pub fn alloc_kv(&self, spec: KvSpec, blocks: usize) -> Result<KvCache> {
        let (op, rule) = ("alloc_kv", "must not be 0");
        require(spec.heads > 0, op, "heads", spec.heads, rule)?;
        require(spec.key_width > 0, op, "key width", spec.key_width, rule)?;
        require(spec.value_width > 0, op, "value width", spec.value_width, rule)?;
        let fits = !spec.values_in_keys || spec.value_width <= spec.key_width;
        require(fits, op, "value width", spec.value_width, "must be at most the key width if values are in keys")?;
        self.kernels.alloc_kv(spec, blocks)
    }

    /// Bytes that [`Backend::alloc_kv`] takes.
    pub fn kv_bytes(&self, spec: KvSpec, blocks: usize) -> u64 {
        self.kernels.kv_bytes(spec, blocks)
    }

    /// Lists for grouping up to `pairs` pairs over `experts`.
    pub fn alloc_groups(&self, experts: usize, pairs: usize) -> Result<Groups> {
        self.alloc_groups_of(0..experts, experts, pairs)
    }

    /// Lists for grouping up to `pairs` pairs over some of `all` experts. Pairs of the others are pairs without an expert.
    pub fn alloc_groups_of(&self, grouped: Range<usize>, all: usize, pairs: usize) -> Result<Groups> {
        const OP: &str = "alloc_groups";
        let experts = grouped.len();
        require((1..=MAX_EXPERTS).contains(&all), OP, "experts", all, "1 to 1024 are supported")?;
        require(experts > 0, OP, "grouped experts", experts, "must not be 0")?;
        require(grouped.end <= all, OP, "end of the grouped experts", grouped.end, "must not be above the experts")?;
        let what = "expert groups";
        let tiling = self.kernels.tiling();
        let tiles = elements(what, &[max_tiles(experts, pairs, tiling.tile_rows), 3])?;
        Ok(Groups {
            counts: self.alloc(experts, what)?,
            pairs: self.alloc(pairs, what)?,
            tiles: self.alloc(tiles, what)?,
            tile_count: self.alloc(1 + tiling.grid_words, what)?,
            tile_rows: tiling.tile_rows,
            total_pairs: 0,
            first: grouped.start,
            all,
        })
    }

    /// Copies host values to the start of a buffer.
    pub fn upload<T: Element>(&self, values: &[T], to: &mut Buffer<T>) -> Result<()> {
        self.upload_at(values, to, 0)
    }

    /// Copies host values to the elements of a buffer from `at` on.
    pub fn upload_at<T: Element>(&self, values: &[T], to: &mut Buffer<T>, at: usize) -> Result<()> {
        on_device("upload", self.device(), &[to.device()])?;
        at_least("upload", "length of the buffer", to.len(), at.saturating_add(values.len()))?;
        if let Some(memory) = to.as_host_mut() {
            memory[at..][..values.len()].copy_from_slice(values);
            return Ok(());
        }
        match (self.kernels.heap(), to.device_memory()) {
            (Some(heap), Some(memory)) => heap.write(memory, at * size_of::<T>(), bytemuck::cast_slice(values)),
            _ => Err(self.foreign("upload", to)),
        }
    }

    /// Copies a view to host memory, contiguous. On a GPU the elements between its rows are copied along.
    pub fn download<T: Element>(&self, from: View<T>, to: &mut [T]) -> Result<()> {
        on_device("download", self.device(), &[from.device()])?;
        expect("download", "length of the target", to.len(), elements("download", &[from.rows(), from.cols()])?)?;
        if from.cols() == 0 {
            return Ok(());
        }
        if let Some((values, layout)) = from.as_host() {
            for (row, out) in to.chunks_exact_mut(from.cols()).enumerate() {
                out.copy_from_slice(&values[layout.row(row)]);
            }
            return Ok(());
        }
        let (Some(heap), Some((memory, layout))) = (self.kernels.heap(), from.device_memory()) else {
            let expected = self.device();
            let found = from.device();
            return Err(Error::ForeignBuffer { op: "download", expected, found });
        };
        let (span, start) = (layout.span(), layout.span().start * size_of::<T>());
        if span.len() == to.len() {
            return heap.read(memory, start, bytemuck::cast_slice_mut(to));
        }
        let mut all = vec![T::default(); span.len()];
        heap.read(memory, start, bytemuck::cast_slice_mut(&mut all))?;
        for (row, out) in to.chunks_exact_mut(layout.cols()).enumerate() {
            out.copy_from_slice(&all[row * layout.stride()..][..layout.cols()]);
        }
        Ok(())
    }

    /// Waits for all work of the device.
    ///
    /// # Errors
    /// If the device fails, or a kernel has met a bad id since the last time.
    pub fn synchronize(&self) -> Result<()> {
        self.kernels.synchronize()
    }

    /// Whether operations are asynchronous: a call returns before the device has run it, and [`Backend::start_download`]
    /// returns before the copy is done. A host that submits the next step before it reads results keeps the device busy.
    pub fn is_asynchronous(&self) -> bool {
        self.kernels.is_asynchronous()
    }

    /// Starts to copy a view without gaps to host memory. Work that is submitted later does not change the copy. The
    /// copy of an empty view is complete immediately.
    pub fn start_download<T: Element>(&self, from: View<T>) -> Result<PendingDownload<T>> {
        let op = "start_download";
        on_device(op, self.device(), &[from.device()])?;
        let len = elements(op, &[from.rows(), from.cols()])?;
        let pending = match (self.kernels.heap(), from.device_memory()) {
            _ if len == 0 => Box::new(Vec::new()),
            (Some(heap), Some((memory, layout))) => {
                expect(op, "elements from the first to the last", layout.span().len(), len)?;
                heap.start_read(memory, layout.span().start * size_of::<T>(), len * size_of::<T>())?
            }
            _ => {
                let mut values = vec![T::default(); len];
                self.download(from, &mut values)?;
                Box::new(bytemuck::cast_slice(&values).to_vec())
            }
        };
        Ok(PendingDownload { pending, element: PhantomData })
    }

    /// The values of a buffer, moved out of host memory or copied from a device.
    pub fn into_host<T: Element>(&self, buffer: Buffer<T>) -> Result<Vec<T>> {
        on_device("into_host", self.device(), &[buffer.device()])?;
        match buffer.into_host() {
            Ok(values) => Ok(values),
            Err(buffer) => {
                let mut values = zeroed(buffer.len(), "a download")?;
                self.download(buffer.view(1, buffer.len())?, &mut values)?;
                Ok(values)
            }
        }
    }

    /// Copies a view without gaps to the elements of another buffer from `at` on.
    pub fn copy<T: Element>(&self, from: View<T>, to: &mut Buffer<T>, at: usize) -> Result<()> {
        let op = "copy";
        on_device(op, self.device(), &[from.device(), to.device()])?;
        let len = elements(op, &[from.rows(), from.cols()])?;
        // Whether it fits.
        to.view_mut_at(at, 1, len)?;
        if len == 0 {
            return Ok(());
        }
        if let (Some((values, layout)), Some(to)) = (from.as_host(), to.as_host_mut()) {
            expect(op, "elements from the first to the last", layout.span().len(), len)?;
            to[at..at + len].copy_from_slice(&values[layout.span()]);
            return Ok(());
        }
        match (self.kernels.heap(), from.device_memory(), to.device_memory()) {
            (Some(heap), Some((memory, layout)), Some(target)) => {
                expect(op, "elements from the first to the last", layout.span().len(), len)?;
                let size = size_of::<T>();
                heap.copy((memory, layout.span().start * size), (target, at * size), len * size)
            }
            _ => Err(self.foreign(op, to)),
        }
    }

    fn foreign<T: Element>(&self, op: &'static str, buffer: &Buffer<T>) -> Error {
        Error::ForeignBuffer { op, expected: self.device(), found: buffer.device() }
    }

    /// Bytes that [`Backend::prepare`] takes for a tensor; for several, their sum.
    pub fn footprint(&self, shape: &TensorShape, role: Role) -> Footprint {
        self.kernels.footprint(shape, role)
    }

    /// Brings weights into this backend's layout. [`Role::Matrix`] joins any number of tensors of equal `cols` and
    /// `experts`; [`Role::GateUp`] takes two of one shape; [`Role::Up`], [`Role::Table`] and [`Role::Tied`] one. A weight of role
    /// Tied serves wherever one of role Table or Matrix does.
    pub fn prepare(&self, tensors: &[TensorView], role: Role) -> Result<Weight> {
        tensors.iter().try_for_each(TensorView::check)?;
        let shapes: Vec<_> = tensors.iter().map(TensorView::shape).collect();
        let (experts, rows, cols) = joined("prepare", &shapes, role)?;
        let prepared = self.kernels.prepare(tensors, role)?;
        Ok(Weight { device: self.device(), location: Location::Device, role, experts, rows, cols, prepared })
    }

    /// The devices that run one model together with this one; `None` if sums must go through the host.
    pub fn ranks(&self) -> Option<Ranks<'_>> {
        self.kernels.ranks().map(|kernels| Ranks::new(self.device(), kernels))
    }

    /// Experts outside the device.
    pub fn offload(&self) -> Offload<'_> {
        Offload::new(self, self.kernels.offload())
    }
}

/// A device-to-host copy in flight: [`Backend::start_download`].
#[derive(Debug)]
pub struct PendingDownload<T> {
    pending: Box<dyn PendingRead>,
    element: PhantomData<T>,
}

impl<T: Element> PendingDownload<T> {
    /// Waits for them, and for the work that was given before them.
    ///
    /// # Errors
    /// If the device fails, or a kernel has met a bad id.
    pub fn wait(self) -> Result<Vec<T>> {
        // Bytes may lie where elements may not.
        let bytes = self.pending.wait()?;
        Ok(bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect())
    }
}

/// Experts, rows and columns of the weight that these tensors make.
pub(crate) fn joined(op: &'static str, tensors: &[TensorShape], role: Role) -> Result<(usize, usize, usize)> {
    require(!tensors.is_empty(), op, "tensors", 0, "at least one is needed")?;
    let first = &tensors[0];
    for other in tensors {
        expect(op, "columns of a joined tensor", other.cols, first.cols)?;
        expect(op, "experts of a joined tensor", other.experts, first.experts)?;
    }
    match role {
        Role::Matrix => {
            let rows = tensors.iter().try_fold(0_usize, |n, t| n.checked_add(t.rows));
            let rows = rows.ok_or(Error::OutOfMemory { what: "joined weights", bytes: usize::MAX })?;
            Ok((first.experts, rows, first.cols))
        }
        Role::GateUp => {
            expect(op, "tensors of a gate and up pair", tensors.len(), 2)?;
            expect(op, "rows of the up tensor", tensors[1].rows, first.rows)?;
            Ok((first.experts, first.rows, first.cols))
        }
        Role::Up => {
            expect(op, "tensors of an up matrix", tensors.len(), 1)?;
            Ok((first.experts, first.rows, first.cols))
        }
        Role::Table | Role::Tied => {
            expect(op, "tensors of a table", tensors.len(), 1)?;
            expect(op, "experts of a table", first.experts, 1)?;
            Ok((1, first.rows, first.cols))
        }
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Backend({})", self.name())
    }
}
