//! The macros that declare families and towers in `mod.rs`: a line there is a folder, with its names and tables.

use super::read::KeyReader;
use crate::error::Result;
use crate::spec::ModelSpec;
use crate::tower::TowerSpec;

/// Reads the spec from the keys of one architecture.
pub(super) type Read = fn(&KeyReader) -> Result<ModelSpec>;

/// Reads the spec of a tower from the keys of its file.
pub(super) type ReadTower = fn(&KeyReader) -> Result<TowerSpec>;

/// Declares every family once: its folder, the `general.architecture` names that its `spec.rs` reads, and the tables in
/// its `published.rs`.
macro_rules! families {
    ($($folder:ident: [$($name:literal),+], [$($published:ident),+];)*) => {
        $(mod $folder {
            pub(super) mod published;
            pub(super) mod spec;
        })*

        const ARCHITECTURES: &[(&str, $crate::family::table::Read)] = &[$($(($name, $folder::spec::spec),)+)*];

        const FAMILIES: &[&$crate::family::published::Family] = &[$($(&$folder::published::$published,)+)*];
    };
}

/// Declares every tower once: its folder, the `clip.projector_type` names that its `spec.rs` reads, and the tables in its
/// `published.rs`.
macro_rules! towers {
    ($($folder:ident: [$($name:literal),+], [$($published:ident),+];)*) => {
        $(mod $folder {
            pub(super) mod published;
            pub(super) mod spec;
        })*

        const TOWERS: &[(&str, $crate::family::table::ReadTower)] = &[$($(($name, $folder::spec::spec),)+)*];

        const TOWER_FAMILIES: &[&$crate::family::published::TowerFamily] = &[$($(&$folder::published::$published,)+)*];
    };
}
