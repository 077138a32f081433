//! A tokenizer: its model, its added tokens, and how it encodes and decodes.

use std::borrow::Cow;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::bpe::ByteLevel;
use super::error::TokenizerError;
use super::fewest::Fewest;
use super::merge::Merger;
use super::special::{Exception, Fragment, Matcher, TokenFlags};
use super::spm::{Scored, byte_token};
use super::vocabulary::{TokenType, Vocabulary};

/// How [`Tokenizer::encode`] treats special tokens. By default both are off, as for plain text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EncodeOptions {
    /// Adds the beginning-of-sequence and end-of-sequence tokens that the vocabulary requests, unless the text itself
    /// starts or ends with them. Not for the output of a chat template, which has them already.
    pub add_special: bool,
    /// Recognises control tokens written in the text, such as `<|im_start|>`. Needed for the output of a chat template;
    /// never set it for text that is not trusted. User-defined tokens are always recognised.
    pub parse_special: bool,
}

impl EncodeOptions {
    /// Both on: a raw prompt, which is continued without a chat template.
    pub const RAW: EncodeOptions = EncodeOptions { add_special: true, parse_special: true };
}

#[derive(Debug)]
enum Model {
    ByteLevel(ByteLevel),
    Scored(Scored),
}

impl Model {
    /// Whether this byte of a text always becomes a token or a part of one.
    fn keeps(&self, byte: u8) -> bool {
        match self {
            Model::ByteLevel(model) => model.keeps(byte),
            Model::Scored(model) => model.keeps(byte),
        }
    }

    /// Whether a token has other bytes in a normal form, apart from a space before it.
    fn rewrites(&self, token: &str) -> bool {
        match self {
            Model::ByteLevel(model) => model.normal(token) != token,
            Model::Scored(_) => token.contains(' ') || token.contains(super::spm::SPACE),
        }
    }

    /// The text in the form that is cut into words or symbols.
    fn normal<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match self {
            Model::ByteLevel(model) => model.normal(text),
            Model::Scored(model) => model.normal(text).into(),
        }
    }

    /// The normal form, and which bytes of it no control token may include, where `barred` are those of the text.
    fn normal_with_barred<'t>(&self, text: &'t str, barred: &[usize]) -> (Cow<'t, str>, Vec<usize>) {
        match self {
            Model::ByteLevel(model) => model.normal_with_barred(text, barred),
            Model::Scored(model) => {
                let (normal, barred) = model.normal_with_barred(text, barred);
                (normal.into(), barred)
            }
        }
    }

    /// Appends the ids of a text in its normal form; may end with more than `most`.
    fn encode(&self, text: &str, merger: &mut Merger, ids: &mut Vec<u32>, most: usize) -> Result<(), TokenizerError> {
        match self {
            Model::ByteLevel(model) => model.encode(text, merger, ids, most),
            Model::Scored(model) => model.encode(text, merger, ids)?,
        }
        Ok(())
    }

    /// Appends the bytes that a token stands for; for special tokens, their name.
    fn decode(&self, token: &str, kind: TokenType, out: &mut Vec<u8>) {
        let plain = matches!(kind, TokenType::Normal | TokenType::Unused);
        match self {
            Model::ByteLevel(_) if plain => match super::bpe::decode(token) {
                Some(decoded) => out.extend(decoded),
                None => out.extend(token.as_bytes()),
            },
            Model::Scored(_) if kind == TokenType::Byte => out.extend(byte_token(token)),
            Model::Scored(_) if !kind.is_special() => out.extend(token.replace(super::spm::SPACE, " ").bytes()),
            _ => out.extend(token.as_bytes()),
        }
    }
}

/// The added tokens that are recognised in a text.
#[derive(Debug)]
struct Added {
    /// Those that are recognised in the text itself.
    written: Matcher,
    /// Those that are then recognised in the normal form of each fragment.
    normal: Matcher,
}

/// A tokenizer, ready for use from several threads.
#[derive(Debug)]
pub struct Tokenizer {
    model: Model,
    tokens: Vec<String>,
    types: Vec<TokenType>,
    /// The bytes of all tokens one after another; token `i` has `offsets[i]..offsets[i + 1]`.
    bytes: Vec<u8>,
    offsets: Vec<usize>,
    fewest: Fewest,
    /// The user-defined tokens.
    defined: Added,
    /// The user-defined and special tokens.
    special: Added,
    bos: Option<u32>,
    eos: Option<u32>,
    padding: Option<u32>,
    /// Sorted.
    end_of_generation: Vec<u32>,
    add_bos: bool,
    add_eos: bool,
    /// Byte-level BPE whose pre-tokenizer the vocabulary does not name.
    lacks_pre: bool,
}

impl Tokenizer {
    /// The longest text that can be encoded at once: positions are 32-bit, and a space may become three bytes.
    pub const MAX_TEXT: usize = (u32::MAX / 3 - 1) as usize;

    /// Checks a vocabulary and builds its tokenizer.
    ///
    /// # Errors
    /// A [`TokenizerError`] that names the metadata key: an unknown model, pre-tokenizer or token type, tables of
    /// different lengths, ids outside the vocabulary, merges of missing tokens, scores that are not numbers.
    pub fn new(vocabulary: Vocabulary) -> Result<Self, TokenizerError> {
        let family = vocabulary.family()?;
        vocabulary.check()?;
        let types = vocabulary.token_types()?;
        let model = match family {
            Some(family) => Model::ByteLevel(ByteLevel::new(&vocabulary, &types, family)?),
            None => Model::Scored(Scored::new(&vocabulary, &types)?),
        };
        let mut bytes = Vec::new();
        let mut offsets = vec![0];
        for (token, &kind) in vocabulary.tokens.iter().zip(&types) {
            model.decode(token, kind, &mut bytes);
            offsets.push(bytes.len());
        }
        let flags = |id: u32| {
            let flags = vocabulary.flags.get(&id).copied().unwrap_or_default();
            // `Escaper` looks for control tokens in the text itself.
            let is_hidden = types[id as usize].is_special() && model.rewrites(&vocabulary.tokens[id as usize]);
            TokenFlags { normalized: flags.normalized && !is_hidden, ..flags }
        };
        let added = |is_wanted: fn(TokenType) -> bool| {
            let tokens = || (0..).zip(&vocabulary.tokens).zip(&types).filter(move |&(_, &kind)| is_wanted(kind));
            let tokens = || tokens().map(|((id, token), _)| (token.as_str(), id, flags(id)));
            let written = tokens().filter(|(.., flags)| !flags.normalized);
            let normal = tokens().filter(|(.., flags)| flags.normalized);
            let normal = normal.map(|(token, id, flags)| (model.normal(token), id, flags));
            let both = Matcher::new(written).and_then(|written| Ok(Added { written, normal: Matcher::new(normal)? }));
            both.map_err(|error| TokenizerError::BadEntry {
                key: "tokens",
                index: 0,
                problem: format!("begins a table whose special tokens cannot be indexed: {error}"),
            })
        };
        let special = added(|kind| kind == TokenType::UserDefined || kind.is_special())?;
        let normalised = (0..).zip(&vocabulary.tokens).filter(|&(id, _)| flags(id).normalized);
        let normalised: Vec<_> = normalised.map(|(_, token)| model.normal(token)).collect();
        let normalised = normalised.iter().map(|token| token.as_bytes());
        let fewest = match &model {
            Model::ByteLevel(_) => {
                let written = offsets.windows(2).map(|of| &bytes[of[0]..of[1]]);
                Fewest::new(written.chain(normalised), |b| model.keeps(b))
            }
            // Texts are matched with their spaces as the vocabulary writes them.
            Model::Scored(_) => {
                let written = vocabulary.tokens.iter().map(String::as_bytes);
                Fewest::new(written.chain(normalised), |b| model.keeps(b)).with_substitute(b' ', super::spm::SPACE)
            }
        };
        let strips = special.written.strips() || special.normal.strips();
        let default_bos = family.is_none_or(|family| family.add_bos) && vocabulary.bos.is_some();
        Ok(Self {
            defined: added(|kind| kind == TokenType::UserDefined)?,
            special,
            end_of_generation: vocabulary.ends(&types),
            add_bos: vocabulary.add_bos.unwrap_or(default_bos),
            add_eos: vocabulary.add_eos.unwrap_or(false),
            lacks_pre: family.is_some() && vocabulary.pre.is_none(),
            bos: vocabulary.bos,
            eos: vocabulary.eos,
            padding: vocabulary.padding,
            tokens: vocabulary.tokens,
            fewest: fewest.with_free_spaces(strips),
            model,
            types,
            bytes,
            offsets,
        })
    }

    /// The number of tokens.
    pub fn vocab_size(&self) -> usize {
        self.tokens.len()
    }

    /// The token that starts a sequence.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The token that ends a sequence.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// The token that fills a batch.
    pub fn padding(&self) -> Option<u32> {
        self.padding
    }

    /// Whether `add_special` puts [`Self::bos`] before a text.
    pub fn adds_bos(&self) -> bool {
        self.add_bos
    }

    /// Whether the vocabulary does not name the pre-tokenizer of its byte-level BPE: `default` is in for it.
    pub fn lacks_pre_tokenizer(&self) -> bool {
        self.lacks_pre
    }

    /// Whether a generation ends with this token.
    pub fn is_end_of_generation(&self, id: u32) -> bool {
        self.end_of_generation.binary_search(&id).is_ok()
    }

    /// The tokens that end a generation, in ascending order.
    pub fn end_of_generation(&self) -> &[u32] {
        &self.end_of_generation
    }

    /// The texts of control tokens and of the unknown token.
    pub fn control_tokens(&self) -> impl Iterator<Item = &str> {
        self.tokens.iter().zip(&self.types).filter(|(_, kind)| kind.is_special()).map(|(token, _)| token.as_str())
    }

    /// Whether this is a control token or the unknown token, which mark up a text and are not a part of it.
    pub fn is_special(&self, id: u32) -> bool {
        self.types.get(id as usize).is_some_and(|kind| kind.is_special())
    }

    /// The token as the vocabulary writes it, such as `Ġthe` or `▁the` for " the".
    ///
    /// # Errors
    /// [`TokenizerError::IdOutOfRange`].
    pub fn token_text(&self, id: u32) -> Result<&str, TokenizerError> {
        self.tokens.get(id as usize).map(String::as_str).ok_or_else(|| self.out_of_range(id))
    }

    /// The bytes that a token stands for; they need not be whole UTF-8 characters. For special tokens, their name.
    ///
    /// # Errors
    /// [`TokenizerError::IdOutOfRange`].
    pub fn token_bytes(&self, id: u32) -> Result<&[u8], TokenizerError> {
        let range = self.offsets.get(id as usize).zip(self.offsets.get(id as usize + 1));
        range.and_then(|(&start, &end)| self.bytes.get(start..end)).ok_or_else(|| self.out_of_range(id))
    }

    /// The tokens that stand for exactly these bytes, in ascending order: mostly one or none. Spaces count: ` the` and
    /// `the` are different tokens. A special token stands for its name.
    pub fn tokens_of_bytes(&self, bytes: &[u8]) -> impl Iterator<Item = u32> {
        let of = |pair: &[usize]| self.bytes.get(pair[0]..pair[1]);
        (0..).zip(self.offsets.windows(2)).filter(move |(_, pair)| of(pair) == Some(bytes)).map(|(id, _)| id)
    }

    /// Turns a text into token ids. Time and memory grow linearly with the text, but for a logarithmic factor in its
    /// longest word.
    ///
    /// # Errors
    /// [`TokenizerError::TextTooLong`], or [`TokenizerError::NoToken`] if a `llama` vocabulary has neither a token
    /// nor bytes for a character and no unknown token.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<u32>, TokenizerError> {
        self.encode_at_most(text, options, usize::MAX)
    }

    /// Encodes as [`encode`](Self::encode) does, for a text that may have `most` tokens. A text that cannot have so few
    /// is refused in the time that reading it takes; otherwise encoding ends with the word that exceeds `most`.
    ///
    /// # Errors
    /// The errors of [`encode`](Self::encode), and [`TokenizerError::TooManyTokens`].
    pub fn encode_at_most(&self, text: &str, options: EncodeOptions, most: usize) -> Result<Vec<u32>, TokenizerError> {
        self.encode_parts(text, None, options, most)
    }

    /// Encodes the prompt of a conversation: its control tokens are recognised, except where they would include one of
    /// the bytes in `plain`, which are in ascending order ([`Escaper`](crate::template::Escaper)). Nothing is added.
    ///
    /// # Errors
    /// The errors of [`encode_at_most`](Self::encode_at_most).
    pub fn encode_rendered(&self, text: &str, plain: &[usize], most: usize) -> Result<Vec<u32>, TokenizerError> {
        let options = EncodeOptions { add_special: false, parse_special: true };
        self.encode_parts(text, Some(plain), options, most)
    }

    /// `plain`: the bytes that no control token includes, if the text is a rendered prompt.
    fn encode_parts(
        &self,
        text: &str,
        plain: Option<&[usize]>,
        options: EncodeOptions,
        most: usize,
    ) -> Result<Vec<u32>, TokenizerError> {
        if text.len() > Self::MAX_TEXT {
            return Err(TokenizerError::TextTooLong { len: text.len(), max: Self::MAX_TEXT });
        }
        let check = |at_least: usize| match at_least > most {
            true => Err(TokenizerError::TooManyTokens { at_least, most }),
            false => Ok(()),
        };
        check(self.fewest_tokens(text))?;
        let (bos, eos) = (self.bos.filter(|_| self.add_bos), self.eos.filter(|_| self.add_eos));
        let mut ids = Vec::new();
        let mut merger = Merger::default();
        if options.add_special {
            ids.extend(bos);
        }
        let added = if options.parse_special { &self.special } else { &self.defined };
        let exception = Exception { plain: plain.unwrap_or_default(), defined: &self.defined.written };
        added.written.split(text, exception, |fragment| {
            match fragment {
                Fragment::Token(id) => ids.push(id),
                Fragment::Text(place) => {
                    let within = plain.map(|plain| within(plain, &place));
                    self.encode_fragment(&text[place], within.as_deref(), added, &mut merger, &mut ids, most)?;
                }
            }
            check(ids.len())
        })?;
        if options.add_special {
            // The text may start with BOS and end with EOS itself.
            let own = &ids[usize::from(bos.is_some())..];
            let (begins, ends) = (bos.is_some() && own.first() == bos.as_ref(), own.last() == eos.as_ref());
            if begins {
                ids.remove(0);
            }
            ids.extend(eos.filter(|_| !ends));
        }
        check(ids.len()).map(|()| ids)
    }

    /// Encodes a text without tokens of [`Added::written`]. `plain`: see [`encode_parts`](Self::encode_parts).
    fn encode_fragment(
        &self,
        fragment: &str,
        plain: Option<&[usize]>,
        added: &Added,
        merger: &mut Merger,
        ids: &mut Vec<u32>,
        most: usize,
    ) -> Result<(), TokenizerError> {
        if added.normal.is_empty() {
            return self.model.encode(&self.model.normal(fragment), merger, ids, most);
        }
        let (normal, barred) = match plain {
            None => (self.model.normal(fragment), Vec::new()),
            Some(plain) => self.model.normal_with_barred(fragment, plain),
        };
        added.normal.split(&normal, Exception { plain: &barred, defined: &self.defined.normal }, |part| match part {
            Fragment::Token(id) => {
                ids.push(id);
                Ok(())
            }
            Fragment::Text(place) => self.model.encode(&normal[place], merger, ids, most),
        })
    }

    /// A number of tokens that no encoding of the text falls below, in the time that reading it takes.
    pub fn fewest_tokens(&self, text: &str) -> usize {
        let fewest = self.fewest.tokens(text);
        // Normal form C makes at most three bytes one (Hangul syllables).
        let may_shrink = matches!(&self.model, Model::ByteLevel(model) if model.normalises()) && !text.is_ascii();
        if may_shrink { fewest / 3 } else { fewest }
    }

    /// Turns token ids into a text. With `skip_special`, control tokens and the unknown token give nothing. Bytes that
    /// are not UTF-8 become U+FFFD, as in [`String::from_utf8_lossy`].
    ///
    /// # Errors
    /// [`TokenizerError::IdOutOfRange`].
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, TokenizerError> {
        let mut bytes = Vec::new();
        for &id in ids {
            let token = self.token_bytes(id)?;
            if !(skip_special && self.is_special(id)) {
                bytes.extend_from_slice(token);
            }
        }
        let first_space = self.drops_first_space() && bytes.starts_with(b" ");
        Ok(String::from_utf8_lossy(&bytes[usize::from(first_space)..]).into_owned())
    }

    /// Whether a space at the start of a text was added by the tokenizer.
    pub(super) fn drops_first_space(&self) -> bool {
        matches!(&self.model, Model::Scored(model) if model.add_space_prefix())
    }

    fn out_of_range(&self, id: u32) -> TokenizerError {
        TokenizerError::IdOutOfRange { id, vocab_size: self.tokens.len() }
    }
}

/// Those of the bytes, in ascending order, that are at a place, counted from its start.
fn within(bytes: &[usize], place: &Range<usize>) -> Vec<usize> {
    let first = bytes.partition_point(|&byte| byte < place.start);
    bytes[first..].iter().take_while(|&&byte| byte < place.end).map(|byte| byte - place.start).collect()
}
