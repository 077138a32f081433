//! Which memory the weights of a program are in.

use gristmill_kernels::weight::{Location, Role};

use super::node::Node;
use super::{MatrixId, Part, Program};
use crate::error::{Error, Result};
use crate::load::ExpertPlacement;
use crate::stage::Stage;

impl Program {
    /// Places the experts of layers. Everything else is in the device's memory.
    ///
    /// # Errors
    /// [`Error::ExpertPlacement`] if no such layer has experts, or if the host cannot compute them.
    pub(crate) fn place_experts(&mut self, placement: ExpertPlacement) -> Result<()> {
        if placement == ExpertPlacement::Device {
            return Ok(());
        }
        let is_placed = |part: &&Part| match (placement, part.stage) {
            (ExpertPlacement::FirstLayersOnCpu(count), Stage::Layer(layer)) => layer < count,
            (ExpertPlacement::Disk { device_layers, .. }, Stage::Layer(layer)) => layer >= device_layers,
            (placement, _) => {
                matches!(placement, ExpertPlacement::Cpu | ExpertPlacement::Slots(_) | ExpertPlacement::Disk { .. })
            }
        };
        let is_on_disk = matches!(placement, ExpertPlacement::Disk { .. });
        let mut placed: Vec<MatrixId> = Vec::new();
        for node in self.parts().filter(is_placed).flat_map(|part| &part.nodes) {
            match node {
                Node::Experts(experts) => placed.extend([experts.gate_up, experts.down]),
                Node::MoeGateUpAct { weight, .. } | Node::MoeMatmul { weight, .. } if is_on_disk => {
                    placed.push(*weight)
                }
                // Other products of experts are products of heads.
                Node::MoeGateUpAct { .. } => return Err(weighs_input()),
                _ => {}
            }
        }
        if placed.is_empty() {
            let reason = match placement {
                ExpertPlacement::FirstLayersOnCpu(count) => {
                    format!("none of the first {count} layers has experts; name more layers, or leave the option out")
                }
                ExpertPlacement::Disk { device_layers: 1.., .. } => {
                    "no layer behind those on the device has experts; name fewer layers, or leave the option out"
                        .to_owned()
                }
                _ => "the model has no experts; leave the option out".to_owned(),
            };
            return Err(Error::ExpertPlacement { reason });
        }
        let (location, slots) = match placement {
            ExpertPlacement::Disk { kept, .. } => (Location::File, kept),
            ExpertPlacement::Slots(slots) => (Location::Host, slots),
            _ => (Location::Host, 0),
        };
        for matrix in placed {
            let matrix = &mut self.tensors.matrices[matrix.0];
            (matrix.location, matrix.slots) = (location, slots);
        }
        if is_on_disk {
            let is_table = |role| matches!(role, Role::Table | Role::Tied);
            self.tensors.matrices.iter_mut().for_each(|matrix| matrix.is_copied = is_table(matrix.role));
        }
        Ok(())
    }

    /// Whether the CPU can compute the experts in the file for a GPU.
    ///
    /// # Errors
    /// [`Error::ExpertPlacement`] if an architecture multiplies the experts' input by the router's weights.
    pub(crate) fn check_streamed_for_gpu(&self) -> Result<()> {
        let is_streamed = |node: &Node| match node {
            Node::MoeGateUpAct { weight, .. } => self.tensors.matrices[weight.0].location == Location::File,
            _ => false,
        };
        if self.parts().flat_map(|part| &part.nodes).any(is_streamed) { Err(weighs_input()) } else { Ok(()) }
    }
}

/// The experts of a router that weighs their input.
fn weighs_input() -> Error {
    let reason = "this architecture multiplies the experts' input by the router's weights, which is not supported there; leave \
                  the option out";
    Error::ExpertPlacement { reason: reason.to_owned() }
}
