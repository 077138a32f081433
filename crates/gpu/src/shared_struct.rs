//! Structs that both the host and a kernel source declare. Their layouts are asserted where the source is compiled:
//! [`crate::source::expand`] appends the assertions, so that the compiler of a device, and that of the simulator,
//! refuse a field at another place.

use std::fmt::Write;

/// A field: name, first byte and bytes.
pub type Field = (&'static str, usize, usize);

/// The layout of a struct as the host has it, and where a kernel source declares it.
#[derive(Clone, Copy, Debug)]
pub struct StructLayout {
    /// The file that declares the struct.
    pub file: &'static str,
    /// The struct's name there.
    pub name: &'static str,
    /// Its size.
    pub bytes: usize,
    /// The fields: [`SharedFields::FIELDS`].
    pub fields: [&'static [Field]; 2],
}

impl StructLayout {
    /// Appends assertions that the kernel source's struct lies the same way.
    pub fn assert(&self, out: &mut String) {
        let Self { name, bytes, fields, .. } = self;
        let _ = writeln!(out, "static_assert(sizeof({name}) == {bytes}, \"size of {name}\");");
        for (field, first, bytes) in fields.iter().copied().flatten() {
            let offset = format!("FIELD_AT({name}, {field}, {first})");
            let size = format!("sizeof({name}::{field}) == {bytes}");
            let _ = writeln!(out, "static_assert({offset} && {size}, \"{field} of {name}\");");
        }
    }
}

/// A struct whose fields a kernel source declares too, made by [`crate::shared_fields!`].
pub trait SharedFields: bytemuck::Pod {
    /// The fields that it starts with, if these are another struct's, and its own.
    const FIELDS: [&'static [Field]; 2];
}

/// A struct that a kernel source declares too, made by [`crate::shared_struct!`].
pub trait SharedStruct: SharedFields {
    /// How it lies.
    const LAYOUT: StructLayout;
}

/// Declares fields that several shared structs start with: `..begin: Fields,` in [`crate::shared_struct!`].
#[macro_export]
macro_rules! shared_fields {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $(..$begin:ident: $begin_ty:ty,)?
            $($(#[$doc:meta])* $field_vis:vis $field:ident: $ty:ty,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, ::bytemuck::Pod, ::bytemuck::Zeroable)]
        #[repr(C)]
        $vis struct $name {
            $($begin: $begin_ty,)?
            $($(#[$doc])* $field_vis $field: $ty,)*
        }

        impl $crate::shared_struct::SharedFields for $name {
            const FIELDS: [&'static [$crate::shared_struct::Field]; 2] = [
                [$(<$begin_ty as $crate::shared_struct::SharedFields>::FIELDS[1],)? &[]][0],
                &[$((stringify!($field), std::mem::offset_of!($name, $field), size_of::<$ty>()),)*],
            ];
        }
    };
}

/// Declares a struct that a kernel source declares with fields of the same names:
/// `struct Here as There in "file.h" { … }`, or `struct Both in "file.h" { … }`.
#[macro_export]
macro_rules! shared_struct {
    ($(#[$meta:meta])* $vis:vis struct $name:ident in $($rest:tt)*) => {
        $crate::shared_struct! { $(#[$meta])* $vis struct $name as $name in $($rest)* }
    };
    ($(#[$meta:meta])* $vis:vis struct $name:ident as $there:ident in $file:literal { $($fields:tt)* }) => {
        $crate::shared_fields! { $(#[$meta])* $vis struct $name { $($fields)* } }

        impl $crate::shared_struct::SharedStruct for $name {
            const LAYOUT: $crate::shared_struct::StructLayout = $crate::shared_struct::StructLayout {
                file: $file,
                name: stringify!($there),
                bytes: size_of::<Self>(),
                fields: <Self as $crate::shared_struct::SharedFields>::FIELDS,
            };
        }
    };
}
