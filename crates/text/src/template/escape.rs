//! Keeps control tokens out of what a conversation says, whatever a template does with its texts.
//!
//! Before a template sees a text, each character of it with which a control token could start is replaced by a
//! placeholder: a character of the Private Use Area that neither the conversation nor the template has. The template
//! can strip, split, slice, join or print such texts, and its own marks do not change. In the prompt, the placeholders
//! become the characters again, and no control token is recognised at their positions.
//!
//! A control token could also be formed of a text and a string of the template. If it starts in the text, its first
//! character has a placeholder: texts are searched for beginnings of control tokens, not for whole ones alone. If it
//! starts in the template, a string of the template ends with a start of it (an [`Escaper::tails`]), and the
//! character that would continue it has a placeholder.
//!
//! Left are the strings that a template looks for in a text: their characters have no placeholders, unless they are
//! whole control tokens (`docs/limits.md`).
//!
//! # Content of a conversation is never a control token
//!
//! A template can strip, split, join or print its texts, so their positions in the prompt are unknown. Before the
//! template runs, each character with which a control token could start in such a text is replaced by a stand-in of the
//! Private Use Area (`template/escape.rs`). Afterwards the stand-ins become the characters again. Their positions
//! (`plain` of `Prompt::Rendered`) are bytes that no control token can include. `docs/limits.md` lists tokens that a
//! template can still build. *Invariant: a control token of a rendered prompt consists only of bytes of the template;
//! because a match that includes a byte of a text includes a stand-in's; checked by `text/tests/injection.rs`.*

use std::collections::{BTreeSet, HashSet};
use std::mem;
use std::ops::Range;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::{Map, Value as Json};

use super::error::TemplateError;
use super::message::{Arguments, Chat, Role};

/// The characters of which placeholders are chosen.
const PRIVATE: Range<u32> = 0xe000..0xf900;

/// The strings of a template.
#[derive(Debug, Default)]
pub(super) struct Strings {
    /// Those that it writes, or looks for.
    pub(super) all: Vec<String>,
    /// The characters that it looks for with `in`.
    pub(super) sought: HashSet<char>,
}

/// What matters of a template and a vocabulary for escaping.
#[derive(Debug)]
pub struct Escaper {
    /// Finds control tokens, also within others.
    controls: Option<AhoCorasick>,
    /// The characters that start control tokens, without letters, digits, spaces, quotation marks and backslashes,
    /// which templates may change.
    symbols: Symbols,
    /// Those of them of which the template asks whether a text has one. They get a placeholder only where a control
    /// token is started or the text ends.
    sought: HashSet<char>,
    /// The first two characters of control tokens that start with these.
    pairs: HashSet<(char, char)>,
    /// Whether a control token starts with another character, or is one character. It is found as a whole only.
    has_others: bool,
    /// Finds strings that the template may look for in a text, and which are not to be hidden from it.
    needles: Option<AhoCorasick>,
    /// Finds what is left of control tokens with whose starts a string of the template ends.
    tails: Option<AhoCorasick>,
    /// The beginnings of these.
    tail_beginnings: HashSet<String>,
    /// Marks that an assistant's text keeps: templates look for them to leave out earlier reasoning.
    kept: Vec<&'static str>,
    /// Characters of the Private Use Area in the template.
    private: HashSet<u32>,
}

/// A set of characters, most of which are ASCII.
#[derive(Debug)]
struct Symbols {
    chars: Vec<char>,
    /// Whether one of them starts with a byte.
    begins: [bool; 256],
}

impl Symbols {
    fn new(chars: Vec<char>) -> Symbols {
        let mut begins = [false; 256];
        chars.iter().for_each(|c| begins[usize::from(c.encode_utf8(&mut [0; 4]).as_bytes()[0])] = true);
        Symbols { chars, begins }
    }

    fn contains(&self, c: char) -> bool {
        self.chars.contains(&c)
    }

    /// Those in a text, with their places.
    fn within<'t>(&'t self, text: &'t str) -> impl Iterator<Item = (usize, char)> + 't {
        let places = text.bytes().enumerate().filter(|&(_, byte)| self.begins[usize::from(byte)]);
        let chars = places.filter_map(|(at, _)| Some((at, text[at..].chars().next()?)));
        chars.filter(|&(_, c)| c.is_ascii() || self.contains(c))
    }
}

/// The placeholders of one conversation.
#[derive(Debug, Clone)]
pub struct Escapes {
    escaper: Arc<Escaper>,
    /// Each placeholder and its character.
    stand_ins: Vec<(char, char)>,
    /// See [`Self::images`].
    images: Vec<char>,
}

impl Escaper {
    /// The escaper of a template that has these strings, for a vocabulary with these control tokens. `kept` are marks
    /// that stay in an assistant's text.
    pub(super) fn new<'v>(
        Strings { all: strings, sought }: &Strings,
        controls: impl Iterator<Item = &'v str>,
        kept: Vec<&'static str>,
    ) -> Result<Escaper, TemplateError> {
        let controls: Vec<&str> = controls.filter(|token| !token.is_empty()).collect();
        let beginnings: HashSet<&str> = controls.iter().flat_map(|token| proper_beginnings(token)).collect();
        let longest = beginnings.iter().map(|text| text.len()).max().unwrap_or(0);
        let ends = |text: &'_ str| -> Vec<String> {
            let from = text.len().saturating_sub(longest);
            let ends = text.char_indices().map(|(at, _)| at).filter(|&at| at >= from).map(|at| &text[at..]);
            ends.filter(|end| beginnings.contains(*end)).map(str::to_owned).collect()
        };
        let first = |token: &&str| token.chars().next();
        let is_symbol = |c: &char| !c.is_alphanumeric() && !c.is_whitespace() && !['"', '\'', '\\'].contains(c);
        let firsts: HashSet<char> = controls.iter().filter_map(first).collect();
        let symbols = Symbols::new(firsts.iter().copied().filter(is_symbol).collect());
        let sought: HashSet<char> = sought.iter().copied().filter(|&c| symbols.contains(c)).collect();
        let first_two = |token: &&str| token.chars().next().zip(token.chars().nth(1));
        let mut open = HashSet::new();
        let mut needles = Vec::new();
        for string in strings {
            let found = ends(string);
            // A string that ends with the start of a token is one to be joined, not one to look for.
            if found.is_empty() && string.chars().any(|c| symbols.contains(c)) {
                needles.push(string.as_str());
            }
            open.extend(found);
        }
        let tails: BTreeSet<&str> = controls
            .iter()
            .flat_map(|token| {
                proper_beginnings(token).filter(|begin| open.contains(*begin)).map(move |begin| &token[begin.len()..])
            })
            .collect();
        let beginnings = |tail: &&str| proper_beginnings(tail).map(str::to_owned).collect::<Vec<_>>();
        Ok(Escaper {
            has_others: controls
                .iter()
                .any(|token| !first(token).is_some_and(|c| is_symbol(&c)) || token.chars().nth(1).is_none()),
            pairs: controls.iter().filter_map(first_two).filter(|(first, _)| sought.contains(first)).collect(),
            sought,
            needles: finder(&needles)?,
            tail_beginnings: tails.iter().flat_map(beginnings).collect(),
            tails: finder(&tails.into_iter().collect::<Vec<_>>())?,
            controls: finder(&controls)?,
            private: strings.iter().flat_map(|string| private(string)).collect(),
            symbols,
            kept,
        })
    }

    /// The conversation with placeholders. Each image becomes a character of its own in the text of its message.
    ///
    /// # Errors
    /// [`TemplateError::PrivateUse`] if the conversation leaves no characters for placeholders.
    pub fn escape(self: Arc<Self>, chat: &Chat) -> Result<(Chat, Escapes), TemplateError> {
        let mut chat = chat.clone();
        let mut used = self.private.clone();
        let mut replaced = BTreeSet::new();
        let mut images = 0;
        let mut marks = Vec::new();
        each_text(&mut chat, &mut |Visited { text, is_own, images: own }| {
            used.extend(private(text));
            images += own.len();
            // What is beside an image is a text of its own: a template may write them apart.
            marks.extend(segments(text, own).map(|segment| {
                let found = self.marks(segment, is_own);
                replaced.extend(found.iter().filter_map(|&at| segment[at..].chars().next()));
                found
            }));
        });
        if replaced.is_empty() && images == 0 {
            return Ok((chat, Escapes { escaper: self, stand_ins: Vec::new(), images: Vec::new() }));
        }
        let mut free = PRIVATE.filter(|c| !used.contains(c)).filter_map(char::from_u32);
        let stand_ins: Option<Vec<_>> = replaced.into_iter().map(|c| Some((free.next()?, c))).collect();
        let images: Option<Vec<char>> = (0..images).map(|_| free.next()).collect();
        let (stand_ins, images) = stand_ins.zip(images).ok_or(TemplateError::PrivateUse)?;
        let escapes = Escapes { escaper: self, stand_ins, images };
        let (mut marks, mut images) = (marks.into_iter(), escapes.images.iter());
        each_text(&mut chat, &mut |Visited { text, images: own, .. }| {
            let found: Vec<Vec<usize>> = marks.by_ref().take(own.len() + 1).collect();
            if own.is_empty() && found.iter().all(Vec::is_empty) {
                return;
            }
            let mut out = String::with_capacity(text.len() + 8);
            for (index, (segment, found)) in segments(text, own).zip(&found).enumerate() {
                out.extend(images.by_ref().take(usize::from(index > 0)));
                out.push_str(&escapes.replaced(segment, found));
            }
            *text = out;
        });
        chat.messages.iter_mut().for_each(|message| message.images.clear());
        Ok((chat, escapes))
    }

    /// The characters of a text, by their first bytes, that get a placeholder. `is_own`: an assistant's text.
    fn marks(&self, text: &str, is_own: bool) -> Vec<usize> {
        let mut marks = self.beginnings(text);
        if self.has_others || !marks.is_empty() {
            let hidden = Ranges::merged(found(&self.needles, text).collect());
            marks.retain(|&at| !hidden.contain(at));
            // Also within a string that the template looks for.
            marks.extend(found(&self.controls, text).map(|token| token.start));
        }
        marks.extend(found(&self.tails, text).map(|tail| tail.start));
        let start = text.len() - text.trim_start().len();
        for part in
            [0..text.len(), start..text.len(), 0..text.trim_end().len(), start..text.trim_end().len().max(start)]
        {
            if self.tail_beginnings.contains(&text[part.clone()]) {
                marks.push(part.start);
            }
        }
        if is_own && !marks.is_empty() {
            let kept = self.kept.iter().flat_map(|mark| text.match_indices(mark));
            let kept = Ranges::merged(kept.map(|(at, mark)| at..at + mark.len()).collect());
            marks.retain(|&at| !kept.contain(at));
        }
        marks.sort_unstable();
        marks.dedup();
        marks
    }

    /// The places where a control token starts, or might start if the template cut, turned or continued the text.
    fn beginnings(&self, text: &str) -> Vec<usize> {
        let end = text.trim_end().len();
        let begins = |&(at, c): &(usize, char)| {
            !self.sought.contains(&c) || {
                let behind = at + c.len_utf8();
                let next = text[behind..].chars().next();
                behind >= end || next.is_some_and(|next| self.symbols.contains(next) || self.pairs.contains(&(c, next)))
            }
        };
        self.symbols.within(text).filter(begins).map(|(at, _)| at).collect()
    }
}

impl Escapes {
    /// The characters that stand for the images of the conversation, in their order
    /// ([`RenderOptions::images`](super::RenderOptions::images)).
    pub fn images(&self) -> &[char] {
        &self.images
    }

    /// The prompt that a template made of a conversation with placeholders, and the bytes of it, in ascending order,
    /// that no control token may include.
    pub fn unescape(&self, rendered: &str) -> (String, Vec<usize>) {
        let (text, mut places) = self.restored(rendered);
        if !places.is_empty() {
            // Most of the places start no control token after all.
            let tokens = Ranges::merged(found(&self.escaper.controls, &text).collect());
            places.retain(|&at| tokens.contain(at));
        }
        (text, places)
    }

    /// A text of the conversation, with placeholders.
    pub fn escaped(&self, text: &str) -> String {
        self.replaced(text, &self.escaper.marks(text, false))
    }

    /// The text with placeholders for the characters at these places, in ascending order.
    fn replaced(&self, text: &str, places: &[usize]) -> String {
        let mut out = String::with_capacity(text.len() + 2 * places.len());
        let mut end = 0;
        for &at in places {
            let stand_in = text[at..].chars().next().and_then(|c| {
                let index = self.stand_ins.iter().position(|&(_, original)| original == c)?;
                Some((self.stand_ins[index].0, c.len_utf8()))
            });
            if let Some((stand_in, width)) = stand_in {
                out.push_str(&text[end..at]);
                out.push(stand_in);
                end = at + width;
            }
        }
        out.push_str(&text[end..]);
        out
    }

    /// The text with the characters themselves, and their places.
    fn restored(&self, text: &str) -> (String, Vec<usize>) {
        let mut places = Vec::new();
        if self.stand_ins.is_empty() {
            return (text.to_owned(), places);
        }
        let original = |c: char| self.stand_ins.iter().find(|(stand_in, _)| *stand_in == c).map(|&(_, c)| c);
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.bytes().position(may_be_private) {
            out.push_str(&rest[..at]);
            rest = &rest[at..];
            // A template may write a character as JSON and Python do.
            let (c, width) = match escaped(rest) {
                Some(c) => (Some(c), ESCAPE),
                None => (rest.chars().next(), rest.chars().next().map_or(0, char::len_utf8)),
            };
            match c.and_then(original) {
                Some(c) => {
                    places.push(out.len());
                    out.push(c);
                }
                None => out.push_str(&rest[..width]),
            }
            rest = &rest[width..];
        }
        out.push_str(rest);
        (out, places)
    }

    /// An error of a template, in the caller's characters.
    pub fn restore(&self, error: TemplateError) -> TemplateError {
        match error {
            TemplateError::Raised(message) => TemplateError::Raised(self.restored(&message).0),
            TemplateError::Render { line, message } => {
                TemplateError::Render { line, message: self.restored(&message).0 }
            }
            other => other,
        }
    }
}

/// Bytes of an escaped character: `\ue000`.
const ESCAPE: usize = 6;

/// The character that an escape at the start of a text stands for.
fn escaped(text: &str) -> Option<char> {
    let digits = text.get(..ESCAPE)?.strip_prefix("\\u")?;
    u32::from_str_radix(digits, 16).ok().and_then(char::from_u32)
}

/// The characters of the Private Use Area in a text, written as they are or as escapes.
fn private(text: &str) -> impl Iterator<Item = u32> + '_ {
    let text = &text[text.bytes().position(may_be_private).unwrap_or(text.len())..];
    let escapes = text.match_indices("\\u").filter_map(|(at, _)| escaped(&text[at..]));
    text.chars().chain(escapes).map(u32::from).filter(|c| PRIVATE.contains(c))
}

/// Whether a character of the Private Use Area, or its escape, may start with this byte.
fn may_be_private(byte: u8) -> bool {
    matches!(byte, b'\\' | 0xee | 0xef)
}

/// The beginnings of a text, without itself and the empty one.
fn proper_beginnings(text: &str) -> impl Iterator<Item = &str> {
    text.char_indices().skip(1).map(|(at, _)| &text[..at])
}

fn finder(texts: &[&str]) -> Result<Option<AhoCorasick>, TemplateError> {
    if texts.is_empty() {
        return Ok(None);
    }
    AhoCorasick::builder()
        .match_kind(MatchKind::Standard)
        .build(texts)
        .map(Some)
        .map_err(|error| TemplateError::Index(error.to_string()))
}

/// All places where one of the texts of a finder is, also within others.
fn found<'t>(finder: &'t Option<AhoCorasick>, text: &'t str) -> impl Iterator<Item = Range<usize>> + 't {
    finder.iter().flat_map(move |finder| finder.find_overlapping_iter(text)).map(|found| found.range())
}

/// Ranges in ascending order, of which none overlap.
struct Ranges(Vec<Range<usize>>);

impl Ranges {
    fn merged(mut ranges: Vec<Range<usize>>) -> Ranges {
        ranges.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<Range<usize>> = Vec::new();
        for range in ranges {
            match merged.last_mut().filter(|last| range.start < last.end) {
                Some(last) => last.end = last.end.max(range.end),
                None => merged.push(range),
            }
        }
        Ranges(merged)
    }

    fn contain(&self, at: usize) -> bool {
        let next = self.0.partition_point(|range| range.end <= at);
        self.0.get(next).is_some_and(|range| range.contains(&at))
    }
}

/// A text of a conversation.
struct Visited<'t> {
    text: &'t mut String,
    /// Whether an assistant said it.
    is_own: bool,
    /// The places of images.
    images: &'t [usize],
}

/// The parts of a text between its images. A place that is no start of a character counts as the last one before it.
fn segments<'t>(text: &'t str, images: &'t [usize]) -> impl Iterator<Item = &'t str> {
    let mut rest = 0;
    images.iter().copied().chain([text.len()]).map(move |at| {
        let end = text.floor_char_boundary(at).max(rest);
        let segment = &text[rest..end];
        rest = end;
        segment
    })
}

/// Calls `visit` with each text of a conversation. Roles are not texts.
fn each_text(chat: &mut Chat, visit: &mut impl FnMut(Visited)) {
    for message in &mut chat.messages {
        let is_own = message.role == Role::Assistant;
        visit(Visited { text: &mut message.text, is_own, images: &message.images });
        for text in [&mut message.name, &mut message.reasoning, &mut message.call_id].into_iter().flatten() {
            visit(plain(text));
        }
        for call in &mut message.calls {
            visit(plain(&mut call.id));
            visit(plain(&mut call.name));
            match &mut call.arguments {
                Arguments::Named(arguments) => each_in_map(arguments, visit),
                Arguments::Text(text) => visit(plain(text)),
            }
        }
    }
    for tool in &mut chat.tools {
        visit(plain(&mut tool.name));
        tool.description.iter_mut().for_each(|text| visit(plain(text)));
        tool.parameters.iter_mut().for_each(|json| each_in_json(json, visit));
    }
    each_in_map(&mut chat.variables, visit);
}

fn plain(text: &mut String) -> Visited<'_> {
    Visited { text, is_own: false, images: &[] }
}

fn each_in_json(json: &mut Json, visit: &mut impl FnMut(Visited)) {
    match json {
        Json::String(text) => visit(plain(text)),
        Json::Array(items) => items.iter_mut().for_each(|item| each_in_json(item, visit)),
        Json::Object(fields) => each_in_map(fields, visit),
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

fn each_in_map(fields: &mut Map<String, Json>, visit: &mut impl FnMut(Visited)) {
    for (mut name, mut value) in mem::take(fields) {
        visit(plain(&mut name));
        each_in_json(&mut value, visit);
        fields.insert(name, value);
    }
}
