//! Errors of pictures and of processors.

use thiserror::Error;

/// A file that is no picture which can be shown to a model. Its message lacks the place, which the caller prefixes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PictureError {
    /// The file is too large.
    #[error("the image has too many bytes (found {found}, expected at most {limit}); send a smaller image")]
    Bytes {
        /// Bytes of the file.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// The header declares too many pixels.
    #[error("the image has too many pixels (found {width} × {height}, expected at most {limit}); send a smaller image")]
    Pixels {
        /// Pixels in a row.
        width: u32,
        /// Rows.
        height: u32,
        /// The limit of their product.
        limit: u64,
    },
    /// The picture has no pixels.
    #[error("the image has no pixels (found {width} × {height}); send an image with at least one")]
    Empty {
        /// Pixels in a row.
        width: u32,
        /// Rows.
        height: u32,
    },
    /// The picture is too long for its width.
    #[error(
        "the sides of the image differ too much (found {width} × {height}, expected a ratio of at most {limit}); crop it"
    )]
    Ratio {
        /// Pixels in a row.
        width: u32,
        /// Rows.
        height: u32,
        /// The limit of the ratio.
        limit: u32,
    },
    /// The first bytes are of no known format.
    #[error("the file is no image that can be read (found {found}, expected PNG, JPEG, WebP, GIF or BMP); convert it")]
    Format {
        /// What the first bytes are.
        found: &'static str,
    },
    /// The file is damaged, or uses a feature that the decoder lacks.
    #[error("the {format} image cannot be decoded ({reason}); save it again, as PNG or JPEG")]
    Damaged {
        /// The format.
        format: &'static str,
        /// The decoder's message.
        reason: String,
    },
}

/// A processor that cannot be read from a model's files.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The files are those of another kind of processor.
    #[error("{key}: the image processor `{found}` is not supported; expected one of {expected}")]
    Kind {
        /// The key.
        key: &'static str,
        /// Its value.
        found: String,
        /// The supported values.
        expected: String,
    },
    /// A key is missing.
    #[error("{key}: the key is missing; expected {expected}")]
    Missing {
        /// The key.
        key: String,
        /// What it must contain.
        expected: &'static str,
    },
    /// A value is out of range, or has another type.
    #[error("{key}: the value is not valid (found {found}, expected {expected}); download the file again")]
    Value {
        /// The key.
        key: String,
        /// Its value.
        found: String,
        /// What it must be.
        expected: &'static str,
    },
    /// A setting that no supported model has.
    #[error("{key}: {found} is not supported; use a model with {expected}")]
    Unsupported {
        /// The key.
        key: String,
        /// Its value.
        found: String,
        /// What is supported.
        expected: &'static str,
    },
}
