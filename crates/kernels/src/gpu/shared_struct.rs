//! Structs that both the host and a kernel source declare. Their layouts are asserted where the source is compiled:
//! [`super::source::expand`] appends the assertions, so that the compiler of a device, and that of the simulator, refuse
//! a field at another place.

use super::{common, cuda, metal, storage};
use std::fmt::Write;

/// The layout of a struct as the host has it, and where a kernel source declares it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StructLayout {
    /// The file that declares the struct.
    pub(crate) file: &'static str,
    /// The struct's name there.
    pub(crate) name: &'static str,
    pub(crate) bytes: usize,
    /// Name, first byte and bytes.
    pub(crate) fields: &'static [(&'static str, usize, usize)],
}

/// A struct that a kernel source declares too, made by [`shared_struct!`].
pub(crate) trait SharedStruct: bytemuck::Pod {
    const LAYOUT: StructLayout;
}

/// Declares a struct that a kernel source declares with fields of the same names: `struct Here as There in "file.h" { … }`,
/// or `struct Both in "file.h" { … }`.
macro_rules! shared_struct {
    ($(#[$meta:meta])* $vis:vis struct $name:ident in $($rest:tt)*) => {
        $crate::gpu::shared_struct::shared_struct! { $(#[$meta])* $vis struct $name as $name in $($rest)* }
    };
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident as $there:ident in $file:literal {
            $($(#[$doc:meta])* $field_vis:vis $field:ident: $ty:ty,)*
        }
    ) => {
        $(#[$meta])*
        $vis struct $name {
            $($(#[$doc])* $field_vis $field: $ty,)*
        }

        impl $crate::gpu::shared_struct::SharedStruct for $name {
            const LAYOUT: $crate::gpu::shared_struct::StructLayout = $crate::gpu::shared_struct::StructLayout {
                file: $file,
                name: stringify!($there),
                bytes: size_of::<Self>(),
                fields: &[$((stringify!($field), std::mem::offset_of!($name, $field), size_of::<$ty>()),)*],
            };
        }
    };
}
pub(crate) use shared_struct;

/// Every shared struct.
fn all() -> impl Iterator<Item = &'static StructLayout> {
    const SHARED: &[StructLayout] = &[
        storage::Int8Block::LAYOUT,
        super::activation::ActivationParams::LAYOUT,
        super::epilogue::EpilogueParams::LAYOUT,
        super::product::ProductParams::LAYOUT,
    ];
    [SHARED, common::SHARED_STRUCTS, cuda::units::SHARED_STRUCTS, metal::units::SHARED_STRUCTS].into_iter().flatten()
}

/// The assertions of a file's structs.
pub(super) fn assertions(file: &str, out: &mut String) {
    for StructLayout { name, bytes, fields, .. } in all().filter(|layout| layout.file == file) {
        let _ = writeln!(out, "static_assert(sizeof({name}) == {bytes}, \"size of {name}\");");
        for (field, first, bytes) in *fields {
            let place = format!("FIELD_AT({name}, {field}, {first})");
            let size = format!("sizeof({name}::{field}) == {bytes}");
            let _ = writeln!(out, "static_assert({place} && {size}, \"{field} of {name}\");");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::source;
    use std::path::Path;

    /// Every shared struct is in a list, and its file declares it.
    #[test]
    fn every_shared_struct_is_listed() {
        fn declared(folder: &Path) -> usize {
            let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
            let count = |path: std::path::PathBuf| match path.is_dir() {
                true => declared(&path),
                false if path.extension().is_some_and(|ext| ext == "rs") => {
                    let text = std::fs::read_to_string(path).unwrap();
                    text.lines().filter(|line| *line == "shared_struct! {").count()
                }
                false => 0,
            };
            entries.map(count).sum()
        }
        let listed: Vec<_> = all().collect();
        assert_eq!(listed.len(), declared(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")));
        for StructLayout { file, name, .. } in listed {
            let expanded = source::expand(file, &[]).unwrap_or_else(|| panic!("no file {file}"));
            assert!(expanded.contains(&format!("struct {name} {{")), "{name} is not in {file}");
            assert!(expanded.contains(&format!("static_assert(sizeof({name})")), "{name}");
        }
    }
}
