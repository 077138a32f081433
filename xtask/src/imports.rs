//! `imports`: which modules of a crate import each other in a circle, the largest circle that each crate may have, and
//! which `mod.rs` are not only an index.
//!
//! A module and the module that contains it are two. A re-exported name counts as imported from where it is defined, so
//! an index (a `mod.rs` with only `mod` and `use`) is in no circle. Tests are left out.

mod cycles;
mod graph;

use std::fs;

use crate::root;
use cycles::Edges;
use graph::Graph;

/// The most modules of a circle in each crate. A crate that is not named has at most [`OTHERS`].
const MOST: [(&str, usize); 11] = [
    ("cpu", 2),
    ("cuda", 0),
    ("engine", 5),
    ("gpu", 5),
    ("gpu-sim", 10),
    ("hub", 0),
    ("kernels", 3),
    ("model", 11),
    ("server", 4),
    ("suite", 3),
    ("text", 8),
];
const OTHERS: usize = 10;

/// Prints the largest circle of each crate, or all circles of the given crates. Fails if one is too large.
pub(crate) fn imports(words: &[&str]) -> Result<(), String> {
    let crates = crates()?;
    if let Some(unknown) = words.iter().find(|word| !crates.iter().any(|name| name == *word)) {
        return Err(format!("imports: there is no crate {unknown}; crates/ has {}", crates.join(", ")));
    }
    let mut failed = Vec::new();
    for name in crates.iter().filter(|name| words.is_empty() || words.contains(&name.as_str())) {
        let graph = Graph::read(&root().join("crates").join(name).join("src"))?;
        let (edges, circles) = circles(&graph);
        let found = circles.first().map_or(0, Vec::len);
        let most = most(name);
        println!("{name}: {found} of at most {most}");
        if !words.is_empty() || found > most {
            circles.iter().for_each(|circle| print!("{}", describe(circle, &edges)));
        }
        if found > most {
            let what = format!("{found} modules import each other in a circle (expected at most {most})");
            failed.push(format!("{name}: {what}; move the types that they share down"));
        }
        let indexes = graph.mixed_indexes().map(|at| format!("crates/{name}/src/{at}/mod.rs"));
        failed.extend(
            indexes.map(|path| format!("{path}: declares modules and defines items; move the items to a file")),
        );
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

fn most(name: &str) -> usize {
    MOST.iter().find(|(named, _)| *named == name).map_or(OTHERS, |(_, most)| *most)
}

/// The folders of crates.
fn crates() -> Result<Vec<String>, String> {
    let folder = root().join("crates");
    let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| folder.join(name).join("src").is_dir()).collect();
    names.sort();
    Ok(names)
}

/// A circle: each module with those of the circle that it imports.
fn describe(circle: &[String], edges: &Edges) -> String {
    let line = |module: &String| {
        let imported = edges.get(module).into_iter().flatten().filter(|to| circle.contains(to)).cloned();
        format!("    {module}: {}\n", imported.collect::<Vec<_>>().join(", "))
    };
    format!("  {} modules\n{}", circle.len(), circle.iter().map(line).collect::<String>())
}

/// The imports of a crate, and their circles, the largest first.
fn circles(graph: &Graph) -> (Edges, Vec<Vec<String>>) {
    let edges = graph.edges();
    let mut circles = cycles::cycles(&edges);
    circles.iter_mut().for_each(|circle| circle.sort());
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    (edges, circles)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_crate_has_a_larger_circle_than_it_may() {
        for (name, _) in MOST {
            assert!(crates().is_ok_and(|crates| crates.iter().any(|it| it == name)), "there is no crate {name}");
        }
        assert_eq!(imports(&[]), Ok(()));
        assert!(imports(&["no-such-crate"]).is_err_and(|error| error.contains("no-such-crate")));
    }
}
