//! The nodes of a program: operations of [`gristmill_kernels::ops`] with the values they read and write.

use gristmill_kernels::ops::{
    Activation, DecayKind, DeltaHeads, Epilogue, GateKind, GateOrder, Routing, ScanHeads, Temperature, Window,
};

use super::{ActId, Columns, Factor, GroupsId, MatrixId, OrderId, RowsId, ScalarId, VectorId};

/// An operation of a forward pass, with the name that it has in the kernels. [`fuse`](super::fuse) makes `NormAct`,
/// `NormMatmul`, `AddNorm`, `AddNormAct` and `AddNorms` of simpler nodes; the builder emits all others.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// Rows that the caller uploads before the pass.
    Input {
        rows: Vec<RowsId>,
    },
    /// Each row of `out` consists of adjacent rows of x.
    Join {
        x: RowsId,
        out: RowsId,
    },
    /// Embeddings of the batch's tokens.
    Embed {
        table: MatrixId,
        scale: f32,
        out: RowsId,
    },
    /// Rows of pictures take the place of the embeddings of their tokens.
    Pictures {
        out: RowsId,
    },
    /// Rows of pictures are added at their tokens.
    AddPictures {
        /// Which of the rows of a token.
        level: usize,
        out: RowsId,
    },
    RmsNorm(RmsNorm),
    LayerNorm {
        x: RowsId,
        weight: VectorId,
        bias: VectorId,
        eps: f32,
        out: RowsId,
    },
    Prepare {
        x: RowsId,
        act: ActId,
    },
    /// Activations of some columns, a row for each row of the value.
    PrepareColumns {
        x: Columns,
        act: ActId,
    },
    /// The norm's output is also prepared as one or two activations.
    NormAct {
        norm: RmsNorm,
        acts: [Option<ActId>; 2],
    },
    NormMatmul {
        norm: RmsNorm,
        act: ActId,
        other: Option<ActId>,
        weight: MatrixId,
        bias: Option<VectorId>,
        y: RowsId,
    },
    Matmul {
        weight: MatrixId,
        bias: Option<VectorId>,
        act: ActId,
        epilogue: Epilogue,
        y: RowsId,
    },
    /// The product of the rows whose logits are computed.
    OutputMatmul {
        weight: MatrixId,
        bias: Option<VectorId>,
        act: ActId,
        y: RowsId,
    },
    /// With `act`, the product is prepared as activations and `h` is scratch.
    GateUp {
        weight: MatrixId,
        activation: Activation,
        x: ActId,
        h: RowsId,
        act: Option<ActId>,
    },
    /// x = the sum of x over all ranks.
    AllReduce {
        x: RowsId,
    },
    /// Rows for the rank that has the next layers.
    Send {
        to: usize,
        x: RowsId,
    },
    /// x = the rows of the rank that has the layers before.
    Receive {
        from: usize,
        x: RowsId,
    },
    /// y += scale · x.
    Add {
        x: RowsId,
        scale: f32,
        y: RowsId,
    },
    /// y += sigmoid(gate) · x.
    AddGated {
        x: RowsId,
        gate: Columns,
        y: RowsId,
    },
    AddNorm(AddNorm),
    /// `next` is the weight of the norm between the sum and the activations.
    AddNormAct {
        sum: AddNorm,
        next: Option<VectorId>,
        act: ActId,
    },
    AddNorms {
        norms: [RmsNorm; 2],
        weight: VectorId,
        scale: f32,
        factor: Factor,
        y: RowsId,
    },
    /// y = factor · y.
    Scale {
        factor: Factor,
        y: RowsId,
    },
    /// y = cap · tanh(y / cap).
    /// y between two numbers.
    Clamp {
        low: ScalarId,
        high: ScalarId,
        y: RowsId,
    },
    SoftCap {
        cap: f32,
        y: RowsId,
    },
    /// With `act`, the product is also prepared as activations.
    /// out = scale · (the sum of `parts` parts of the columns of x).
    AddParts {
        x: RowsId,
        parts: usize,
        scale: f32,
        out: RowsId,
    },
    Multiply {
        x: Columns,
        gate: Columns,
        kind: GateKind,
        out: RowsId,
        act: Option<ActId>,
    },
    /// out = norm(x), also prepared as activations.
    NormColumnsAct {
        x: Columns,
        weight: VectorId,
        eps: f32,
        out: RowsId,
        act: ActId,
    },
    QkNorm {
        x: Columns,
        weight: VectorId,
        eps: f32,
    },
    Rope {
        layer: usize,
        x: Columns,
        head_width: usize,
    },
    /// out = x.
    Copy {
        x: Columns,
        out: Columns,
    },
    /// out = x, with the columns in another order.
    GatherColumns {
        x: RowsId,
        order: OrderId,
        out: RowsId,
    },
    /// The (token, head) pairs of all tokens, sorted by head.
    GroupHeads {
        heads: usize,
        groups: GroupsId,
    },
    /// The product of each head's row with the matrix of the head.
    HeadMatmul {
        weight: MatrixId,
        heads: usize,
        x: ActId,
        groups: GroupsId,
        out: Columns,
    },
    /// Latent rows to the cache of a layer, and queries as activations and rotated.
    LatentWrite {
        layer: usize,
        rows: Columns,
        queries: RowsId,
        heads: usize,
        norm: VectorId,
        eps: f32,
        is_rotated: bool,
        plain: ActId,
        rotated: Columns,
    },
    /// Attention of a token's queries to latent rows. Queries, outputs and activations have a row for each head.
    AttendLatent {
        layer: usize,
        q: RowsId,
        options: Attention,
        out: RowsId,
        act: ActId,
    },
    Attend {
        layer: usize,
        qkv: Columns,
        norms: Option<QkNorms>,
        options: Attention,
        out: RowsId,
        act: ActId,
    },
    /// Attention of each patch to all patches of its picture.
    AttendWhole {
        layer: usize,
        qkv: Columns,
        norms: Option<QkNorms>,
        options: Attention,
        out: RowsId,
        act: ActId,
    },
    /// Attention of queries to the keys and values that an earlier layer wrote.
    AttentionAct {
        layer: usize,
        q: Columns,
        options: Attention,
        out: RowsId,
        act: ActId,
    },
    Experts(Box<Experts>),
    RouteAndGroup {
        route: Route,
        groups: GroupsId,
    },
    /// out = weight of the token's first choice · x, as activations.
    WeighInput {
        x: RowsId,
        choices: usize,
        out: RowsId,
        act: ActId,
    },
    MoeGateUpAct {
        weight: MatrixId,
        top_k: usize,
        activation: Activation,
        x: ActId,
        groups: GroupsId,
        h: RowsId,
        act: ActId,
    },
    MoeMatmul {
        weight: MatrixId,
        top_k: usize,
        x: ActId,
        groups: GroupsId,
        out: RowsId,
    },
    CausalConv {
        layer: usize,
        x: Columns,
        weight: VectorId,
        bias: Option<VectorId>,
        silu: bool,
        out: RowsId,
    },
    /// out = x of the token before, which for the first token of a sequence in the batch is kept from its last batch.
    PreviousRow {
        /// The prediction head whose state has the row.
        head: usize,
        x: RowsId,
        /// Taps 1 and 0 for each column: the convolution whose output is the row before.
        taps: VectorId,
        out: RowsId,
    },
    DeltaRule {
        layer: usize,
        qkv: RowsId,
        beta: Columns,
        alpha: Columns,
        decay: VectorId,
        dt_bias: VectorId,
        kind: DecayKind,
        heads: DeltaHeads,
        out: RowsId,
    },
    SelectiveScan {
        layer: usize,
        xbc: RowsId,
        dt: Columns,
        a: VectorId,
        d: VectorId,
        dt_bias: VectorId,
        heads: ScanHeads,
        out: RowsId,
    },
    GatedNorm {
        x: RowsId,
        gate: Columns,
        weight: VectorId,
        width: usize,
        order: GateOrder,
    },
}

/// out = norm(x).
#[derive(Clone, Copy, Debug)]
pub(crate) struct RmsNorm {
    pub(crate) x: RowsId,
    pub(crate) weight: VectorId,
    pub(crate) out: RowsId,
}

/// y = factor · (y + scale · norm(x)). The norm's output is scratch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddNorm {
    pub(crate) norm: RmsNorm,
    pub(crate) scale: f32,
    pub(crate) factor: Factor,
    pub(crate) y: RowsId,
}

/// The norms of queries, keys and values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QkNorms {
    pub(crate) q: VectorId,
    pub(crate) k: VectorId,
    pub(crate) v: Option<VectorId>,
    pub(crate) after_rotation: bool,
}

/// The parameters of attention.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attention {
    pub(crate) heads: usize,
    pub(crate) scale: f32,
    pub(crate) cap: Option<f32>,
    pub(crate) temperature: Option<Temperature>,
    pub(crate) window: Option<Window>,
    /// Positions before this one are visible only to themselves.
    pub(crate) first: usize,
    pub(crate) sinks: Option<VectorId>,
    /// Tokens of an image see all of it.
    pub(crate) both_ways: bool,
}

/// A router's choice of experts for each token. The choices of a pass are adjacent, `top_k` for each token and layer:
/// those of this layer start at element `choices` times the number of tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) logits: Columns,
    pub(crate) routing: Routing,
    pub(crate) selection_bias: Option<VectorId>,
    pub(crate) expert_scales: Option<VectorId>,
    pub(crate) choices: usize,
}

/// The experts of a layer, from the router's logits to their weighted sum. `groups`, `h`, `act` and `out` are scratch.
#[derive(Clone, Debug)]
pub(crate) struct Experts {
    pub(crate) route: Route,
    pub(crate) gate_up: MatrixId,
    pub(crate) down: MatrixId,
    pub(crate) activation: Activation,
    pub(crate) gate_up_bias: Option<[VectorId; 2]>,
    pub(crate) down_bias: Option<VectorId>,
    pub(crate) x: ActId,
    pub(crate) groups: GroupsId,
    pub(crate) h: RowsId,
    pub(crate) act: ActId,
    pub(crate) out: RowsId,
    pub(crate) epilogue: Epilogue,
    pub(crate) y: RowsId,
}

/// The values that a node reads, writes or uses as scratch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Values {
    pub(crate) rows: Vec<RowsId>,
    pub(crate) acts: Vec<ActId>,
    pub(crate) groups: Vec<GroupsId>,
}

/// Activations that a node writes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prepared {
    pub(crate) acts: Vec<ActId>,
    /// Rows with the same numbers that the node also writes. If the activations' readers are named, a kernel can leave
    /// these rows undefined.
    pub(crate) rows: Option<RowsId>,
}

/// A product with activations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    pub(crate) weight: MatrixId,
    pub(crate) act: ActId,
    pub(crate) kind: ProductKind,
}

/// The rows of activations that a product reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProductKind {
    /// All rows.
    Dense,
    /// The rows whose logits are computed.
    Outputs,
    /// A row of each token and head: all of them, each with the matrix of its head.
    Heads,
    /// The rows of each expert's pairs: `top_k` pairs for each token.
    Experts { top_k: usize },
}

impl Node {
    /// The values of the node.
    pub(crate) fn values(&self) -> Values {
        let rows = |rows: &[RowsId]| Values { rows: rows.to_vec(), ..Values::default() };
        let with =
            |rows: &[RowsId], acts: &[ActId]| Values { rows: rows.to_vec(), acts: acts.to_vec(), ..Values::default() };
        let maybe = |act: &Option<ActId>| act.iter().copied().collect::<Vec<_>>();
        match self {
            Node::Input { rows: inputs } => rows(inputs),
            Node::Join { x, out } => rows(&[*x, *out]),
            Node::Embed { out, .. }
            | Node::Pictures { out }
            | Node::AddPictures { out, .. }
            | Node::AllReduce { x: out }
            | Node::Send { x: out, .. }
            | Node::Receive { x: out, .. } => rows(&[*out]),
            Node::RmsNorm(norm) => rows(&norm.values()),
            Node::LayerNorm { x, out, .. } | Node::AddParts { x, out, .. } => rows(&[*x, *out]),
            Node::Prepare { x, act } => with(&[*x], &[*act]),
            Node::PrepareColumns { x, act } => with(&[x.rows], &[*act]),
            Node::Copy { x, out } => rows(&[x.rows, out.rows]),
            Node::GatherColumns { x, out, .. } => rows(&[*x, *out]),
            Node::GroupHeads { groups, .. } => Values { groups: vec![*groups], ..Values::default() },
            Node::HeadMatmul { x, groups, out, .. } => Values { groups: vec![*groups], ..with(&[out.rows], &[*x]) },
            Node::LatentWrite { rows, queries, plain, rotated, .. } => {
                with(&[rows.rows, *queries, rotated.rows], &[*plain])
            }
            Node::AttendLatent { q, out, act, .. } => with(&[*q, *out], &[*act]),
            Node::NormColumnsAct { x, out, act, .. } => with(&[x.rows, *out], &[*act]),
            Node::NormAct { norm, acts } => with(&norm.values(), &acts.iter().flatten().copied().collect::<Vec<_>>()),
            Node::NormMatmul { norm: RmsNorm { x, out, .. }, act, other, y, .. } => {
                with(&[*x, *out, *y], &[&[*act][..], &maybe(other)].concat())
            }
            Node::Matmul { act, y, .. } | Node::OutputMatmul { act, y, .. } => with(&[*y], &[*act]),
            Node::GateUp { x, h, act, .. } => with(&[*h], &[&[*x][..], &maybe(act)].concat()),
            Node::Add { x, y, .. } => rows(&[*x, *y]),
            Node::AddGated { x, gate, y } => rows(&[*x, gate.rows, *y]),
            Node::AddNorm(sum) => rows(&sum.values()),
            Node::AddNormAct { sum, act, .. } => with(&sum.values(), &[*act]),
            Node::AddNorms { norms: [a, b], y, .. } => rows(&[a.x, a.out, b.x, b.out, *y]),
            Node::Scale { y, .. } | Node::SoftCap { y, .. } | Node::Clamp { y, .. } => rows(&[*y]),
            Node::Multiply { x, gate, out, act, .. } => with(&[x.rows, gate.rows, *out], &maybe(act)),
            Node::QkNorm { x, .. } | Node::Rope { x, .. } => rows(&[x.rows]),
            Node::Attend { qkv: q, out, act, .. }
            | Node::AttendWhole { qkv: q, out, act, .. }
            | Node::AttentionAct { q, out, act, .. } => with(&[q.rows, *out], &[*act]),
            Node::Experts(experts) => experts.values(),
            Node::RouteAndGroup { route, groups } => Values { groups: vec![*groups], ..rows(&[route.logits.rows]) },
            Node::WeighInput { x, out, act, .. } => with(&[*x, *out], &[*act]),
            Node::MoeGateUpAct { x, groups, h, act, .. } => {
                Values { groups: vec![*groups], ..with(&[*h], &[*x, *act]) }
            }
            Node::MoeMatmul { x, groups, out, .. } => Values { groups: vec![*groups], ..with(&[*out], &[*x]) },
            Node::CausalConv { x, out, .. } => rows(&[x.rows, *out]),
            Node::PreviousRow { x, out, .. } => rows(&[*x, *out]),
            Node::DeltaRule { qkv, beta, alpha, out, .. } => rows(&[*qkv, beta.rows, alpha.rows, *out]),
            Node::SelectiveScan { xbc, dt, out, .. } => rows(&[*xbc, dt.rows, *out]),
            Node::GatedNorm { x, gate, .. } => rows(&[*x, gate.rows]),
        }
    }

    /// The output of an operation that updates a state of fixed size.
    pub(crate) fn recurrent_output(&self) -> Option<RowsId> {
        match self {
            Node::CausalConv { out, .. }
            | Node::PreviousRow { out, .. }
            | Node::DeltaRule { out, .. }
            | Node::SelectiveScan { out, .. } => Some(*out),
            _ => None,
        }
    }

    /// The products that the node computes.
    pub(crate) fn products(&self) -> Vec<Product> {
        let dense = |weight, act| vec![Product { weight, act, kind: ProductKind::Dense }];
        match *self {
            Node::NormMatmul { weight, act, .. } | Node::Matmul { weight, act, .. } => dense(weight, act),
            Node::GateUp { weight, x, .. } => dense(weight, x),
            Node::OutputMatmul { weight, act, .. } => vec![Product { weight, act, kind: ProductKind::Outputs }],
            Node::HeadMatmul { weight, x, .. } => vec![Product { weight, act: x, kind: ProductKind::Heads }],
            Node::Experts(ref experts) => experts.products(),
            Node::MoeGateUpAct { weight, top_k, x, .. } | Node::MoeMatmul { weight, top_k, x, .. } => {
                vec![Product { weight, act: x, kind: ProductKind::Experts { top_k } }]
            }
            _ => Vec::new(),
        }
    }

    /// The activations of a dense product, or of the first product of experts.
    pub(crate) fn input_mut(&mut self) -> Option<(MatrixId, &mut ActId)> {
        match self {
            Node::Matmul { weight, act, .. }
            | Node::OutputMatmul { weight, act, .. }
            | Node::GateUp { weight, x: act, .. } => Some((*weight, act)),
            Node::Experts(experts) => Some((experts.gate_up, &mut experts.x)),
            _ => None,
        }
    }

    /// The activations that the node writes for later nodes.
    pub(crate) fn prepared(&self) -> Prepared {
        let of = |rows: RowsId, acts: &[Option<ActId>]| Prepared {
            rows: Some(rows),
            acts: acts.iter().flatten().copied().collect(),
        };
        match self {
            Node::Prepare { act, .. } | Node::PrepareColumns { act, .. } | Node::LatentWrite { plain: act, .. } => {
                Prepared { rows: None, acts: vec![*act] }
            }
            Node::NormAct { norm, acts } => of(norm.out, acts),
            Node::NormMatmul { norm, act, other, .. } => of(norm.out, &[Some(*act), *other]),
            Node::AddNormAct { sum, act, .. } => of(sum.norm.out, &[Some(*act)]),
            Node::Multiply { out, act, .. } | Node::GateUp { h: out, act, .. } => of(*out, &[*act]),
            Node::Attend { out, act, .. }
            | Node::AttendWhole { out, act, .. }
            | Node::AttendLatent { out, act, .. }
            | Node::NormColumnsAct { out, act, .. }
            | Node::AttentionAct { out, act, .. }
            | Node::WeighInput { out, act, .. }
            | Node::MoeGateUpAct { h: out, act, .. } => of(*out, &[Some(*act)]),
            Node::Experts(experts) => of(experts.h, &[Some(experts.act)]),
            _ => Prepared::default(),
        }
    }
}

impl RmsNorm {
    fn values(&self) -> [RowsId; 2] {
        [self.x, self.out]
    }
}

impl AddNorm {
    fn values(&self) -> [RowsId; 3] {
        [self.norm.x, self.norm.out, self.y]
    }
}

impl Experts {
    fn values(&self) -> Values {
        let Self { route, x, groups, h, act, out, y, .. } = self;
        Values { rows: vec![route.logits.rows, *h, *out, *y], acts: vec![*x, *act], groups: vec![*groups] }
    }

    fn products(&self) -> Vec<Product> {
        let kind = ProductKind::Experts { top_k: self.route.routing.top_k };
        [(self.gate_up, self.x), (self.down, self.act)].map(|(weight, act)| Product { weight, act, kind }).to_vec()
    }
}
