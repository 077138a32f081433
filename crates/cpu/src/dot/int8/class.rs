//! What products read of a format, apart from its numbers.
//!
//! The 33 quantised formats have 17 classes at `avx2` and 7 at the other levels. Formats of one class share the products of
//! their panels, which are most of what is compiled.

use gristmill_kernels::format::Quantised;
use std::marker::PhantomData;

/// See [`Quantised`] for the constants.
pub(super) trait Class {
    const GROUP: usize;
    /// 1, 2, 4 or 8 of the format's [`Quantised::PAIR_SUMS`].
    const PAIR_SUMS: usize;
    const SIGNED: bool;
    const HAS_MIN: bool;
    /// Something is subtracted from each code.
    const HAS_ZERO: bool;
}

/// The class of a format, at a level that `SUMS` products in 16 bits or does not. It does so with unsigned codes.
pub(super) struct OfFormat<F, const SUMS: bool>(PhantomData<F>);

impl<F: Quantised, const SUMS: bool> Class for OfFormat<F, SUMS> {
    const GROUP: usize = F::GROUP;
    const PAIR_SUMS: usize = match F::PAIR_SUMS {
        _ if !SUMS || F::SIGNED => 1,
        0..2 => 1,
        2..4 => 2,
        4..8 => 4,
        // The sums of 16 columns need no more.
        8.. => {
            if F::GROUP == 16 {
                4
            } else {
                8
            }
        }
    };
    const SIGNED: bool = F::SIGNED;
    const HAS_MIN: bool = F::HAS_MIN;
    const HAS_ZERO: bool = F::ZERO != 0;
}

/// A class by itself. Unsigned codes have either a zero or minima, signed ones both or neither.
pub(super) struct Shared<const GROUP: usize, const PAIR_SUMS: usize, const SIGNED: bool, const HAS_MIN: bool>;

impl<const GROUP: usize, const PAIR_SUMS: usize, const SIGNED: bool, const HAS_MIN: bool> Class
    for Shared<GROUP, PAIR_SUMS, SIGNED, HAS_MIN>
{
    const GROUP: usize = GROUP;
    const PAIR_SUMS: usize = PAIR_SUMS;
    const SIGNED: bool = SIGNED;
    const HAS_MIN: bool = HAS_MIN;
    const HAS_ZERO: bool = SIGNED == HAS_MIN;
}
