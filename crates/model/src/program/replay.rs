//! The part of a forward pass that computes states of fixed size: see `state::rollback`.

use super::node::Node;
use super::{Program, RowsId};

/// The recurrent operations of a program.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    /// Those of the prediction heads and of the layers, in order.
    pub(crate) nodes: Vec<Node>,
    /// Their inputs, which a pass of few tokens keeps. What one of them writes for another is computed again.
    pub(crate) inputs: Vec<RowsId>,
}

impl Program {
    /// Finds the recurrent operations. Without layers whose state has a fixed size there are none: a prediction head alone
    /// keeps the hidden state in another way.
    pub(super) fn find_replay(&self) -> Replay {
        let of = |parts: &mut dyn Iterator<Item = &Node>| -> Vec<Node> {
            parts.filter(|node| node.recurrent_output().is_some()).cloned().collect()
        };
        let layers = of(&mut self.layers.iter().flat_map(|part| &part.nodes));
        if layers.is_empty() && self.heads.len() <= 1 {
            return Replay::default();
        }
        let heads = of(&mut self.heads.iter().flat_map(|head| &head.shift.nodes));
        let nodes: Vec<Node> = heads.into_iter().chain(layers).collect();
        let written: Vec<RowsId> = nodes.iter().filter_map(Node::recurrent_output).collect();
        let read = nodes.iter().flat_map(|node| node.values().rows);
        let mut inputs: Vec<RowsId> = read.filter(|rows| !written.contains(rows)).collect();
        inputs.sort_unstable();
        inputs.dedup();
        Replay { nodes, inputs }
    }
}
