//! The kernel sources of this crate.

use crate::mailbox::{ControlWords, DeviceWords};
use crate::place::{PlaceParams, RingParams, SlotMatrix, SlotPlane};
use gristmill_gpu::Unit;
use gristmill_gpu::shared_struct::SharedStruct;
use gristmill_gpu::source::Library;

/// The kernels that place experts in slots, and the structs of the mailbox.
pub const SOURCES: Library = gristmill_gpu::library!(
    "offload",
    language None,
    &[
        ControlWords::LAYOUT,
        DeviceWords::LAYOUT,
        SlotPlane::LAYOUT,
        SlotMatrix::LAYOUT,
        PlaceParams::LAYOUT,
        RingParams::LAYOUT,
    ],
    ["slots.gpu"]
);

/// Every unit of these kernels.
pub fn units() -> impl Iterator<Item = Unit> {
    [crate::place::unit()].into_iter()
}
