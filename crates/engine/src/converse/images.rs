//! Images of a conversation: from their places in a rendered prompt to tokens.
//!
//! # Where an image is in a prompt
//!
//! A text has a character of its own for each image (`template/escape.rs`). The template gets the text as parts, and
//! writes the placeholder of its family for each image. If it writes another number of them, it knows no parts: then it
//! gets the text with the characters in it, and they are the places. The pieces of the processor replace each place,
//! before the texts of the conversation become readable again. *Invariant: what a message says never becomes the token
//! of an image; because the places are found while control tokens of messages are still escaped; checked by
//! `converse/images.rs`.*

use std::sync::Arc;

use gristmill_text::template::Escapes;
use gristmill_vision::{Detail, Layout, Marks, Picture, Piece, Prepared, Processor};

use crate::prompt::PromptImage;

/// An image of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatImage {
    /// The pixels.
    pub picture: Arc<Picture>,
    /// How much of it the model is shown.
    pub detail: Detail,
}

/// An image with its tiles and the pieces of its tokens.
#[derive(Debug)]
pub(super) struct Laid {
    image: Arc<Prepared>,
    layout: Layout,
}

/// The images, prepared. An image that is in the conversation twice is prepared once.
pub(super) fn laid(images: &[ChatImage], processor: &Processor) -> Vec<Laid> {
    let mut laid: Vec<Laid> = Vec::with_capacity(images.len());
    for (index, ChatImage { picture, detail }) in images.iter().enumerate() {
        let is_same = |other: &ChatImage| Arc::ptr_eq(&other.picture, picture) && other.detail == *detail;
        let image = match images[..index].iter().position(is_same) {
            Some(before) => laid[before].image.clone(),
            None => Arc::new(processor.prepare(picture, *detail)),
        };
        laid.push(Laid { image, layout: processor.layout(picture.size(), *detail) });
    }
    laid
}

/// How many places of images a prompt with placeholders has.
pub(super) fn places(prompt: &str, escapes: &Escapes, marks: &Marks, images_are_text: bool) -> usize {
    match images_are_text {
        true => prompt.matches(escapes.images()).count(),
        false => prompt.matches(marks.placeholder.as_str()).count(),
    }
}

/// The prompt in which the pieces of images replace their places, with one token for each run of them, and the runs in
/// their order. `order` has the images in the order in which the template got them.
pub(super) fn expanded(
    prompt: &str,
    escapes: &Escapes,
    marks: &Marks,
    images_are_text: bool,
    order: &[char],
    laid: &[Laid],
) -> (String, Vec<PromptImage>) {
    let found: Vec<(usize, &str)> = match images_are_text {
        true => prompt.match_indices(escapes.images()).collect(),
        false => prompt.match_indices(marks.placeholder.as_str()).collect(),
    };
    let mut out = String::with_capacity(prompt.len() + 64 * found.len());
    let (mut end, mut runs) = (0, Vec::new());
    for ((at, place), own) in found.into_iter().zip(order) {
        let image = if images_are_text { place.chars().next() } else { Some(*own) };
        let index = escapes.images().iter().position(|mark| Some(*mark) == image);
        let Some(Laid { image, layout }) = index.and_then(|index| laid.get(index)) else { continue };
        out.push_str(&prompt[end..at]);
        end = at + place.len();
        for piece in &layout.pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                &Piece::Tokens { tile, first, count } => {
                    out.push_str(&marks.token);
                    runs.push(PromptImage { image: image.clone(), tile, first, tokens: count });
                }
            }
        }
    }
    out.push_str(&prompt[end..]);
    (out, runs)
}
