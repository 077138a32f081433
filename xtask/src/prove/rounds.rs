//! Mutations of different formats share a build: a round applies several at once, and the test of products prints which
//! formats fail.

use std::collections::{BTreeMap, BTreeSet};

use super::list::Mutation;

/// The sources of formats by folder.
pub(super) type Sources = BTreeMap<String, String>;

/// Splits mutations that have a [`Mutation::format`] into rounds. Invariant: no mutation of a round changes what the format of
/// another one of the round computes, because neither folder imports the other; checked by the test below.
pub(super) fn rounds<'a>(mutations: &[&'a Mutation], sources: &Sources) -> Vec<Vec<&'a Mutation>> {
    let mut rounds: Vec<Vec<&Mutation>> = Vec::new();
    for &mutation in mutations {
        let Some(format) = mutation.format() else { continue };
        let fits = |other: &&Mutation| other.format().is_some_and(|other| are_apart(format, other, sources));
        match rounds.iter_mut().find(|round| round.iter().all(fits)) {
            Some(round) => round.push(mutation),
            None => rounds.push(vec![mutation]),
        }
    }
    rounds
}

/// Whether neither of two formats imports the other, directly or through others.
fn are_apart(one: &str, other: &str, sources: &Sources) -> bool {
    !imports(one, sources).contains(other) && !imports(other, sources).contains(one)
}

/// A format and all formats that it imports.
fn imports<'a>(format: &'a str, sources: &'a Sources) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut open = vec![format];
    while let Some(format) = open.pop() {
        if !found.insert(format) {
            continue;
        }
        let text = sources.get(format).map_or("", String::as_str);
        let names = |name: &&String| text.contains(&format!("super::{name}")) || text.contains(&format!("{name}::"));
        open.extend(sources.keys().filter(names).map(String::as_str));
    }
    found
}

/// The formats, in lower case, that fail on some level, by the lines `failed FORMAT LEVEL` of a test's output.
pub(super) fn failed(output: &str) -> BTreeSet<String> {
    let lines = output.lines().filter_map(|line| line.trim().strip_prefix("failed "));
    lines.filter_map(|rest| rest.split(' ').next()).map(str::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prove::list::MUTATIONS;
    use crate::prove::scratch_tree::format_sources;
    use crate::root;

    #[test]
    fn formats_that_share_code_are_in_different_rounds() {
        let sources = format_sources(&root().join("crates")).expect("the sources of formats");
        assert!(!are_apart("iq2_ks", "iq3_ks", &sources) && !are_apart("iq5_ks", "iq4_k", &sources));
        assert!(are_apart("q1_0", "iq2_xs", &sources));
        let all: Vec<&Mutation> = MUTATIONS.iter().collect();
        let rounds = rounds(&all, &sources);
        let count: usize = rounds.iter().map(Vec::len).sum();
        assert_eq!(count, MUTATIONS.iter().filter(|mutation| mutation.format().is_some()).count());
        assert!(rounds.len() < count / 3, "{} rounds of {count}", rounds.len());
        for round in &rounds {
            let formats: BTreeSet<_> = round.iter().filter_map(|mutation| mutation.format()).collect();
            assert_eq!(formats.len(), round.len());
            for format in &formats {
                assert_eq!(imports(format, &sources).intersection(&formats).count(), 1, "{formats:?}");
            }
        }
    }

    #[test]
    fn failed_formats_are_read_from_the_output() {
        let output = "running 1 test\npassed Q1_0 avx2\nfailed IQ2_XS portable\nfailed IQ2_XS avx2\ntest result: ok\n";
        assert_eq!(failed(output).into_iter().collect::<Vec<_>>(), ["iq2_xs"]);
    }
}
