//! Structs that a kernel's text declares too. Their layouts are asserted where the text is compiled: [`super::source::expand`]
//! puts the assertions behind it, so that the compiler of a device, as that of the simulator, refuses a field that lies
//! elsewhere.

use super::{cuda, metal, small};
use crate::act::Int8Block;
use std::fmt::Write;

/// A struct with its fields' places, and where its twin is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// The text that declares the twin, and its name there.
    pub(crate) text: &'static str,
    pub(crate) name: &'static str,
    pub(crate) bytes: usize,
    /// Name, first byte and bytes.
    pub(crate) fields: &'static [(&'static str, usize, usize)],
}

/// A struct that has a twin in a text, made by [`twin!`].
pub(crate) trait Twin: bytemuck::Pod {
    const LAYOUT: Layout;
}

/// Declares a struct whose twin, with fields of the same names, is in a text: `struct Here as There in "text.h" { … }`, or
/// `struct Both in "text.h" { … }`.
macro_rules! twin {
    ($(#[$meta:meta])* $vis:vis struct $name:ident in $($rest:tt)*) => {
        $crate::gpu::twin::twin! { $(#[$meta])* $vis struct $name as $name in $($rest)* }
    };
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident as $there:ident in $text:literal {
            $($(#[$doc:meta])* $field_vis:vis $field:ident: $ty:ty,)*
        }
    ) => {
        $(#[$meta])*
        $vis struct $name {
            $($(#[$doc])* $field_vis $field: $ty,)*
        }

        impl $crate::gpu::twin::Twin for $name {
            const LAYOUT: $crate::gpu::twin::Layout = $crate::gpu::twin::Layout {
                text: $text,
                name: stringify!($there),
                bytes: size_of::<Self>(),
                fields: &[$((stringify!($field), std::mem::offset_of!($name, $field), size_of::<$ty>()),)*],
            };
        }
    };
}
pub(crate) use twin;

/// Every twin.
fn all() -> impl Iterator<Item = &'static Layout> {
    const SHARED: &[Layout] = &[
        Int8Block::LAYOUT,
        super::activation::ActivationParams::LAYOUT,
        super::finish::FinishParams::LAYOUT,
        super::product::ProductParams::LAYOUT,
    ];
    [SHARED, small::TWINS, cuda::texts::TWINS, metal::texts::TWINS].into_iter().flatten()
}

/// What a compiler is to assert of the structs that a text declares.
pub(super) fn assertions(text: &str, out: &mut String) {
    for Layout { name, bytes, fields, .. } in all().filter(|layout| layout.text == text) {
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

    /// Every struct that is declared a twin is in a list, and its text is there.
    #[test]
    fn every_twin_is_listed() {
        fn declared(folder: &Path) -> usize {
            let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
            let count = |path: std::path::PathBuf| match path.is_dir() {
                true => declared(&path),
                false if path.extension().is_some_and(|ext| ext == "rs") => {
                    let text = std::fs::read_to_string(path).unwrap();
                    text.lines().filter(|line| *line == "twin! {").count()
                }
                false => 0,
            };
            entries.map(count).sum()
        }
        let listed: Vec<_> = all().collect();
        assert_eq!(listed.len(), declared(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")));
        for Layout { text, name, .. } in listed {
            let expanded = source::expand(text, &[]).unwrap_or_else(|| panic!("no text {text}"));
            assert!(expanded.contains(&format!("struct {name} {{")), "{name} is not in {text}");
            assert!(expanded.contains(&format!("static_assert(sizeof({name})")), "{name}");
        }
    }
}
