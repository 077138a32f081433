//! Decoding files into pixels.
//!
//! Each file becomes 8-bit RGB as Pillow's `convert("RGB")` makes it: alpha is dropped and not blended, of 16 bits the
//! high byte counts, and of an animation the first frame. The rotation of EXIF is applied. Colour profiles are ignored.
//! The header is checked before memory is allocated for pixels.

use std::io::Cursor;

use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader};

use crate::error::PictureError;
use crate::fit::Size;

/// What a file may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the file.
    pub bytes: u64,
    /// Pixels that the header declares.
    pub pixels: u64,
    /// The long side, in short sides. It bounds the tokens of a picture of one row.
    pub ratio: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { bytes: 20 << 20, pixels: 50_000_000, ratio: 200 }
    }
}

/// A decoded picture: 8-bit RGB, row by row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    size: Size,
    pixels: Vec<u8>,
}

/// The formats, and their names in errors.
const FORMATS: [(ImageFormat, &str); 5] = [
    (ImageFormat::Png, "PNG"),
    (ImageFormat::Jpeg, "JPEG"),
    (ImageFormat::WebP, "WebP"),
    (ImageFormat::Gif, "GIF"),
    (ImageFormat::Bmp, "BMP"),
];

/// Bytes that start a file of another format, at an offset, and the name of the format.
const OTHERS: [(usize, &[u8], &str); 9] = [
    (4, b"ftypheic", "HEIC"),
    (4, b"ftypheix", "HEIC"),
    (4, b"ftypmif1", "HEIF"),
    (4, b"ftypavif", "AVIF"),
    (0, b"II*\0", "TIFF"),
    (0, b"MM\0*", "TIFF"),
    (0, b"%PDF", "PDF"),
    (0, b"<svg", "SVG"),
    (0, b"\0\0\x01\0", "an icon"),
];

impl Picture {
    /// A picture of pixels: 8-bit RGB, row by row. `None` if their number is another.
    pub fn new(size: Size, pixels: Vec<u8>) -> Option<Picture> {
        let is_whole = size.width > 0 && size.height > 0 && pixels.len() == size.width * size.height * 3;
        is_whole.then_some(Picture { size, pixels })
    }

    /// Decodes a file.
    ///
    /// # Errors
    /// If the file exceeds a limit, or is not a whole picture of a known format.
    pub fn decode(bytes: &[u8], limits: &Limits) -> Result<Picture, PictureError> {
        let (decoder, format, orientation) = opened(bytes, limits)?;
        let mut image = DynamicImage::from_decoder(decoder).map_err(|error| damaged(format, &error))?;
        image.apply_orientation(orientation);
        let size = Size { width: image.width() as usize, height: image.height() as usize };
        Ok(Picture { size, pixels: rgb(image) })
    }

    /// The size of the picture that [`Picture::decode`] would return, from the header.
    ///
    /// # Errors
    /// If the file exceeds a limit, or has no header of a known format.
    pub fn size_of(bytes: &[u8], limits: &Limits) -> Result<Size, PictureError> {
        let (decoder, _, orientation) = opened(bytes, limits)?;
        let (width, height) = decoder.dimensions();
        let (width, height) = if is_turned(orientation) { (height, width) } else { (width, height) };
        Ok(Size { width: width as usize, height: height as usize })
    }

    /// Width and height.
    pub fn size(&self) -> Size {
        self.size
    }

    /// The bytes of the pixels: red, green, blue.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }
}

/// A decoder that has read the header, whose limits are checked.
fn opened<'a>(
    bytes: &'a [u8],
    limits: &Limits,
) -> Result<(impl ImageDecoder + 'a, &'static str, Orientation), PictureError> {
    if bytes.len() as u64 > limits.bytes {
        return Err(PictureError::Bytes { found: bytes.len() as u64, limit: limits.bytes });
    }
    let guessed = image::guess_format(bytes).ok();
    let known = FORMATS.into_iter().find(|(format, _)| Some(*format) == guessed);
    let Some((format, name)) = known else { return Err(PictureError::Format { found: other(bytes) }) };
    let of_decoder = |error: image::ImageError| damaged(name, &error);
    let mut decoder = ImageReader::with_format(Cursor::new(bytes), format).into_decoder().map_err(of_decoder)?;
    let (width, height) = decoder.dimensions();
    if u64::from(width) * u64::from(height) > limits.pixels {
        return Err(PictureError::Pixels { width, height, limit: limits.pixels });
    }
    if width == 0 || height == 0 {
        return Err(PictureError::Empty { width, height });
    }
    if u64::from(width.max(height)) > u64::from(width.min(height)) * u64::from(limits.ratio) {
        return Err(PictureError::Ratio { width, height, limit: limits.ratio });
    }
    let mut own = image::Limits::no_limits();
    // Up to 8 bytes of a pixel, in the file's form and in this one, and what a decoder needs beside them.
    own.max_alloc = Some((16 << 20) + 24 * u64::from(width) * u64::from(height));
    decoder.set_limits(own).map_err(of_decoder)?;
    // A picture whose EXIF data are damaged is shown as it is stored.
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    Ok((decoder, name, orientation))
}

fn damaged(format: &'static str, error: &image::ImageError) -> PictureError {
    let reason: String = error.to_string().chars().filter(|c| !c.is_control()).take(200).collect();
    PictureError::Damaged { format, reason }
}

/// What the first bytes of a file of no known format are.
fn other(bytes: &[u8]) -> &'static str {
    let starts = |(at, mark, _): &(usize, &[u8], &str)| bytes.get(*at..).is_some_and(|rest| rest.starts_with(mark));
    match OTHERS.iter().find(|row| starts(row)) {
        Some((.., name)) => name,
        None if bytes.is_empty() => "no bytes",
        None => "other bytes",
    }
}

fn is_turned(orientation: Orientation) -> bool {
    use Orientation::{Rotate90, Rotate90FlipH, Rotate270, Rotate270FlipH};
    matches!(orientation, Rotate90 | Rotate270 | Rotate90FlipH | Rotate270FlipH)
}

/// 8-bit RGB. Of 16 bits the high byte counts, where the crate would round.
fn rgb(image: DynamicImage) -> Vec<u8> {
    let high = |value: &u16| (value >> 8) as u8;
    match image {
        DynamicImage::ImageRgb8(image) => image.into_raw(),
        DynamicImage::ImageRgb16(image) => image.as_raw().iter().map(high).collect(),
        DynamicImage::ImageRgba16(image) => image
            .as_raw()
            .chunks_exact(4)
            .flat_map(|pixel| [high(&pixel[0]), high(&pixel[1]), high(&pixel[2])])
            .collect(),
        DynamicImage::ImageLuma16(image) => image.as_raw().iter().flat_map(|value| [high(value); 3]).collect(),
        DynamicImage::ImageLumaA16(image) => {
            image.as_raw().chunks_exact(2).flat_map(|pixel| [high(&pixel[0]); 3]).collect()
        }
        image => image.into_rgb8().into_raw(),
    }
}
