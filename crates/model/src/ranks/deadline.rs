//! How long ranks wait for each other.

use std::time::Duration;

/// How long a rank waits for another in a sum. A step of the largest batch on a slow CPU takes some seconds; the first one of a GPU
/// also compiles its kernels.
pub const DEADLINE: Duration = Duration::from_secs(120);
