//! Folders that a base class of transformers saved, such as `Qwen3Model`: the names of tensors lack the module in which a
//! language model has the base class, `model.` in most families, and the output matrix is missing.

use std::collections::HashSet;

use super::checkpoint::Checkpoint;
use super::family::{Family, Rule};

/// Gives tensors the names of a language model, if they lack the prefix. Returns whether they did.
pub(super) fn complete_names(family: &Family, checkpoint: &mut Checkpoint) -> bool {
    let Some((module, embedding)) = global(family, "token_embd.weight").and_then(|rule| rule.theirs.split_once('.'))
    else {
        return false;
    };
    let own = format!("{module}.");
    let within = family.within.as_ref().map(|within| within.tensors).unwrap_or_default();
    let prefixes: Vec<&str> = within.iter().map(|prefix| prefix.model).chain([own.as_str()]).collect();
    let has_prefix = |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix));
    if checkpoint.tensors().any(|tensor| has_prefix(&tensor.name)) {
        return false;
    }
    let is_saved_in = |prefix: &&&str| {
        let inner = prefix.split_once('.').map_or("", |(_, inner)| inner);
        checkpoint.tensor(&format!("{inner}{embedding}")).is_some()
    };
    let Some((outer, _)) = prefixes.iter().find(is_saved_in).and_then(|prefix| prefix.split_once('.')) else {
        return false;
    };
    // The output matrix and the like are next to the module.
    let others: HashSet<&str> = rules(family)
        .filter(|rule| !rule.theirs.starts_with(&own))
        .filter_map(|rule| rule.theirs.split('.').next())
        .collect();
    let outer = outer.to_owned();
    checkpoint.rename(|name| match name.split('.').next().is_some_and(|first| others.contains(first)) {
        true => name.to_owned(),
        false => format!("{outer}.{name}"),
    });
    true
}

/// The rule of a tensor outside the layers.
pub(super) fn global(family: &Family, ours: &str) -> Option<&'static Rule> {
    family.globals.iter().copied().flatten().find(|rule| rule.ours == ours)
}

fn rules(family: &Family) -> impl Iterator<Item = &'static Rule> {
    let lists = family.globals.iter().chain(family.layer).chain(family.mixers).chain(family.mlps);
    lists.copied().flatten().chain(family.heads)
}
