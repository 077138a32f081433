//! ARCHITECTURE.md is a map: it is short, and each decision that it lists is a section of its module's text.

use std::fs;

use crate::root;

/// The most lines of the page.
const LINES: usize = 200;

#[test]
fn each_decision_is_in_its_module() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the page");
    assert!(page.lines().count() <= LINES, "{} lines (at most {LINES}): move text to modules", page.lines().count());
    let rows = page.lines().skip_while(|line| *line != "| of | decision | module |").skip(2);
    let rows: Vec<&str> = rows.take_while(|line| line.starts_with('|')).collect();
    assert!(rows.len() > 60, "{} decisions", rows.len());
    for row in rows {
        let [_, _, decisions, module, _] = row.split('|').collect::<Vec<_>>()[..] else { panic!("{row}") };
        let Some(module) = module.trim().strip_prefix('`').and_then(|rest| rest.strip_suffix('`')) else { continue };
        let text = fs::read_to_string(root().join("crates").join(module)).unwrap_or_else(|e| panic!("{module}: {e}"));
        let headings: Vec<String> =
            text.lines().filter_map(|line| Some(line.strip_prefix("//! # ")?.to_lowercase())).collect();
        for decision in decisions.split(';').map(|decision| decision.trim().to_lowercase()) {
            assert!(headings.contains(&decision), "{module} has no section {decision:?}: {headings:?}");
        }
    }
}
