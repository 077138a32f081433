//! The weights of a program: which tensors of a file they consist of.

use std::ops::Range;

use gristmill_files::gguf::GgufFile;
use gristmill_kernels::format::Format;
use gristmill_kernels::weight::{Location, Role};

use super::{MatrixId, OrderId, ScalarId, VectorId};

/// All weights of a model.
#[derive(Debug, Default)]
pub(crate) struct Tensors {
    pub(crate) matrices: Vec<MatrixSpec>,
    pub(crate) vectors: Vec<VectorSpec>,
    /// Tensors of one element.
    pub(crate) scalars: Vec<TensorSpec>,
    /// Tensors that the host reads.
    hosts: Vec<TensorSpec>,
    /// Orders of columns. All tensors of one are equal.
    pub(crate) orders: Vec<Vec<TensorSpec>>,
    /// All weights in the order of the forward pass.
    order: Vec<WeightId>,
    /// `rope_freqs.weight`, if the model has it.
    pub(crate) rope_factors: Option<VectorId>,
    /// LongRoPE's factors for short and for long contexts.
    pub(crate) long_rope_factors: Option<[VectorId; 2]>,
}

#[derive(Clone, Copy, Debug)]
enum WeightId {
    Matrix(MatrixId),
    Vector(VectorId),
    Scalar(ScalarId),
    /// A tensor that the host reads: its index in `hosts`.
    Host(usize),
    Order(OrderId),
}

/// A matrix: the rows of its tensors, one tensor after another.
#[derive(Debug)]
pub(crate) struct MatrixSpec {
    pub(crate) role: Role,
    pub(crate) location: Location,
    /// Slots in the device's memory for matrices in host memory or in the file, at most one for each.
    pub(crate) slots: usize,
    /// A table is copied from the file's map: reading the map of a file that was truncated would end the process.
    pub(crate) is_copied: bool,
    pub(crate) tensors: Vec<TensorSpec>,
}

/// A vector of weights.
#[derive(Debug)]
pub(crate) enum VectorSpec {
    /// The elements of these tensors, one tensor after another; of a matrix, row by row.
    Tensors(Vec<TensorSpec>),
    /// The elements of a tensor, each multiplied by the factor.
    Scaled(TensorSpec, f32),
    /// `count` times these values, which are in no file.
    Repeated { values: &'static [f32], count: usize },
}

/// A tensor that is needed: its name, and its shape with the innermost dimension first.
#[derive(Clone, Debug)]
pub(crate) struct TensorSpec {
    pub(crate) name: String,
    pub(crate) shape: Vec<u64>,
    /// The order of its rows, if it is not the file's order.
    pub(crate) order: Option<RowOrder>,
    /// The loaded rows are those of so many heads, each of which has a matrix.
    pub(crate) heads: Option<Heads>,
    /// All dimensions but the last are one row: the weights of patches.
    pub(crate) is_of_patches: bool,
    /// So many joined rows, of which the file has the elements of each channel together, and the columns are loaded row by
    /// row.
    pub(crate) by_channel: Option<usize>,
    /// A tensor `X.scale` of the file is the scale of this `X.weight`, and not another weight of the model.
    pub(crate) is_scaled: bool,
    /// The part of it that is loaded.
    pub(crate) cut: Cut,
}

/// The part of a tensor's matrices that is loaded, in the order in which they are loaded. `None` is all. Only tensors whose rows are
/// loaded as they are, or in another order, are cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) experts: Option<Range<usize>>,
    pub(crate) rows: Option<Range<usize>>,
    /// Whole blocks of the tensor's format.
    pub(crate) columns: Option<Range<usize>>,
}

/// How the rows of all heads become a matrix for each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heads {
    pub(crate) count: usize,
    /// Rows become columns.
    pub(crate) transposed: bool,
}

/// A part of the rows of each head: see [`TensorSpec::of_heads`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadPart {
    FirstTransposed,
    Second,
}

/// The rows of a matrix are equal groups of several parts; the parts are loaded in another order.
#[derive(Clone, Debug)]
pub(crate) struct RowOrder {
    /// Rows of each part of a group.
    pub(crate) parts: Vec<usize>,
    /// The parts that are loaded, in order.
    pub(crate) order: Vec<usize>,
}

impl Tensors {
    pub(crate) fn add_matrix(&mut self, role: Role, tensors: Vec<TensorSpec>) -> MatrixId {
        self.matrices.push(MatrixSpec { role, location: Location::Device, slots: 0, is_copied: false, tensors });
        let id = MatrixId(self.matrices.len() - 1);
        self.order.push(WeightId::Matrix(id));
        id
    }

    pub(crate) fn add_vector(&mut self, vector: VectorSpec) -> VectorId {
        self.vectors.push(vector);
        let id = VectorId(self.vectors.len() - 1);
        self.order.push(WeightId::Vector(id));
        id
    }

    pub(crate) fn add_scalar(&mut self, tensor: TensorSpec) -> ScalarId {
        self.scalars.push(tensor);
        let id = ScalarId(self.scalars.len() - 1);
        self.order.push(WeightId::Scalar(id));
        id
    }

    /// A tensor that is checked with the others, and that the host reads.
    pub(crate) fn add_host(&mut self, tensor: TensorSpec) {
        self.order.push(WeightId::Host(self.hosts.len()));
        self.hosts.push(tensor);
    }

    pub(crate) fn add_order(&mut self, tensors: Vec<TensorSpec>) -> OrderId {
        self.orders.push(tensors);
        let id = OrderId(self.orders.len() - 1);
        self.order.push(WeightId::Order(id));
        id
    }

    /// All tensors in the order of the forward pass.
    pub(crate) fn all(&self) -> impl Iterator<Item = &TensorSpec> {
        self.since(0)
    }

    /// Weights so far.
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// The tensors of all weights after the first `count`.
    pub(crate) fn since(&self, count: usize) -> impl Iterator<Item = &TensorSpec> {
        self.order.iter().skip(count).flat_map(|id| match *id {
            WeightId::Matrix(id) => self.matrices[id.0].tensors.as_slice(),
            WeightId::Vector(id) => self.vectors[id.0].tensors(),
            WeightId::Scalar(id) => std::slice::from_ref(&self.scalars[id.0]),
            WeightId::Host(at) => std::slice::from_ref(&self.hosts[at]),
            WeightId::Order(id) => self.orders[id.0].as_slice(),
        })
    }
}

/// The name of the tensor with the order of the columns of a matrix of this name.
pub fn column_order(matrix: &str) -> String {
    format!("{}.column_order", matrix.strip_suffix(".weight").unwrap_or(matrix))
}

/// Whether the columns of a matrix are in another order: then those of a rank are not adjacent.
pub(crate) fn has_column_order(file: &GgufFile, matrix: &str) -> bool {
    file.tensor(&column_order(matrix)).is_some()
}

impl VectorSpec {
    pub(crate) fn tensors(&self) -> &[TensorSpec] {
        match self {
            Self::Tensors(tensors) => tensors,
            Self::Scaled(tensor, _) => std::slice::from_ref(tensor),
            Self::Repeated { .. } => &[],
        }
    }
}

impl TensorSpec {
    pub(crate) fn new(name: impl Into<String>, shape: &[usize]) -> Self {
        Self {
            name: name.into(),
            shape: shape.iter().map(|&n| n as u64).collect(),
            order: None,
            heads: None,
            is_of_patches: false,
            by_channel: None,
            is_scaled: true,
            cut: Cut::default(),
        }
    }

    /// The tensor, of whose matrices these rows are loaded.
    pub(crate) fn of_rows(self, rows: Range<usize>) -> Self {
        Self { cut: Cut { rows: Some(rows), ..self.cut }, ..self }
    }

    /// A tensor with a row of (channel, row, column) for each output.
    pub(crate) fn of_patches(self) -> Self {
        Self { is_of_patches: true, ..self }
    }

    /// A matrix whose columns are (channel, joined row).
    pub(crate) fn by_channel(self, joined: usize) -> Self {
        Self { by_channel: Some(joined), ..self }
    }

    /// A matrix that the file has transposed.
    pub(crate) fn transposed(self) -> Self {
        Self { heads: Some(Heads { count: 1, transposed: true }), ..self }
    }

    /// A matrix for each head, from a tensor that has for each head `parts[0]` rows, then `parts[1]`.
    pub(crate) fn of_heads(name: &str, cols: usize, heads: usize, parts: [usize; 2], part: HeadPart) -> Self {
        let rows = heads.saturating_mul(parts[0].saturating_add(parts[1]));
        let transposed = part == HeadPart::FirstTransposed;
        let order = RowOrder { parts: parts.to_vec(), order: vec![usize::from(!transposed)] };
        let heads = Some(Heads { count: heads, transposed });
        Self { order: Some(order), heads, ..Self::new(name, &[cols, rows]) }
    }

    /// The first and the second half of the rows of each matrix of a tensor: `[cols, rows of a half, matrices]`.
    pub(crate) fn halves(name: &str, [cols, rows, experts]: [usize; 3]) -> Vec<Self> {
        let half = |half| {
            let order = RowOrder { parts: vec![rows; 2], order: vec![half] };
            Self { order: Some(order), ..Self::new(name, &[cols, rows.saturating_mul(2), experts]) }
        };
        vec![half(0), half(1)]
    }

    /// (experts, rows, cols) of the part of a matrix that is loaded.
    pub(crate) fn matrix(&self) -> (usize, usize, usize) {
        let (experts, rows, cols) = self.whole_matrix();
        let of = |cut: &Option<Range<usize>>, all| cut.as_ref().map_or(all, Range::len);
        let Cut { experts: of_experts, rows: of_rows, columns } = &self.cut;
        (of(of_experts, experts), of(of_rows, rows), of(columns, cols))
    }

    /// Those of `bytes` bytes of the file that are in the part that is loaded.
    pub(crate) fn part_of(&self, bytes: u64) -> u64 {
        let elements = |(experts, rows, cols): (usize, usize, usize)| experts as u128 * rows as u128 * cols as u128;
        let (part, whole) = (elements(self.matrix()), elements(self.whole_matrix()));
        if self.cut == Cut::default() || whole == 0 { bytes } else { (u128::from(bytes) * part / whole) as u64 }
    }

    /// (experts, rows, cols) of a matrix, with the rows that are loaded of a tensor that is not cut. The dimensions fit, because a
    /// tensor of this shape is in memory or on a disk; the survey checks this first.
    pub(crate) fn whole_matrix(&self) -> (usize, usize, usize) {
        let dim = |i: usize| self.shape.get(i).map_or(1, |&n| n as usize);
        if self.is_of_patches {
            let (rows, cols) = self.shape.split_last().map_or((1, &[][..]), |(rows, cols)| (*rows, cols));
            return (1, rows as usize, cols.iter().map(|&n| n as usize).product());
        }
        let rows = self.order.as_ref().map_or(dim(1), |order| order.loaded(dim(1)));
        match self.heads {
            None => (dim(2), rows, dim(0)),
            Some(Heads { count, transposed: false }) => (count, rows / count.max(1), dim(0)),
            Some(Heads { count, transposed: true }) => (count, dim(0), rows / count.max(1)),
        }
    }

    /// The order of the columns of a matrix, which a file can have: for each column the input that it is multiplied with.
    pub(crate) fn column_order(&self) -> TensorSpec {
        let columns = self.shape.first().map_or(0, |&columns| columns as usize);
        TensorSpec::new(column_order(&self.name), &[columns])
    }

    /// The format in which the tensor is loaded. Blocks cannot be transposed, so what is neither F32 nor BF16 becomes F16,
    /// which rounds less than any format of blocks.
    pub(crate) fn loaded_format(&self, stored: Format) -> Format {
        match self.heads {
            _ if self.is_transposed() && ![Format::F32, Format::BF16].contains(&stored) => Format::F16,
            _ => stored,
        }
    }

    /// Whether the loaded bytes are not those of the file.
    pub(crate) fn is_transposed(&self) -> bool {
        self.by_channel.is_some() || self.heads.is_some_and(|heads| heads.transposed)
    }

    /// Elements of the tensor in the file.
    pub(crate) fn elements(&self) -> u64 {
        self.shape.iter().fold(1, |all, &n| all.saturating_mul(n))
    }

    /// Rows of all experts in the file.
    pub(crate) fn file_rows(&self) -> usize {
        self.shape.iter().skip(1).map(|&n| n as usize).product()
    }
}

impl RowOrder {
    /// How many of `rows` rows, which are whole groups, are loaded.
    fn loaded(&self, rows: usize) -> usize {
        let of_group: usize = self.order.iter().map(|&part| self.parts[part]).sum();
        rows / self.parts.iter().sum::<usize>().max(1) * of_group
    }

    /// The loaded rows of `rows`, if they are adjacent: one part of a single group.
    pub(crate) fn slice(&self, rows: usize) -> Option<Range<usize>> {
        let &[part] = self.order.as_slice() else { return None };
        let start = self.parts[..part].iter().sum();
        (rows == self.parts.iter().sum::<usize>()).then(|| start..start + self.parts[part])
    }

    /// The bytes of a matrix with rows of `row` bytes.
    pub(crate) fn apply(&self, bytes: &[u8], row: usize) -> Vec<u8> {
        let group = self.parts.iter().sum::<usize>() * row;
        let mut ordered = Vec::with_capacity(bytes.len());
        for &part in &self.order {
            let start = self.parts[..part].iter().sum::<usize>() * row;
            let of_group = |group: &[u8]| group[start..start + self.parts[part] * row].to_vec();
            bytes.chunks_exact(group.max(1)).for_each(|group| ordered.extend(of_group(group)));
        }
        ordered
    }
}
