//! Constructors of operations: a line beside each struct.
//!
//! `new` takes the fields without defaults, in the order of the struct but outputs last. A setter, named like its field,
//! sets each of the others. A new field of an operation gets a default there, so calls of `new` do not change.
//!
//! # Structs of operations are open, their constructors are stable
//!
//! A backend destructures an operation without `..`, so the compiler reports each backend that ignores a new field;
//! `#[non_exhaustive]` would turn this error into wrong numbers. Applications call `new` and setters, in which a new
//! field has a default.
//!
//! - *The caller provides outputs and scratch, so an operation does not allocate. A GPU's workspace grows to the need
//!   of its largest operation, and is kept.*
//! - *A result does not depend on the number of threads. Except for the cases under "GPU", it does not depend on other
//!   rows of the batch. The same batch gives the same bits.*

/// `Type(required fields) optional(fields that are `None`) default(fields with a value);`
macro_rules! constructor {
    (
        $Type:ident<$life:lifetime>($($field:ident: $Field:ty),*)
        $(optional($($optional:ident: $Optional:ty),*))?
        $(default($($default:ident: $Default:ty = $value:expr),*))?
    ) => {
        impl<$life> $Type<$life> {
            /// Takes the fields that have no default.
            $($(#[doc = concat!("`", stringify!($optional), "` is `None`.")])*)?
            $($(#[doc = concat!("`", stringify!($default), "` is `", stringify!($value), "`.")])*)?
            pub fn new($($field: $Field),*) -> Self {
                Self { $($field,)* $($($optional: None,)*)? $($($default: $value,)*)? }
            }

            $($(
                #[doc = concat!("Sets `", stringify!($optional), "`.")]
                #[must_use]
                pub fn $optional(self, $optional: impl Into<Option<$Optional>>) -> Self {
                    Self { $optional: $optional.into(), ..self }
                }
            )*)?

            $($(
                #[doc = concat!("Sets `", stringify!($default), "`.")]
                #[must_use]
                pub fn $default(self, $default: $Default) -> Self {
                    Self { $default, ..self }
                }
            )*)?
        }
    };
}
