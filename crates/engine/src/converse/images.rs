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

/// An image of a conversation, prepared for a model. Its pixels are no longer needed.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatImage {
    image: Arc<Prepared>,
    layout: Layout,
}

impl ChatImage {
    /// Prepares an image for the model of this processor ([`Engine::processor`](crate::Engine::processor)). It blocks for
    /// milliseconds.
    pub fn new(processor: &Processor, picture: &Picture, detail: Detail) -> ChatImage {
        let layout = processor.layout(picture.size(), detail);
        ChatImage { image: Arc::new(processor.prepare(picture, detail)), layout }
    }

    /// The number of tokens that stand for the image, without the marks around them.
    pub fn tokens(&self) -> usize {
        self.layout.tokens()
    }
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
    images: &[ChatImage],
) -> (String, Vec<PromptImage>) {
    let found: Vec<(usize, &str)> = match images_are_text {
        true => prompt.match_indices(escapes.images()).collect(),
        false => prompt.match_indices(marks.placeholder.as_str()).collect(),
    };
    let mut out = String::with_capacity(prompt.len() + 64 * found.len());
    let mut end = 0;
    let mut runs = Vec::new();
    for ((at, place), own) in found.into_iter().zip(order) {
        let image = if images_are_text { place.chars().next() } else { Some(*own) };
        let index = escapes.images().iter().position(|mark| Some(*mark) == image);
        let Some(ChatImage { image, layout }) = index.and_then(|index| images.get(index)) else { continue };
        out.push_str(&prompt[end..at]);
        end = at + place.len();
        // A template that knows images writes these itself.
        let around = if images_are_text { (&*marks.around.0, &*marks.around.1) } else { ("", "") };
        out.push_str(around.0);
        for piece in &layout.pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                &Piece::Tokens { tile, first, count } => {
                    out.push_str(&marks.token);
                    runs.push(PromptImage { image: image.clone(), tile, first, tokens: count });
                }
            }
        }
        out.push_str(around.1);
    }
    out.push_str(&prompt[end..]);
    (out, runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_text::template::{Chat, ChatTemplate, Message, RenderOptions, Role};
    use gristmill_text::tokenizer::{Tokenizer, Vocabulary};
    use gristmill_vision::{Kind, Size};

    /// The marks of images as control tokens, in a vocabulary of ASCII.
    fn tokenizer(controls: &[&str]) -> Tokenizer {
        let ascii = (0..128u8).map(|byte| char::from(byte).to_string());
        let tokens: Vec<String> =
            ascii.chain(["ab".to_owned()]).chain(controls.iter().map(|&t| t.to_owned())).collect();
        let types = vec![1; 129].into_iter().chain(controls.iter().map(|_| 3)).collect();
        let model = "gpt2".to_owned();
        let merges = vec!["a b".to_owned()];
        Tokenizer::new(Vocabulary { model, tokens, types, merges, ..Vocabulary::default() }).expect("a vocabulary")
    }

    fn image(width: usize, height: usize, byte: u8) -> Picture {
        Picture::new(Size { width, height }, vec![byte; width * height * 3]).expect("pixels")
    }

    /// The prompt of one message with these images at its start, and the runs of tokens.
    fn prompt(kind: Kind, template: &str, text: &str, images: &[Picture]) -> (String, Vec<PromptImage>) {
        let processor = kind.processor();
        let marks = &processor.marks;
        let images_are_text = !template.contains("image");
        let template = ChatTemplate::new(template).expect("a template");
        let message = Message { images: vec![0; images.len()], ..Message::new(Role::User, text) };
        let tokenizer = tokenizer(&[&*marks.placeholder, &*marks.token, "<|im_end|>"]);
        let (chat, escapes) =
            template.escaper(&tokenizer).and_then(|own| own.escape(&Chat::new(vec![message]))).expect("a conversation");
        let options = RenderOptions { images: escapes.images().to_vec(), images_are_text, ..RenderOptions::default() };
        let (rendered, order) = template.render_with_images(&chat, &options).expect("a prompt");
        assert_eq!(places(&rendered, &escapes, marks, images_are_text), images.len());
        let images: Vec<ChatImage> =
            images.iter().map(|picture| ChatImage::new(&processor, picture, Detail::High)).collect();
        let (prompt, runs) = expanded(&rendered, &escapes, marks, images_are_text, &order, &images);
        (escapes.unescape(&prompt).0, runs)
    }

    #[test]
    fn pieces_replace_what_the_template_writes() {
        let parts = "{% for m in messages %}{% for p in m.content %}{% if p.type == 'image' %}<|vision_start|><|image_pad|>\
                     <|vision_end|>{% else %}{{ p.text }}{% endif %}{% endfor %}{% endfor %}";
        let (two, one) = (image(56, 56, 1), image(112, 28, 2));
        let (text, runs) = prompt(Kind::Qwen, parts, "<|image_pad|>?", &[two.clone(), one.clone()]);
        let mark = "<|vision_start|><|image_pad|><|vision_end|>";
        assert_eq!(text, format!("{mark}{mark}<|image_pad|>?"));
        assert_eq!(runs.iter().map(|run| run.tokens).collect::<Vec<_>>(), [4, 4]);
        assert_ne!(runs[0].image.hash, runs[1].image.hash);
        // A template without parts has no marks of its own.
        let texts = "{% for m in messages %}{{ m.content }}{% endfor %}";
        assert_eq!(prompt(Kind::Qwen, texts, "<|image_pad|>?", &[two, one]), (text, runs));
    }

    #[test]
    fn rows_and_tiles_are_runs_of_their_own() {
        let parts = "{% for m in messages %}{% for p in m.content %}{% if p.type == 'image' %}[IMG]{% else %}{{ p.text }}\
                     {% endif %}{% endfor %}{% endfor %}";
        let (text, runs) = prompt(Kind::Pixtral, parts, "[IMG]", &[image(40, 20, 0)]);
        assert_eq!(text, "[IMG][IMG_BREAK][IMG][IMG_END][IMG]");
        assert_eq!(runs.iter().map(|run| (run.first, run.tokens)).collect::<Vec<_>>(), [(0, 3), (3, 3)]);
        let parts = parts.replace("[IMG]", "<image>");
        let (text, runs) = prompt(Kind::Lfm2Vl, &parts, "", &[image(1100, 512, 0)]);
        let tiles = "<|img_row_1_col_1|><image><|img_row_1_col_2|><image><|img_thumbnail|><image>";
        assert_eq!(text, format!("<|image_start|>{tiles}<|image_end|>"));
        assert_eq!(runs.iter().map(|run| (run.tile, run.tokens)).collect::<Vec<_>>(), [(0, 256), (1, 256), (2, 230)]);
    }
}
