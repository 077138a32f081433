//! What requests to a server may have of images.

use clap::Args;
use gristmill_engine::vision::Limits;
use gristmill_hub::PublicFiles;
use gristmill_server::{HostPattern, ImageFetch, ImageOptions};

use crate::failure::Failure;
use crate::numbers;

/// Limits of images in requests.
#[derive(Args)]
pub(crate) struct ImageArgs {
    /// The most pixels of an image. The header is checked before the image is decoded.
    #[arg(
        long, value_name = "N", default_value_t = 50_000_000, allow_negative_numbers = true,
        value_parser = numbers::between(1, 1_000_000_000),
        help_heading = "Limits"
    )]
    max_image_pixels: usize,
    /// The most MiB of an image's file.
    #[arg(
        long, value_name = "MIB", default_value_t = 20, allow_negative_numbers = true,
        value_parser = numbers::between(1, 1024),
        help_heading = "Limits"
    )]
    max_image_bytes: usize,
    /// The most images of a request.
    #[arg(
        long, value_name = "N", default_value_t = 64, allow_negative_numbers = true,
        value_parser = numbers::between(0, 10_000),
        help_heading = "Limits"
    )]
    max_images: usize,
    /// Fetch images by http: and https: URLs of this host, without redirects, within 10 s, and never from a private
    /// address; *.example.org accepts every name that ends with .example.org. Without it, requests must contain their
    /// images. Can be repeated.
    #[arg(long, value_name = "HOST", help_heading = "Requests")]
    allow_image_urls: Vec<HostPattern>,
}

impl ImageArgs {
    /// The limits of an image.
    pub(crate) fn limits(&self) -> Limits {
        let (pixels, bytes) = (self.max_image_pixels as u64, (self.max_image_bytes as u64) << 20);
        Limits { pixels, bytes, ..Limits::default() }
    }

    /// The options of the server.
    pub(crate) fn options(&self) -> Result<ImageOptions, Failure> {
        let mut options = ImageOptions { count: self.max_images, limits: self.limits(), ..ImageOptions::default() };
        if !self.allow_image_urls.is_empty() {
            let files = PublicFiles::new(options.limits.bytes)?;
            let fetch = move |url: &str| files.fetch(url).map_err(|error| error.to_string());
            options.fetch = Some(ImageFetch::new(self.allow_image_urls.clone(), fetch));
        }
        Ok(options)
    }
}
