//! The items of a program's lists: their indices, and the shapes of values.

/// Declares the index of an item in one of the program's lists.
macro_rules! ids {
    ($($(#[$doc:meta])* $id:ident;)*) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub(crate) struct $id(pub(crate) usize);)*
    };
}

ids! {
    /// A matrix of weights: [`Tensors::matrices`](super::tensors::Tensors::matrices).
    MatrixId;
    /// A vector of weights: [`Tensors::vectors`](super::tensors::Tensors::vectors).
    VectorId;
    /// A number among the weights: [`Tensors::scalars`](super::tensors::Tensors::scalars).
    ScalarId;
    /// An order of columns among the weights: [`Tensors::orders`](super::tensors::Tensors::orders).
    OrderId;
    /// A value of f32 rows: [`Program::rows`](super::Program::rows).
    RowsId;
    /// A value of prepared activations: [`Program::acts`](super::Program::acts).
    ActId;
    /// The (token, expert) pairs of a layer, sorted by expert: [`Program::groups`](super::Program::groups).
    GroupsId;
}

/// The unit that a value has rows for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Each token of the batch.
    Token,
    /// Each token of the batch whose logits are computed.
    Output,
}

/// The shape of a value of f32 rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowsShape {
    pub(crate) unit: Unit,
    /// Rows for each unit: 1, or the experts that each token gets.
    pub(crate) per_unit: usize,
    pub(crate) cols: usize,
    /// The purpose of its memory, for error messages.
    pub(crate) what: &'static str,
}

/// The shape of prepared activations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ActShape {
    pub(crate) unit: Unit,
    /// Rows for each unit.
    pub(crate) per_unit: usize,
    pub(crate) cols: usize,
    /// f32 at any precision of the model: the input of a router.
    pub(crate) exact: bool,
}

/// The shape of grouped pairs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupsShape {
    pub(crate) experts: GroupedExperts,
    pub(crate) top_k: usize,
}

/// The experts that pairs are sorted by: all experts of a router, or those of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupedExperts {
    pub(crate) first: usize,
    pub(crate) count: usize,
    /// Experts of the router.
    pub(crate) all: usize,
}

/// Columns of a value of f32 rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Columns {
    pub(crate) rows: RowsId,
    pub(crate) first: usize,
    pub(crate) end: usize,
}

/// A factor that is a constant of the spec, or a weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Factor {
    Constant(f32),
    Weight(ScalarId),
}
