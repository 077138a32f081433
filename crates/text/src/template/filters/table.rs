//! The table of filters, and those that belong to no kind.

use minijinja::value::Rest;
use minijinja::{Environment, Error, State, Value};

use crate::template::budget::Budget;
use crate::template::outcome::{Outcome, invalid};
use crate::template::print;
use crate::template::python::{Args, Kind, attribute, entries, static_attribute};

/// What a filter works with.
pub(super) struct Context<'a, 'b, 'c> {
    pub(super) budget: &'a Budget,
    pub(super) state: &'a State<'b, 'c>,
}

type Filter = fn(&Context, Value, Args) -> Outcome;

/// Filters of Jinja that are not provided.
pub(crate) const MISSING: &[&str] = &["pprint", "random", "striptags", "urlize", "wordwrap"];

const FILTERS: &[(&str, Filter)] = &[
    ("abs", super::numbers::abs),
    ("attr", attr),
    ("batch", super::lists::batch),
    ("capitalize", super::texts::capitalize),
    ("center", super::texts::center),
    ("count", super::lists::length),
    ("d", default),
    ("default", default),
    ("dictsort", super::lists::dictsort),
    ("e", super::texts::escape),
    ("escape", super::texts::escape),
    ("filesizeformat", super::numbers::filesizeformat),
    ("first", super::lists::first),
    ("float", super::numbers::float),
    ("forceescape", super::texts::forceescape),
    ("format", super::texts::format),
    ("groupby", super::lists::groupby),
    ("indent", super::texts::indent),
    ("int", super::numbers::int),
    ("items", super::lists::items),
    ("join", super::lists::join),
    ("last", super::lists::last),
    ("length", super::lists::length),
    ("list", super::lists::list),
    ("lower", super::texts::lower),
    ("map", super::lists::map),
    ("max", super::lists::max),
    ("min", super::lists::min),
    ("reject", super::lists::reject),
    ("rejectattr", super::lists::rejectattr),
    ("replace", super::texts::replace),
    ("reverse", super::lists::reverse),
    ("round", super::numbers::round),
    ("safe", super::texts::safe),
    ("select", super::lists::select),
    ("selectattr", super::lists::selectattr),
    ("slice", super::lists::slice),
    ("sort", super::lists::sort),
    ("string", super::texts::string),
    ("sum", super::lists::sum),
    ("title", super::texts::title),
    ("tojson", super::texts::tojson),
    ("trim", super::texts::trim),
    ("truncate", super::texts::truncate),
    ("unique", super::lists::unique),
    ("upper", super::texts::upper),
    ("urlencode", super::texts::urlencode),
    ("wordcount", super::texts::wordcount),
    ("xmlattr", super::texts::xmlattr),
];

/// Whether there is a filter of this name.
pub(crate) fn exists(name: &str) -> bool {
    FILTERS.iter().any(|(known, _)| *known == name)
}

pub(crate) fn add(env: &mut Environment, budget: &Budget) {
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
pub(super) fn soft_text(cx: &Context, value: &Value) -> Result<String, Error> {
    print::to_text(cx.budget, value)
}

/// A value as a filter that goes through lists reads it: what is false is empty.
pub(super) fn entries_if_true(cx: &Context, value: &Value) -> Result<Vec<Value>, Error> {
    if value.is_true() { entries(cx.budget, value) } else { Ok(Vec::new()) }
}
