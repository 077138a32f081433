//! Which method computes an operation.

use super::cpu::Cpu;
use super::profile::Measured;
use gristmill_kernels::error::Result;
use gristmill_kernels::ops::Checked;

/// An operation that the CPU runs. It is implemented in the file that computes it.
pub(crate) trait OnCpu: Measured {
    /// Computes it.
    fn run(call: Checked<Self>, cpu: &Cpu) -> Result<()>;
}

/// Names the methods of [`Cpu`] that run operations, in the file of these methods: `add_rows(Add): x, y * 2;`. If the work
/// of an operation is only to move words, the views that have them follow, with how often they are moved.
macro_rules! on_cpu {
    ($($method:ident($Operation:ident)$(: $($view:ident $(* $times:literal)?),+)?;)+) => {$(
        impl $crate::operation::OnCpu for $Operation<'_> {
            fn run(call: gristmill_kernels::ops::Checked<Self>, cpu: &Cpu) -> Result<()> {
                cpu.$method(call.into_inner())
            }
        }

        $(impl $crate::profile::Measured for $Operation<'_> {
            fn work(&self) -> $crate::profile::Work {
                $crate::profile::words(0 $(+ self.$view.rows() * self.$view.cols() $(* $times)?)+)
            }
        })?
    )+};
}
