//! Methods of strings.

use minijinja::{Error, Value};

use super::super::budget::Budget;
use super::super::outcome::{Outcome, invalid};
use super::args::{Args, integer, text_of};
use super::chars::{
    capitalized, folded, is_decimal, is_digit, is_identifier, is_letter, is_lower, is_numeric, is_printable, is_space,
    is_titled, is_upper, swapped, titled,
};
use super::format::pad;
use super::{Kind, entries, escape, format, text_like, tuple};

/// The methods that templates can call.
pub(super) const METHODS: &[&str] = &[
    "capitalize",
    "casefold",
    "center",
    "count",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "format_map",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "upper",
    "zfill",
];

fn lines(text: &str, keep_ends: bool) -> Vec<String> {
    let mut out = Vec::new();
    let mut line = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if !matches!(c, '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}') {
            line.push(c);
            continue;
        }
        let pair = (c == '\r').then(|| chars.next_if_eq(&'\n')).flatten();
        if keep_ends {
            line.extend([Some(c), pair].into_iter().flatten());
        }
        out.push(std::mem::take(&mut line));
    }
    if !line.is_empty() {
        out.push(line);
    }
    out
}

/// `text.splitlines()`, for filters.
pub(in super::super) fn split_lines(text: &str) -> Vec<String> {
    lines(text, false)
}

/// `text.replace(from, to, most)`.
pub(in super::super) fn replace(
    budget: &Budget,
    text: &str,
    from: &str,
    to: &str,
    most: usize,
) -> Result<String, Error> {
    budget.charge(text.len())?;
    let found = if from.is_empty() { text.chars().count() + 1 } else { text.matches(from).count() };
    budget.charge(found.min(most).saturating_mul(to.len()))?;
    Ok(text.replacen(from, to, most))
}

/// The texts between separators.
fn split(text: &str, separator: &str, most: Option<usize>, from_right: bool) -> Result<Vec<String>, Error> {
    if separator.is_empty() {
        return Err(invalid("a separator is empty"));
    }
    let parts = most.map_or(usize::MAX, |most| most.saturating_add(1));
    let mut parts: Vec<String> = match from_right {
        false => text.splitn(parts, separator).map(str::to_owned).collect(),
        true => text.rsplitn(parts, separator).map(str::to_owned).collect(),
    };
    if from_right {
        parts.reverse();
    }
    Ok(parts)
}

/// The words of a text. What is left after `most` of them keeps the whitespace at its far end.
fn words(text: &str, most: Option<usize>, from_right: bool) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    let mut rest = text;
    loop {
        rest = if from_right { rest.trim_end_matches(is_space) } else { rest.trim_start_matches(is_space) };
        if rest.is_empty() {
            break;
        }
        let cut = if from_right { rest.rsplit_once(is_space) } else { rest.split_once(is_space) };
        match cut.filter(|_| most.is_none_or(|most| parts.len() < most)) {
            Some((others, word)) if from_right => {
                parts.push(word.to_owned());
                rest = others;
            }
            Some((word, others)) => {
                parts.push(word.to_owned());
                rest = others;
            }
            None => {
                parts.push(rest.to_owned());
                break;
            }
        }
    }
    if from_right {
        parts.reverse();
    }
    parts
}

/// The part of a text between two indices of characters, and where it starts; `None` if it starts behind the end.
fn part<'t>(text: &'t str, start: Option<&Value>, stop: Option<&Value>) -> Result<Option<(&'t str, usize)>, Error> {
    let bound = |bound: Option<&Value>| bound.filter(|bound| !bound.is_none()).map(integer).transpose();
    let (start, stop) = (bound(start)?, bound(stop)?);
    if start.is_none() && stop.is_none() {
        return Ok(Some((text, 0)));
    }
    let len = text.chars().count() as i64;
    let place = |index: i64| if index < 0 { index.saturating_add(len).max(0) } else { index };
    let (start, stop) = (start.map_or(0, place), stop.map_or(len, place).min(len));
    if start > len || start > stop {
        return Ok(None);
    }
    let byte = |index: i64| text.char_indices().nth(index as usize).map_or(text.len(), |(at, _)| at);
    Ok(Some((&text[byte(start)..byte(stop)], start as usize)))
}

fn find(text: &str, args: Args, from_right: bool) -> Result<Option<usize>, Error> {
    let [what, start, stop] = args.unnamed(1)?;
    let what = what.unwrap_or_default();
    let what = text_of(&what)?;
    let Some((within, offset)) = part(text, start.as_ref(), stop.as_ref())? else { return Ok(None) };
    let at = if from_right { within.rfind(what) } else { within.find(what) };
    Ok(at.map(|at| within[..at].chars().count() + offset))
}

/// Whether a text starts or ends with one of these.
fn affixed(text: &str, args: Args, is_affix: impl Fn(&str, &str) -> bool) -> Outcome {
    let [affix, start, stop] = args.unnamed(1)?;
    let affix = affix.unwrap_or_default();
    let all = match Kind::of(&affix) {
        Kind::Tuple => affix.try_iter()?.collect(),
        _ => vec![affix],
    };
    let within = part(text, start.as_ref(), stop.as_ref())?;
    for affix in &all {
        let affix = text_of(affix)?;
        if within.is_some_and(|(within, _)| is_affix(within, affix)) {
            return Ok(Value::from(true));
        }
    }
    Ok(Value::from(false))
}

fn expand_tabs(budget: &Budget, text: &str, size: i64) -> Result<String, Error> {
    let size = usize::try_from(size).unwrap_or(0);
    budget.charge(text.matches('\t').count().saturating_mul(size))?;
    let mut out = String::new();
    let mut column = 0;
    for c in text.chars() {
        match c {
            '\t' if size > 0 => {
                let count = size - column % size;
                out.push_str(&" ".repeat(count));
                column += count;
            }
            '\t' => {}
            c => {
                column = if matches!(c, '\n' | '\r') { 0 } else { column + 1 };
                out.push(c);
            }
        }
    }
    Ok(out)
}

/// The width and the character to fill with.
fn filling(args: Args) -> Result<(usize, char), Error> {
    let [width, fill] = args.unnamed(1)?;
    let width = usize::try_from(integer(&width.unwrap_or_default())?).unwrap_or(0);
    let fill = fill.unwrap_or_else(|| Value::from(" "));
    let mut chars = text_of(&fill)?.chars();
    match (chars.next(), chars.next()) {
        (Some(fill), None) => Ok((width, fill)),
        _ => Err(invalid("the text to fill with must be one character")),
    }
}

/// `text.center(width, fill)`.
pub(in super::super) fn centred(budget: &Budget, text: &str, width: usize, fill: char) -> Result<String, Error> {
    let missing = width.saturating_sub(text.chars().count());
    let left = missing / 2 + (missing & width & 1);
    let half = pad(budget, text, width - missing + left, fill, '>')?;
    pad(budget, &half, width.max(half.chars().count()), fill, '<')
}

/// `text.join(values)`.
fn join(budget: &Budget, separator: &Value, values: &Value) -> Outcome {
    let mut out = String::new();
    let between = separator.as_str().unwrap_or_default();
    for (index, value) in entries(budget, values)?.iter().enumerate() {
        let text = text_of(value)?;
        budget.charge(text.len() + between.len())?;
        if index > 0 {
            out.push_str(between);
        }
        if separator.is_safe() && !value.is_safe() {
            out.push_str(&escape(budget, text)?);
        } else {
            out.push_str(text);
        }
    }
    Ok(text_like(separator, out))
}

/// Calls a method, which is one of [`METHODS`].
pub(super) fn method(budget: &Budget, value: &Value, name: &str, args: Args) -> Outcome {
    let text = value.as_str().unwrap_or_default();
    if name.starts_with("is") {
        // Looking up what a character is takes longer than copying it.
        budget.charge(text.len().saturating_mul(4))?;
    }
    let like = |text: String| Ok(text_like(value, text));
    let list = |texts: Vec<String>| -> Outcome {
        budget.charge_entries(texts.len())?;
        Ok(Value::from(texts.into_iter().map(|text| text_like(value, text)).collect::<Vec<_>>()))
    };
    let is = |args: Args, answer: bool| args.unnamed::<0>(0).map(|_| Value::from(answer));
    let all = |is_it: fn(char) -> bool| !text.is_empty() && text.chars().all(is_it);
    match name {
        "capitalize" | "casefold" | "lower" | "swapcase" | "title" | "upper" => {
            let [] = args.unnamed(0)?;
            like(match name {
                "capitalize" => capitalized(text),
                "casefold" => folded(text),
                "lower" => text.to_lowercase(),
                "swapcase" => swapped(text),
                "title" => titled(text),
                _ => text.to_uppercase(),
            })
        }
        "isalnum" => is(args, all(|c| is_letter(c) || is_numeric(c))),
        "isalpha" => is(args, all(is_letter)),
        "isascii" => is(args, text.is_ascii()),
        "isdecimal" => is(args, all(is_decimal)),
        "isdigit" => is(args, all(is_digit)),
        "isidentifier" => is(args, is_identifier(text)),
        "islower" => is(args, is_lower(text)),
        "isnumeric" => is(args, all(is_numeric)),
        "isprintable" => is(args, text.chars().all(is_printable)),
        "isspace" => is(args, all(is_space)),
        "istitle" => is(args, is_titled(text)),
        "isupper" => is(args, is_upper(text)),
        "center" => {
            let (width, fill) = filling(args)?;
            like(centred(budget, text, width, fill)?)
        }
        "ljust" | "rjust" => {
            let (width, fill) = filling(args)?;
            like(pad(budget, text, width, fill, if name == "ljust" { '<' } else { '>' })?)
        }
        "zfill" => {
            let [width] = args.unnamed(1)?;
            let width = usize::try_from(integer(&width.unwrap_or_default())?).unwrap_or(0);
            let (sign, digits) = text.split_at(usize::from(text.starts_with(['+', '-'])));
            like(sign.to_owned() + &pad(budget, digits, width.saturating_sub(sign.len()), '0', '>')?)
        }
        "expandtabs" => {
            let [size] = args.bind(["tabsize"], 0)?;
            like(expand_tabs(budget, text, size.as_ref().map_or(Ok(8), integer)?)?)
        }
        "strip" | "lstrip" | "rstrip" => {
            let [chars] = args.unnamed(0)?;
            let chars = chars.filter(|chars| !chars.is_none());
            let set = chars.as_ref().map(text_of).transpose()?;
            budget.charge(text.len().saturating_mul(set.map_or(1, str::len)))?;
            let removed = |c: char| set.map_or_else(|| is_space(c), |set| set.contains(c));
            let text = if name == "rstrip" { text } else { text.trim_start_matches(removed) };
            like(if name == "lstrip" { text } else { text.trim_end_matches(removed) }.to_owned())
        }
        "removeprefix" | "removesuffix" => {
            let [affix] = args.unnamed(1)?;
            let affix = affix.unwrap_or_default();
            let affix = text_of(&affix)?;
            let cut = if name == "removeprefix" { text.strip_prefix(affix) } else { text.strip_suffix(affix) };
            like(cut.unwrap_or(text).to_owned())
        }
        "startswith" => affixed(text, args, |text, affix| text.starts_with(affix)),
        "endswith" => affixed(text, args, |text, affix| text.ends_with(affix)),
        "find" | "rfind" => Ok(find(text, args, name == "rfind")?.map_or(Value::from(-1), Value::from)),
        "index" | "rindex" => {
            let at = find(text, args, name == "rindex")?;
            at.map(Value::from).ok_or_else(|| invalid(format!("{name}: the text is not found")))
        }
        "count" => {
            let [what, start, stop] = args.unnamed(1)?;
            let what = what.unwrap_or_default();
            let what = text_of(&what)?;
            let within = part(text, start.as_ref(), stop.as_ref())?;
            Ok(Value::from(within.map_or(0, |(within, _)| match what {
                "" => within.chars().count() + 1,
                what => within.matches(what).count(),
            })))
        }
        "replace" => {
            let [from, to, most] = args.unnamed(2)?;
            let (from, to) = (from.unwrap_or_default(), to.unwrap_or_default());
            let most = usize::try_from(most.as_ref().map_or(Ok(-1), integer)?).unwrap_or(usize::MAX);
            let to_text = text_of(&to)?;
            let escaped = if value.is_safe() && !to.is_safe() { escape(budget, to_text)? } else { to_text.to_owned() };
            like(replace(budget, text, text_of(&from)?, &escaped, most)?)
        }
        "split" | "rsplit" => {
            let [separator, most] = args.bind(["sep", "maxsplit"], 0)?;
            let most = usize::try_from(most.as_ref().map_or(Ok(-1), integer)?).ok();
            match separator.filter(|separator| !separator.is_none()) {
                Some(separator) => list(split(text, text_of(&separator)?, most, name == "rsplit")?),
                None => list(words(text, most, name == "rsplit")),
            }
        }
        "splitlines" => {
            let [keep] = args.bind(["keepends"], 0)?;
            list(lines(text, keep.is_some_and(|keep| keep.is_true())))
        }
        "partition" | "rpartition" => {
            let [separator] = args.unnamed(1)?;
            let separator = separator.unwrap_or_default();
            let separator = text_of(&separator)?;
            if separator.is_empty() {
                return Err(invalid("a separator is empty"));
            }
            let is_first = name == "partition";
            let cut = if is_first { text.split_once(separator) } else { text.rsplit_once(separator) };
            let parts = match (cut, is_first) {
                (Some((left, right)), _) => [left, separator, right],
                (None, true) => [text, "", ""],
                (None, false) => ["", "", text],
            };
            Ok(tuple(parts.into_iter().map(|part| text_like(value, part.to_owned())).collect()))
        }
        "join" => {
            let [values] = args.unnamed(1)?;
            join(budget, value, &values.unwrap_or_default())
        }
        _ if value.is_safe() => Err(invalid(format!("{name} of a safe text is not supported"))),
        "format_map" => {
            let [mapping] = args.unnamed(1)?;
            let mapping = mapping.unwrap_or_default();
            if Kind::of(&mapping) != Kind::Dict {
                return Err(invalid("format_map needs a mapping"));
            }
            let mut named = Vec::new();
            for key in entries(budget, &mapping)? {
                if let Some(name) = key.as_str() {
                    named.push((name.to_owned(), mapping.get_item(&key)?));
                }
            }
            format::format(budget, text, &Args { positional: Vec::new(), named }).map(Value::from)
        }
        _ => format::format(budget, text, &args).map(Value::from),
    }
}
