//! Jinja's filters.

mod lists;
mod numbers;
mod texts;

use minijinja::value::Rest;
use minijinja::{Environment, Error, State, Value};

use super::budget::Budget;
use super::outcome::{Outcome, invalid};
use super::print;
use super::python::{Args, Kind, attribute, entries, static_attribute};

/// What a filter works with.
struct Context<'a, 'b, 'c> {
    budget: &'a Budget,
    state: &'a State<'b, 'c>,
}

type Filter = fn(&Context, Value, Args) -> Outcome;

/// Filters of Jinja that are not provided.
pub(super) const MISSING: &[&str] = &["pprint", "random", "striptags", "urlize", "wordwrap"];

const FILTERS: &[(&str, Filter)] = &[
    ("abs", numbers::abs),
    ("attr", attr),
    ("batch", lists::batch),
    ("capitalize", texts::capitalize),
    ("center", texts::center),
    ("count", lists::length),
    ("d", default),
    ("default", default),
    ("dictsort", lists::dictsort),
    ("e", texts::escape),
    ("escape", texts::escape),
    ("filesizeformat", numbers::filesizeformat),
    ("first", lists::first),
    ("float", numbers::float),
    ("forceescape", texts::forceescape),
    ("format", texts::format),
    ("groupby", lists::groupby),
    ("indent", texts::indent),
    ("int", numbers::int),
    ("items", lists::items),
    ("join", lists::join),
    ("last", lists::last),
    ("length", lists::length),
    ("list", lists::list),
    ("lower", texts::lower),
    ("map", lists::map),
    ("max", lists::max),
    ("min", lists::min),
    ("reject", lists::reject),
    ("rejectattr", lists::rejectattr),
    ("replace", texts::replace),
    ("reverse", lists::reverse),
    ("round", numbers::round),
    ("safe", texts::safe),
    ("select", lists::select),
    ("selectattr", lists::selectattr),
    ("slice", lists::slice),
    ("sort", lists::sort),
    ("string", texts::string),
    ("sum", lists::sum),
    ("title", texts::title),
    ("tojson", texts::tojson),
    ("trim", texts::trim),
    ("truncate", texts::truncate),
    ("unique", lists::unique),
    ("upper", texts::upper),
    ("urlencode", texts::urlencode),
    ("wordcount", texts::wordcount),
    ("xmlattr", texts::xmlattr),
];

/// Whether there is a filter of this name.
pub(super) fn exists(name: &str) -> bool {
    FILTERS.iter().any(|(known, _)| *known == name)
}

pub(super) fn add(env: &mut Environment, budget: &Budget) {
    for &(name, filter) in FILTERS {
        let budget = budget.clone();
        env.add_filter(name, move |state: &State, args: Rest<Value>| -> Outcome {
            let mut args = Args::new(&args)?;
            let value = args.operand()?;
            // What goes through a list pays for its entries.
            budget.charge_text(&value)?;
            args.positional.iter().try_for_each(|arg| budget.charge_text(arg))?;
            budget.settle(filter(&Context { budget: &budget, state }, value, args)?)
        });
    }
}

fn default(_: &Context, value: Value, args: Args) -> Outcome {
    let [default, boolean] = args.bind(["default_value", "boolean"], 0)?;
    let replaces_false = boolean.is_some_and(|boolean| boolean.is_true());
    let replaced = value.is_undefined() || replaces_false && !value.is_true();
    Ok(if replaced { default.unwrap_or_else(|| Value::from("")) } else { value })
}

/// Only an attribute, not an entry of a mapping.
fn attr(cx: &Context, value: Value, args: Args) -> Outcome {
    let [name] = args.bind(["name"], 1)?;
    let name = name.unwrap_or_default();
    let name = name.as_str().ok_or_else(|| invalid("the name of an attribute must be a string"))?;
    match Kind::of(&value) {
        Kind::Undefined | Kind::Other | Kind::Tuple => attribute(cx.budget, &value, name),
        _ => Ok(static_attribute(cx.budget, &value, name).unwrap_or_default()),
    }
}

/// `str(value)`, as filters of texts read their operand.
fn soft_text(cx: &Context, value: &Value) -> Result<String, Error> {
    print::to_text(cx.budget, value)
}

/// A value as a filter that goes through lists reads it: what is false is empty.
fn entries_if_true(cx: &Context, value: &Value) -> Result<Vec<Value>, Error> {
    if value.is_true() { entries(cx.budget, value) } else { Ok(Vec::new()) }
}
