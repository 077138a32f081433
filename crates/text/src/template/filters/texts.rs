//! Filters of texts.

use minijinja::{Error, Value};

use super::super::outcome::{Outcome, invalid};
use super::super::print::{self, Json};
use super::super::python::{
    self, Args, Kind, add, capitalized, centred, entries, integer, is_word, length, percent, slice as python_slice,
    split_lines, text_like, text_of, tuple,
};
use super::table::{Context, soft_text};

/// A filter without arguments that changes a text.
fn changed(cx: &Context, value: &Value, args: Args, change: impl Fn(&str) -> String) -> Outcome {
    let [] = args.bind([], 0)?;
    Ok(text_like(value, change(&soft_text(cx, value)?)))
}

pub(super) fn capitalize(cx: &Context, value: Value, args: Args) -> Outcome {
    changed(cx, &value, args, capitalized)
}

pub(super) fn lower(cx: &Context, value: Value, args: Args) -> Outcome {
    changed(cx, &value, args, str::to_lowercase)
}

pub(super) fn upper(cx: &Context, value: Value, args: Args) -> Outcome {
    changed(cx, &value, args, str::to_uppercase)
}

/// Words start only after blanks, dashes and opening brackets.
pub(super) fn title(cx: &Context, value: Value, args: Args) -> Outcome {
    let [] = args.bind([], 0)?;
    let text = soft_text(cx, &value)?;
    let is_before = |c: char| python::is_space(c) || "-({[<".contains(c);
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(first) = rest.chars().next() {
        let delimits = is_before(first);
        let end = rest.find(|c| is_before(c) != delimits).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        out.extend(first.to_uppercase());
        out.push_str(&word[first.len_utf8()..].to_lowercase());
        rest = after;
    }
    Ok(Value::from(out))
}

pub(super) fn center(cx: &Context, value: Value, args: Args) -> Outcome {
    let [width] = args.bind(["width"], 0)?;
    let width = usize::try_from(width.as_ref().map_or(Ok(80), integer)?).unwrap_or(0);
    Ok(text_like(&value, centred(cx.budget, &soft_text(cx, &value)?, width, ' ')?))
}

pub(super) fn trim(cx: &Context, value: Value, args: Args) -> Outcome {
    let [chars] = args.bind(["chars"], 0)?;
    let chars = chars.unwrap_or_else(|| Value::from(()));
    let text = text_like(&value, soft_text(cx, &value)?);
    python::call_method(cx.budget, &text, "strip", &[chars])
}

pub(super) fn string(cx: &Context, value: Value, args: Args) -> Outcome {
    changed(cx, &value, args, str::to_owned)
}

pub(super) fn safe(cx: &Context, value: Value, args: Args) -> Outcome {
    let [] = args.bind([], 0)?;
    Ok(Value::from_safe_string(soft_text(cx, &value)?))
}

pub(super) fn escape(cx: &Context, value: Value, args: Args) -> Outcome {
    if value.is_safe() { args.bind([], 0).map(|[]| value) } else { forceescape(cx, value, args) }
}

pub(super) fn forceescape(cx: &Context, value: Value, args: Args) -> Outcome {
    let [] = args.bind([], 0)?;
    Ok(Value::from_safe_string(python::escape(cx.budget, &soft_text(cx, &value)?)?))
}

pub(super) fn replace(cx: &Context, value: Value, args: Args) -> Outcome {
    let [from, to, most] = args.bind(["old", "new", "count"], 2)?;
    let most = most.filter(|most| !most.is_none());
    let most = usize::try_from(most.as_ref().map_or(Ok(-1), integer)?).unwrap_or(usize::MAX);
    let text = |value: Option<Value>| soft_text(cx, &value.unwrap_or_default());
    python::replace(cx.budget, &soft_text(cx, &value)?, &text(from)?, &text(to)?, most).map(Value::from)
}

pub(super) fn indent(cx: &Context, value: Value, args: Args) -> Outcome {
    let [width, first, blank] = args.bind(["width", "first", "blank"], 0)?;
    let is_set = |flag: Option<Value>| flag.is_some_and(|flag| flag.is_true());
    let (first, blank) = (is_set(first), is_set(blank));
    let text = text_of(&value)?;
    let lines = split_lines(&format!("{text}\n"));
    let margin = match width {
        Some(width) if width.as_str().is_some() => soft_text(cx, &width)?,
        width => {
            let width = usize::try_from(width.as_ref().map_or(Ok(4), integer)?).unwrap_or(0);
            cx.budget.charge(width)?;
            " ".repeat(width)
        }
    };
    cx.budget.charge((lines.len() + 1).saturating_mul(margin.len() + 1).saturating_add(text.len()))?;
    let mut out = String::new();
    for (index, line) in lines.iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        if if index == 0 { first } else { blank || !line.is_empty() } {
            out.push_str(&margin);
        }
        out.push_str(line);
    }
    Ok(text_like(&value, out))
}

pub(super) fn truncate(cx: &Context, value: Value, args: Args) -> Outcome {
    let [most, killwords, end, leeway] = args.bind(["length", "killwords", "end", "leeway"], 0)?;
    let most = most.as_ref().map_or(Ok(255), integer)?;
    let end = end.unwrap_or_else(|| Value::from("..."));
    let end_length = length(cx.budget, &end)? as i64;
    let leeway = leeway.filter(|leeway| !leeway.is_none()).as_ref().map_or(Ok(5), integer)?;
    if most < end_length || leeway < 0 {
        return Err(invalid("truncate: the length or leeway is too small"));
    }
    if length(cx.budget, &value)? as i64 <= most.saturating_add(leeway) {
        return Ok(value);
    }
    let none = Value::from(());
    let kept = python_slice(cx.budget, &value, &none, &Value::from(most - end_length), &none)?;
    if killwords.is_some_and(|killwords| killwords.is_true()) {
        return add(cx.budget, &kept, &end);
    }
    let text = text_of(&kept)?;
    let words = text.rsplit_once(' ').map_or(text, |(words, _)| words);
    add(cx.budget, &text_like(&kept, words.to_owned()), &end)
}

pub(super) fn wordcount(cx: &Context, value: Value, args: Args) -> Outcome {
    let [] = args.bind([], 0)?;
    let text = soft_text(cx, &value)?;
    Ok(Value::from(text.split(|c| !is_word(c)).filter(|word| !word.is_empty()).count()))
}

pub(super) fn format(cx: &Context, value: Value, args: Args) -> Outcome {
    if !args.positional.is_empty() && !args.named.is_empty() {
        return Err(invalid("format takes arguments by position or by name"));
    }
    let arguments = match args.named.is_empty() {
        true => tuple(args.positional),
        false => args.named.into_iter().collect(),
    };
    percent(cx.budget, &text_like(&value, soft_text(cx, &value)?), &arguments)
}

fn quoted(cx: &Context, value: &Value, is_query: bool) -> Result<String, Error> {
    let text = soft_text(cx, value)?;
    cx.budget.charge(text.len().saturating_mul(3))?;
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b'-' | b'~' => out.push(char::from(byte)),
            b'/' if !is_query => out.push('/'),
            b' ' if is_query => out.push('+'),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    Ok(out)
}

pub(super) fn urlencode(cx: &Context, value: Value, args: Args) -> Outcome {
    let [] = args.bind([], 0)?;
    let pairs: Vec<(Value, Value)> = match Kind::of(&value) {
        Kind::Dict => {
            let keys = entries(cx.budget, &value)?;
            keys.into_iter().map(|key| Ok((key.clone(), value.get_item(&key)?))).collect::<Result<_, Error>>()?
        }
        Kind::List | Kind::Tuple | Kind::View | Kind::Iterator | Kind::Range | Kind::Undefined => {
            let pair = |entry: Value| match entries(cx.budget, &entry)?.as_slice() {
                [key, value] => Ok((key.clone(), value.clone())),
                _ => Err(invalid("urlencode needs pairs")),
            };
            entries(cx.budget, &value)?.into_iter().map(pair).collect::<Result<_, Error>>()?
        }
        _ => return quoted(cx, &value, false).map(Value::from),
    };
    let pair = |(key, value): &(Value, Value)| Ok([quoted(cx, key, true)?, quoted(cx, value, true)?].join("="));
    Ok(Value::from(pairs.iter().map(pair).collect::<Result<Vec<_>, Error>>()?.join("&")))
}

pub(super) fn xmlattr(cx: &Context, value: Value, args: Args) -> Outcome {
    let [autospace] = args.bind(["autospace"], 0)?;
    if Kind::of(&value) != Kind::Dict {
        return Err(invalid("xmlattr needs a mapping"));
    }
    let mut out = String::new();
    for key in entries(cx.budget, &value)? {
        let entry = value.get_item(&key)?;
        if entry.is_none() || entry.is_undefined() {
            continue;
        }
        let name = text_of(&key)?;
        if name.contains(|c: char| " \t\n\r\x0c\x0b/>=".contains(c)) {
            return Err(invalid("xmlattr: a key has a character that is not allowed"));
        }
        let entry = python::escape(cx.budget, &soft_text(cx, &entry)?)?;
        let name = python::escape(cx.budget, name)?;
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(&format!("{name}=\"{entry}\""));
    }
    let has_space = autospace.is_none_or(|autospace| autospace.is_true()) && !out.is_empty();
    Ok(Value::from(if has_space { format!(" {out}") } else { out }))
}

/// `json.dumps`, with the arguments that transformers passes on.
pub(super) fn tojson(cx: &Context, value: Value, args: Args) -> Outcome {
    let [ascii, indent, separators, sort_keys] = args.bind(["ensure_ascii", "indent", "separators", "sort_keys"], 0)?;
    let is_set = |flag: Option<Value>| flag.is_some_and(|flag| flag.is_true());
    let indent = match indent.filter(|indent| !indent.is_none()) {
        Some(indent) if indent.as_str().is_some() => Some(soft_text(cx, &indent)?),
        Some(indent) => {
            let width = usize::try_from(integer(&indent)?).unwrap_or(0);
            cx.budget.charge(width)?;
            Some(" ".repeat(width))
        }
        None => None,
    };
    let separators = separators.filter(|separators| !separators.is_none());
    let (between, colon) = match separators {
        Some(separators) => match entries(cx.budget, &separators)?.as_slice() {
            [between, colon] => (text_of(between)?.to_owned(), text_of(colon)?.to_owned()),
            _ => return Err(invalid("tojson: separators must be two strings")),
        },
        None => (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned()),
    };
    let style = Json { ascii: is_set(ascii), indent, between, colon, sort_keys: is_set(sort_keys) };
    print::to_json(cx.budget, &value, style).map(Value::from)
}
