//! The check of address spaces, on hosts with and without the simulator.

use crate::error::Result;
use crate::source::Source;

/// Checks the address spaces of a Metal source, which [`crate::Program`] does not check. Fails if a pointer or reference to
/// one address space is used as another. Clang compiles the source as C++ for OpenCL; without Clang the error is
/// [`crate::Error::NoClang`]. Sources that passed are recorded in the folder `cache`.
#[cfg(all(target_arch = "x86_64", unix))]
pub fn check_address_spaces(source: &Source, cache: &std::path::Path) -> Result<()> {
    crate::msl::address_spaces(source, cache)
}

/// Fails, because the simulator is not available.
#[cfg(not(all(target_arch = "x86_64", unix)))]
pub fn check_address_spaces(_: &Source, _: &std::path::Path) -> Result<()> {
    Err(crate::Error::Host)
}
