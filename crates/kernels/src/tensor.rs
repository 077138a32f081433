//! Buffers of a device and strided views of them.
//!
//! # Every buffer stores its device
//!
//! A buffer of another device is a typed error. Only `upload` and `download` copy between host and device. *No step
//! waits for the host between its operations.*

use crate::error::{Error, Result};
use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Which device a buffer lives on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceId {
    /// Host memory, shared by all CPU backends of the process.
    Cpu,
    /// A CUDA device by its number; simulated ones have numbers from [`DeviceId::SIMULATED`] on.
    Cuda(u32),
    /// A Metal device by its number, likewise.
    Metal(u32),
}

impl DeviceId {
    /// The least number of a simulated device. No driver counts that far.
    pub const SIMULATED: u32 = 1 << 16;

    /// The kind of the device: `cpu`, `cuda` or `metal`.
    pub fn kind(self) -> &'static str {
        match self {
            DeviceId::Cpu => "cpu",
            DeviceId::Cuda(_) => "cuda",
            DeviceId::Metal(_) => "metal",
        }
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, number) = match self {
            DeviceId::Cpu => return f.write_str("the CPU"),
            DeviceId::Cuda(number) => ("CUDA", number),
            DeviceId::Metal(number) => ("Metal", number),
        };
        match number.checked_sub(Self::SIMULATED) {
            Some(number) => write!(f, "simulated {kind} device {number}"),
            None => write!(f, "{kind} device {number}"),
        }
    }
}

/// Memory of a device, as that device's backend keeps it: freed when dropped.
pub trait DeviceMemory: Any + fmt::Debug + Send + Sync {
    /// The device.
    fn device(&self) -> DeviceId;
    /// Size in bytes.
    fn bytes(&self) -> usize;
}

/// An array on a device, made by [`crate::Backend::alloc`]. The caller owns it and passes it to operations.
#[derive(Debug)]
pub struct Buffer<T> {
    memory: Memory<T>,
}

#[derive(Debug)]
enum Memory<T> {
    Host(Vec<T>),
    /// `len` elements at the start of the memory.
    Device {
        memory: Box<dyn DeviceMemory>,
        len: usize,
        element: PhantomData<T>,
    },
}

/// An element of the buffers that [`crate::Backend::alloc`] makes.
pub trait Element: bytemuck::Pod + Default {}

impl Element for f32 {}
impl Element for u32 {}

impl<T: Copy + Default> Buffer<T> {
    /// A zeroed buffer in host memory.
    pub fn host_zeroed(len: usize, what: &'static str) -> Result<Self> {
        zeroed(len, what).map(Self::host)
    }
}

/// Zeroed host memory.
///
/// # Errors
/// [`Error::OutOfMemory`] with what it was for.
pub fn zeroed<T: Copy + Default>(len: usize, what: &'static str) -> Result<Vec<T>> {
    let mut memory = Vec::new();
    let bytes = len.saturating_mul(size_of::<T>());
    memory.try_reserve_exact(len).map_err(|_| Error::OutOfMemory { what, bytes })?;
    memory.resize(len, T::default());
    Ok(memory)
}

impl<T: Copy> Buffer<T> {
    /// A buffer in host memory with these values.
    pub fn host(values: Vec<T>) -> Self {
        Self { memory: Memory::Host(values) }
    }

    /// A buffer of all whole elements that fit into device memory.
    pub fn on_device(memory: Box<dyn DeviceMemory>) -> Self {
        let len = memory.bytes() / size_of::<T>().max(1);
        Self { memory: Memory::Device { memory, len, element: PhantomData } }
    }

    /// Elements.
    pub fn len(&self) -> usize {
        match &self.memory {
            Memory::Host(values) => values.len(),
            Memory::Device { len, .. } => *len,
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The device that owns it.
    pub fn device(&self) -> DeviceId {
        match &self.memory {
            Memory::Host(_) => DeviceId::Cpu,
            Memory::Device { memory, .. } => memory.device(),
        }
    }

    /// The memory, if it is a device's own.
    pub fn device_memory(&self) -> Option<&dyn DeviceMemory> {
        match &self.memory {
            Memory::Host(_) => None,
            Memory::Device { memory, .. } => Some(&**memory),
        }
    }

    /// The values, if they are in host memory.
    pub fn as_host(&self) -> Option<&[T]> {
        match &self.memory {
            Memory::Host(values) => Some(values),
            Memory::Device { .. } => None,
        }
    }

    /// The values for writing, if they are in host memory.
    pub fn as_host_mut(&mut self) -> Option<&mut [T]> {
        match &mut self.memory {
            Memory::Host(values) => Some(values),
            Memory::Device { .. } => None,
        }
    }

    /// The values, if they are in host memory; else the buffer.
    pub fn into_host(self) -> std::result::Result<Vec<T>, Self> {
        match self.memory {
            Memory::Host(values) => Ok(values),
            Memory::Device { .. } => Err(self),
        }
    }

    /// The first `rows * cols` elements as a matrix.
    pub fn view(&self, rows: usize, cols: usize) -> Result<View<'_, T>> {
        let layout = RowLayout::new(0, rows, cols, cols, self.len())?;
        let elements = match &self.memory {
            Memory::Host(values) => Elements::Host(&values[..]),
            Memory::Device { memory, len, .. } => Elements::Device { memory: &**memory, len: *len },
        };
        Ok(View { elements, layout })
    }

    /// The first `rows * cols` elements as a matrix, for writing.
    pub fn view_mut(&mut self, rows: usize, cols: usize) -> Result<ViewMut<'_, T>> {
        self.view_mut_at(0, rows, cols)
    }

    /// `rows * cols` elements from `offset` on as a matrix, for writing.
    ///
    /// # Errors
    /// [`Error::View`] if they are not all in the buffer.
    pub fn view_mut_at(&mut self, offset: usize, rows: usize, cols: usize) -> Result<ViewMut<'_, T>> {
        let layout = RowLayout::new(offset, rows, cols, cols, self.len())?;
        let elements = match &mut self.memory {
            Memory::Host(values) => Elements::Host(&mut values[..]),
            Memory::Device { memory, len, .. } => Elements::Device { memory: &**memory, len: *len },
        };
        Ok(ViewMut { elements, layout })
    }
}

/// Where the rows of a view lie, in elements. Always inside the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowLayout {
    offset: usize,
    rows: usize,
    cols: usize,
    stride: usize,
}

impl RowLayout {
    fn new(offset: usize, rows: usize, cols: usize, stride: usize, len: usize) -> Result<Self> {
        let end = match rows {
            0 => Some(offset),
            _ => (rows - 1).checked_mul(stride).and_then(|n| n.checked_add(cols)).and_then(|n| n.checked_add(offset)),
        };
        match end {
            Some(end) if end <= len && (stride >= cols || rows <= 1) => Ok(Self { offset, rows, cols, stride }),
            _ => Err(Error::View { offset, rows, cols, stride, len }),
        }
    }

    fn columns(self, columns: Range<usize>, len: usize) -> Result<Self> {
        let Range { start, end } = columns;
        if start > end || end > self.cols {
            let cols = end.saturating_sub(start);
            return Err(Error::View { offset: start, rows: self.rows, cols, stride: self.stride, len: self.cols });
        }
        Self::new(self.offset + start, self.rows, end - start, self.stride, len)
    }

    fn split(self, parts: usize, len: usize) -> Result<Self> {
        let Self { offset, rows, cols, stride } = self;
        if parts == 1 {
            return Ok(self);
        }
        if parts == 0 || !cols.is_multiple_of(parts) || (stride != cols && rows > 1) {
            return Err(Error::View { offset, rows, cols, stride, len });
        }
        let rows = rows.saturating_mul(parts);
        let cols = cols / parts;
        Self::new(offset, rows, cols, cols, len)
    }

    /// Rows.
    pub fn rows(self) -> usize {
        self.rows
    }

    /// Elements in a row.
    pub fn cols(self) -> usize {
        self.cols
    }

    /// Elements from one row to the next.
    pub fn stride(self) -> usize {
        self.stride
    }

    /// From the first element of the first row to the last of the last.
    pub fn span(self) -> Range<usize> {
        let len = self.rows.checked_sub(1).map_or(0, |last| last * self.stride + self.cols);
        self.offset..self.offset + len
    }

    /// The elements of a row. `row < rows`.
    pub fn row(self, row: usize) -> Range<usize> {
        let start = self.offset + row * self.stride;
        start..start + self.cols
    }
}

/// The elements that a view is a part of: a slice of the host, or device memory.
#[derive(Clone, Copy, Debug)]
enum Elements<'a, S> {
    Host(S),
    Device { memory: &'a dyn DeviceMemory, len: usize },
}

impl<S> Elements<'_, S> {
    fn device(&self) -> DeviceId {
        self.device_memory().map_or(DeviceId::Cpu, DeviceMemory::device)
    }

    fn device_memory(&self) -> Option<&dyn DeviceMemory> {
        match self {
            Elements::Host(_) => None,
            Elements::Device { memory, .. } => Some(*memory),
        }
    }
}

impl<T, S: Deref<Target = [T]>> Elements<'_, S> {
    fn len(&self) -> usize {
        match self {
            Elements::Host(values) => values.len(),
            Elements::Device { len, .. } => *len,
        }
    }
}

macro_rules! view_methods {
    () => {
        /// Rows.
        pub fn rows(&self) -> usize {
            self.layout.rows
        }
        /// Elements in a row.
        pub fn cols(&self) -> usize {
            self.layout.cols
        }
        /// Where the rows lie.
        pub fn layout(&self) -> RowLayout {
            self.layout
        }
        /// Where the buffer lives.
        pub fn device(&self) -> DeviceId {
            self.elements.device()
        }
        /// The buffer's memory and where the rows are in it, if it is a device's own.
        pub fn device_memory(&self) -> Option<(&dyn DeviceMemory, RowLayout)> {
            Some((self.elements.device_memory()?, self.layout))
        }
    };
}

/// A matrix to read: rows of `cols` neighbouring elements, `stride` elements from row to row.
#[derive(Clone, Copy, Debug)]
pub struct View<'a, T> {
    elements: Elements<'a, &'a [T]>,
    layout: RowLayout,
}

impl<'a, T: Copy> View<'a, T> {
    view_methods!();

    /// The first `rows * cols` elements of a slice of the caller, without a copy. The view is in host memory, so only
    /// operations of a CPU read it.
    ///
    /// # Errors
    /// [`Error::View`] if the slice has fewer elements.
    pub fn of_host(values: &'a [T], rows: usize, cols: usize) -> Result<Self> {
        let layout = RowLayout::new(0, rows, cols, cols, values.len())?;
        Ok(Self { elements: Elements::Host(values), layout })
    }

    /// Some columns of every row.
    pub fn columns(self, columns: Range<usize>) -> Result<Self> {
        Ok(Self { layout: self.layout.columns(columns, self.elements.len())?, ..self })
    }

    /// Each row as `parts` rows of the same length.
    ///
    /// # Errors
    /// [`Error::View`] if the columns are no multiple of `parts`, or several parts are wanted of rows that are not adjacent.
    pub fn split(self, parts: usize) -> Result<Self> {
        Ok(Self { layout: self.layout.split(parts, self.elements.len())?, ..self })
    }

    /// The buffer's elements and where the rows are in them, if they are in host memory.
    pub fn as_host(&self) -> Option<(&'a [T], RowLayout)> {
        match self.elements {
            Elements::Host(values) => Some((values, self.layout)),
            Elements::Device { .. } => None,
        }
    }
}

/// A matrix to write.
#[derive(Debug)]
pub struct ViewMut<'a, T> {
    elements: Elements<'a, &'a mut [T]>,
    layout: RowLayout,
}

impl<'a, T: Copy> ViewMut<'a, T> {
    view_methods!();

    /// The first `rows * cols` elements of a slice of the caller, for writing without a copy. The view is in host
    /// memory, so only operations of a CPU write it.
    ///
    /// # Errors
    /// [`Error::View`] if the slice has fewer elements.
    pub fn of_host(values: &'a mut [T], rows: usize, cols: usize) -> Result<Self> {
        let layout = RowLayout::new(0, rows, cols, cols, values.len())?;
        Ok(Self { elements: Elements::Host(values), layout })
    }

    /// Some columns of every row.
    pub fn columns(self, columns: Range<usize>) -> Result<Self> {
        Ok(Self { layout: self.layout.columns(columns, self.elements.len())?, ..self })
    }

    /// Each row as `parts` rows of the same length.
    ///
    /// # Errors
    /// [`Error::View`] if the columns are no multiple of `parts`, or several parts are wanted of rows that are not adjacent.
    pub fn split(self, parts: usize) -> Result<Self> {
        Ok(Self { layout: self.layout.split(parts, self.elements.len())?, ..self })
    }

    /// The same view for reading.
    pub fn as_view(&self) -> View<'_, T> {
        let elements = match &self.elements {
            Elements::Host(values) => Elements::Host(&**values),
            Elements::Device { memory, len } => Elements::Device { memory: *memory, len: *len },
        };
        View { elements, layout: self.layout }
    }

    /// The same view again, for a shorter time.
    pub fn reborrow(&mut self) -> ViewMut<'_, T> {
        let elements = match &mut self.elements {
            Elements::Host(values) => Elements::Host(&mut **values),
            Elements::Device { memory, len } => Elements::Device { memory: *memory, len: *len },
        };
        ViewMut { elements, layout: self.layout }
    }

    /// The buffer's elements and where the rows are in them, if they are in host memory.
    pub fn as_host_mut(&mut self) -> Option<(&mut [T], RowLayout)> {
        match &mut self.elements {
            Elements::Host(values) => Some((values, self.layout)),
            Elements::Device { .. } => None,
        }
    }
}

/// Bytes that stay valid and unchanged as long as this handle lives: a range of a mapped file, or of memory.
#[derive(Clone)]
pub struct SharedBytes {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
}

impl SharedBytes {
    /// A range of the bytes of `owner`, or `None` if it is outside.
    pub fn new(owner: Arc<dyn AsRef<[u8]> + Send + Sync>, range: Range<usize>) -> Option<Self> {
        (*owner).as_ref().get(range.clone())?;
        Some(Self { owner, range })
    }

    /// A range of these bytes, or `None` if it is outside.
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        self.as_slice().get(range.clone())?;
        // The end is at most that of `self`, so no sum overflows.
        let range = self.range.start + range.start..self.range.start + range.end;
        Some(Self { owner: self.owner.clone(), range })
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        // An owner whose slice shrinks breaks its promise: the result is empty, not a panic.
        (*self.owner).as_ref().get(self.range.clone()).unwrap_or(&[])
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl PartialEq for SharedBytes {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for SharedBytes {}

impl From<Vec<u8>> for SharedBytes {
    fn from(bytes: Vec<u8>) -> Self {
        let range = 0..bytes.len();
        Self { owner: Arc::new(bytes), range }
    }
}

impl From<Arc<[u8]>> for SharedBytes {
    fn from(bytes: Arc<[u8]>) -> Self {
        let range = 0..bytes.len();
        Self { owner: Arc::new(bytes), range }
    }
}

impl From<&'static [u8]> for SharedBytes {
    fn from(bytes: &'static [u8]) -> Self {
        Self { owner: Arc::new(bytes), range: 0..bytes.len() }
    }
}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBytes({} bytes)", self.range.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_bytes() {
        let all = SharedBytes::from((0..10).collect::<Vec<u8>>());
        let some = all.slice(2..8).expect("inside");
        assert_eq!(some.slice(1..3).expect("inside").as_slice(), [3, 4]);
        assert_eq!((some.len(), &some[1..3], some.iter().max()), (6, &[3, 4][..], Some(&7)));
        assert_eq!(some, SharedBytes::from(vec![2, 3, 4, 5, 6, 7]));
        let again = SharedBytes::new(Arc::new(some.clone()), 1..3).expect("inside");
        assert_eq!(again.as_slice(), [3, 4]);
        assert!(some.slice(1..7).is_none() && some.slice(7..7).is_none() && some.slice(6..6).is_some());
    }

    #[test]
    fn a_view_at_an_offset_lies_inside() {
        let mut buffer = Buffer::host((0..10_u32).collect());
        let mut view = buffer.view_mut_at(4, 2, 3).expect("elements 4 to 10");
        let (values, layout) = view.as_host_mut().expect("in host memory");
        assert_eq!((&values[layout.row(0)], &values[layout.row(1)]), (&[4, 5, 6][..], &[7, 8, 9][..]));
        assert_eq!(layout.span(), 4..10);
        assert!(buffer.view_mut_at(10, 0, 3).is_ok());
        // The same elements of a slice of the caller.
        let mut values: Vec<u32> = (0..10).collect();
        let start = values.as_ptr();
        let mut view = ViewMut::of_host(&mut values, 2, 5).expect("ten elements");
        let (found, layout) = view.as_host_mut().expect("in host memory");
        assert_eq!((found.as_ptr(), &found[layout.row(1)]), (start, &[5, 6, 7, 8, 9][..]));
        let columns = View::of_host(&values, 2, 5).and_then(|view| view.columns(3..5)).expect("inside");
        assert_eq!((columns.device(), columns.layout().row(1)), (DeviceId::Cpu, 8..10));
        assert!(matches!(View::of_host(&values, 2, 6), Err(Error::View { .. })));
        assert!(matches!(ViewMut::of_host(&mut values, 11, 1), Err(Error::View { .. })));
        for (offset, rows, cols) in [(5, 2, 3), (11, 0, 3), (usize::MAX, 1, 1), (1, usize::MAX, 2)] {
            let refused = buffer.view_mut_at(offset, rows, cols);
            assert!(matches!(refused, Err(Error::View { .. })), "{offset} {rows} {cols}");
        }
    }
}
