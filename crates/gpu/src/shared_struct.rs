//! Structs that both the host and a kernel source declare. Their layouts are asserted where the source is compiled:
//! [`crate::source::expand`] appends the assertions, so that the compiler of a device, and that of the simulator, refuse
//! a field at another place.

use std::fmt::Write;

/// The layout of a struct as the host has it, and where a kernel source declares it.
#[derive(Clone, Copy, Debug)]
pub struct StructLayout {
    /// The file that declares the struct.
    pub file: &'static str,
    /// The struct's name there.
    pub name: &'static str,
    /// Its size.
    pub bytes: usize,
    /// Name, first byte and bytes.
    pub fields: &'static [(&'static str, usize, usize)],
}

impl StructLayout {
    /// Appends assertions that the kernel source's struct lies the same way.
    pub fn assert(&self, out: &mut String) {
        let Self { name, bytes, fields, .. } = self;
        let _ = writeln!(out, "static_assert(sizeof({name}) == {bytes}, \"size of {name}\");");
        for (field, first, bytes) in *fields {
            let place = format!("FIELD_AT({name}, {field}, {first})");
            let size = format!("sizeof({name}::{field}) == {bytes}");
            let _ = writeln!(out, "static_assert({place} && {size}, \"{field} of {name}\");");
        }
    }
}

/// A struct that a kernel source declares too, made by [`crate::shared_struct!`].
pub trait SharedStruct: bytemuck::Pod {
    /// How it lies.
    const LAYOUT: StructLayout;
}

/// Declares a struct that a kernel source declares with fields of the same names: `struct Here as There in "file.h" { … }`,
/// or `struct Both in "file.h" { … }`.
#[macro_export]
macro_rules! shared_struct {
    ($(#[$meta:meta])* $vis:vis struct $name:ident in $($rest:tt)*) => {
        $crate::shared_struct! { $(#[$meta])* $vis struct $name as $name in $($rest)* }
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

        impl $crate::shared_struct::SharedStruct for $name {
            const LAYOUT: $crate::shared_struct::StructLayout = $crate::shared_struct::StructLayout {
                file: $file,
                name: stringify!($there),
                bytes: size_of::<Self>(),
                fields: &[$((stringify!($field), std::mem::offset_of!($name, $field), size_of::<$ty>()),)*],
            };
        }
    };
}
