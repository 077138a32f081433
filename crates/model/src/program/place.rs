//! Which memory the weights of a program are in.

use gristmill_kernels::weight::Location;

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
            (placement, _) => matches!(placement, ExpertPlacement::Cpu | ExpertPlacement::Slots(_)),
        };
        let mut on_host: Vec<MatrixId> = Vec::new();
        for node in self.parts().filter(is_placed).flat_map(|part| &part.nodes) {
            match node {
                Node::Experts(experts) => on_host.extend([experts.gate_up, experts.down]),
                // The experts of a router that weighs their input; other products of experts are products of heads.
                Node::MoeGateUpAct { .. } => {
                    let reason = "this architecture multiplies the experts' input by the router's weights, which is not \
                                  supported there; leave the option out";
                    return Err(Error::ExpertPlacement { reason: reason.to_owned() });
                }
                _ => {}
            }
        }
        if on_host.is_empty() {
            let reason = match placement {
                ExpertPlacement::FirstLayersOnCpu(count) => {
                    format!("none of the first {count} layers has experts; name more layers, or leave the option out")
                }
                _ => "the model has no experts; leave the option out".to_owned(),
            };
            return Err(Error::ExpertPlacement { reason });
        }
        let slots = if let ExpertPlacement::Slots(slots) = placement { slots } else { 0 };
        for matrix in on_host {
            let matrix = &mut self.tensors.matrices[matrix.0];
            (matrix.location, matrix.slots) = (Location::Host, slots);
        }
        Ok(())
    }
}
