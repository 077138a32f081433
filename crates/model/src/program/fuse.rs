//! Rewrites adjacent nodes as one composition, which a backend can run as one launch.

use std::mem::take;

use super::node::{AddNorm, Node, RmsNorm};
use super::{ActId, Factor, Program, RowsId};
use gristmill_kernels::ops::Epilogue;

/// Rewrites the first nodes of a slice as one node: how many, and the node.
type Rewrite = fn(&[Node], &Uses) -> Option<(usize, Node)>;

/// The rewrites, in the order in which they are tried. Later ones use the results of earlier ones.
const REWRITES: [Rewrite; 9] = [
    prepare_after_norm,
    prepare_norm_again,
    multiply_norm,
    prepare_gated,
    prepare_product,
    add_norm,
    scale_sum,
    add_norms,
    prepare_sum,
];

/// How many nodes mention each value.
struct Uses {
    rows: Vec<usize>,
}

impl Uses {
    fn of(program: &Program) -> Self {
        let mut uses = Self { rows: vec![0; program.rows.len()] };
        for values in program.parts().flat_map(|part| &part.nodes).map(Node::values) {
            values.rows.iter().for_each(|rows| uses.rows[rows.0] += 1);
        }
        uses
    }

    /// Whether exactly two nodes mention the rows: the one that writes them and the one that reads them.
    fn between_two(&self, rows: RowsId) -> bool {
        self.rows[rows.0] == 2
    }
}

impl Program {
    /// Applies the rewrites to each part until none applies.
    pub(super) fn fuse(&mut self) {
        for rewrite in REWRITES {
            let uses = Uses::of(self);
            for part in self.parts_mut() {
                part.nodes = rewritten(take(&mut part.nodes), rewrite, &uses);
            }
        }
    }
}

fn rewritten(nodes: Vec<Node>, rewrite: Rewrite, uses: &Uses) -> Vec<Node> {
    let mut done = Vec::with_capacity(nodes.len());
    let mut rest = nodes.as_slice();
    while let Some((first, others)) = rest.split_first() {
        match rewrite(rest, uses) {
            Some((count, node)) => {
                done.push(node);
                rest = &rest[count..];
            }
            None => {
                done.push(first.clone());
                rest = others;
            }
        }
    }
    done
}

/// norm, prepare → norm_act.
fn prepare_after_norm(nodes: &[Node], _: &Uses) -> Option<(usize, Node)> {
    match *nodes {
        [Node::RmsNorm(norm), Node::Prepare { x, act }, ..] if x == norm.out => {
            Some((2, Node::NormAct { norm, acts: [Some(act), None] }))
        }
        _ => None,
    }
}

/// norm_act, prepare of the same rows → norm_act of two activations.
fn prepare_norm_again(nodes: &[Node], _: &Uses) -> Option<(usize, Node)> {
    match *nodes {
        [Node::NormAct { norm, acts: [act, None] }, Node::Prepare { x, act: other }, ..] if x == norm.out => {
            Some((2, Node::NormAct { norm, acts: [act, Some(other)] }))
        }
        _ => None,
    }
}

/// norm_act, matmul of its first activations → norm_matmul.
fn multiply_norm(nodes: &[Node], _: &Uses) -> Option<(usize, Node)> {
    match *nodes {
        [
            Node::NormAct { norm, acts: [Some(act), other] },
            Node::Matmul { weight, bias, act: read, epilogue: Epilogue::Store, y },
            ..,
        ] if read == act => Some((2, Node::NormMatmul { norm, act, other, weight, bias, y })),
        _ => None,
    }
}

/// gate_up, prepare → gate_up_act.
fn prepare_gated(nodes: &[Node], uses: &Uses) -> Option<(usize, Node)> {
    match *nodes {
        [Node::GateUp { weight, activation, x, h, act: None }, Node::Prepare { x: read, act }, ..]
            if read == h && uses.between_two(h) =>
        {
            Some((2, Node::GateUp { weight, activation, x, h, act: Some(act) }))
        }
        _ => None,
    }
}

/// multiply, prepare → multiply_act.
fn prepare_product(nodes: &[Node], _: &Uses) -> Option<(usize, Node)> {
    match *nodes {
        [Node::Multiply { x, gate, kind, out, act: None }, Node::Prepare { x: read, act }, ..] if read == out => {
            Some((2, Node::Multiply { x, gate, kind, out, act: Some(act) }))
        }
        _ => None,
    }
}

/// norm, add → add_norm.
fn add_norm(nodes: &[Node], uses: &Uses) -> Option<(usize, Node)> {
    match *nodes {
        [Node::RmsNorm(norm), Node::Add { x, scale, y }, ..] if x == norm.out && uses.between_two(x) => {
            Some((2, Node::AddNorm(AddNorm { norm, scale, factor: Factor::Constant(1.0), y })))
        }
        _ => None,
    }
}

/// add_norm, scale of the sum → add_norm.
fn scale_sum(nodes: &[Node], _: &Uses) -> Option<(usize, Node)> {
    match *nodes {
        [Node::AddNorm(sum @ AddNorm { factor: Factor::Constant(1.0), .. }), Node::Scale { factor, y }, ..]
            if y == sum.y =>
        {
            Some((2, Node::AddNorm(AddNorm { factor, ..sum })))
        }
        _ => None,
    }
}

/// norm, add_norm of its output, add_norm of the sum → add_norms. The norm of the sum writes where the second norm did.
fn add_norms(nodes: &[Node], uses: &Uses) -> Option<(usize, Node)> {
    let [Node::RmsNorm(first), Node::AddNorm(second), Node::AddNorm(of_sum), ..] = *nodes else { return None };
    let is_plain = second.scale == 1.0 && second.factor == Factor::Constant(1.0);
    let sum = first.out;
    // Three nodes: the norm writes the rows, the second norm adds to them, the norm of the sum reads them.
    if !(is_plain && second.y == sum && of_sum.norm.x == sum && uses.rows[sum.0] == 3) {
        return None;
    }
    let AddNorm { norm: RmsNorm { weight, .. }, scale, factor, y } = of_sum;
    Some((3, Node::AddNorms { norms: [first, second.norm], weight, scale, factor, y }))
}

/// add_norm, then activations of the sum or of its norm → add_norm_act.
fn prepare_sum(nodes: &[Node], uses: &Uses) -> Option<(usize, Node)> {
    let of = |sum: AddNorm, next, act: ActId| Some((2, Node::AddNormAct { sum, next, act }));
    match *nodes {
        [Node::AddNorm(sum), Node::Prepare { x, act }, ..] if x == sum.y => of(sum, None, act),
        [Node::AddNorm(sum), Node::NormAct { norm, acts: [Some(act), None] }, ..]
            // Only the node that writes them mentions the norm's rows.
            if norm.x == sum.y && uses.rows[norm.out.0] == 1 =>
        {
            of(sum, Some(norm.weight), act)
        }
        _ => None,
    }
}
