//! Structs that the host fills and kernels read.
//!
//! # Shared structs
//!
//! Rust declares them; [`crate::source::expand`] writes the declaration for a
//! kernel source that includes the struct's name: `#include "NormParams"`.

use std::fmt::Write;

/// A field's type in a kernel source.
pub trait FieldType {
    /// The name of the type, or of an array's elements.
    const NAME: &'static str;
    /// The length of an array.
    const LENGTH: Option<usize> = None;
}

macro_rules! field_types {
    ($($rust:ty = $name:literal),*) => {
        $(impl FieldType for $rust {
            const NAME: &'static str = $name;
        })*
    };
}

field_types!(u32 = "u32", u64 = "u64", i32 = "i32", f32 = "float");

impl<T: FieldType, const N: usize> FieldType for [T; N] {
    const NAME: &'static str = T::NAME;
    const LENGTH: Option<usize> = Some(N);
}

/// A field: its name, the name of its type, and the length if it is an array.
pub type Field = (&'static str, &'static str, Option<usize>);

/// The declaration of a struct.
#[derive(Clone, Copy, Debug)]
pub struct StructLayout {
    /// The struct's name in kernel sources.
    pub name: &'static str,
    /// Its size.
    pub bytes: usize,
    /// The fields: [`SharedFields::FIELDS`].
    pub fields: [&'static [Field]; 2],
}

impl StructLayout {
    /// Names of the fields' types, without those of arrays' lengths.
    pub fn types(&self) -> impl Iterator<Item = &'static str> {
        self.fields.into_iter().flatten().map(|&(_, name, _)| name)
    }

    /// Writes the declaration. The types of the fields must be declared before.
    pub fn declare(&self, out: &mut String) {
        let Self { name, bytes, .. } = self;
        let _ = writeln!(out, "struct {name} {{");
        for (field, ty, length) in self.fields.into_iter().flatten() {
            let _ = match length {
                Some(length) => writeln!(out, "    {ty} {field}[{length}];"),
                None => writeln!(out, "    {ty} {field};"),
            };
        }
        let _ = writeln!(out, "}};\nstatic_assert(sizeof({name}) == {bytes}, \"size of {name}\");");
    }
}

/// A struct whose fields kernels read, made by [`crate::shared_fields!`].
pub trait SharedFields: bytemuck::Pod {
    /// The fields that it starts with, if these are another struct's, and its own.
    const FIELDS: [&'static [Field]; 2];
}

/// A struct that kernels read, made by [`crate::shared_struct!`].
pub trait SharedStruct: SharedFields {
    /// Its declaration.
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
                &[$((
                    stringify!($field),
                    <$ty as $crate::shared_struct::FieldType>::NAME,
                    <$ty as $crate::shared_struct::FieldType>::LENGTH,
                ),)*],
            ];
        }
    };
}

/// Declares a struct for the host and for kernels: `struct Here as There { … }` with another name in kernel sources, or
/// `struct Both { … }`.
#[macro_export]
macro_rules! shared_struct {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($fields:tt)* }) => {
        $crate::shared_struct! { $(#[$meta])* $vis struct $name as $name { $($fields)* } }
    };
    ($(#[$meta:meta])* $vis:vis struct $name:ident as $there:ident { $($fields:tt)* }) => {
        $crate::shared_fields! { $(#[$meta])* $vis struct $name { $($fields)* } }

        impl $crate::shared_struct::FieldType for $name {
            const NAME: &'static str = stringify!($there);
        }

        impl $crate::shared_struct::SharedStruct for $name {
            const LAYOUT: $crate::shared_struct::StructLayout = $crate::shared_struct::StructLayout {
                name: stringify!($there),
                bytes: size_of::<Self>(),
                fields: <Self as $crate::shared_struct::SharedFields>::FIELDS,
            };
        }
    };
}

#[cfg(test)]
mod tests {
    use super::SharedStruct;

    shared_struct! {
        struct Inner as Other {
            scale: f32,
            q: [i32; 2],
        }
    }

    shared_struct! {
        struct Outer {
            stride: u64,
            inner: Inner,
            padding: u32,
        }
    }

    #[test]
    fn declarations_have_the_names_of_kernels() {
        let mut out = String::new();
        Inner::LAYOUT.declare(&mut out);
        Outer::LAYOUT.declare(&mut out);
        let expected = "struct Other {\n    float scale;\n    i32 q[2];\n};\n\
            static_assert(sizeof(Other) == 12, \"size of Other\");\n\
            struct Outer {\n    u64 stride;\n    Other inner;\n    u32 padding;\n};\n\
            static_assert(sizeof(Outer) == 24, \"size of Outer\");\n";
        assert_eq!(out, expected);
        assert_eq!(Outer::LAYOUT.types().collect::<Vec<_>>(), ["u64", "Other", "u32"]);
    }
}
