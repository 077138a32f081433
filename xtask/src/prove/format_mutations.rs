//! Mutations of a single format are the last lines of its `mod.rs`.

use super::list::Mutation;
use super::rounds::Sources;

/// The line before them.
const HEADER: &str = "\n// Mutations (`cargo xtask prove mutations`):\n";

/// A source without the lines of its mutations.
pub(super) fn code(text: &str) -> &str {
    text.split_once(HEADER).map_or(text, |(code, _)| code)
}

/// All of them. A line that cannot be read is an error.
pub(super) fn of_formats(sources: Sources) -> Result<Vec<Mutation>, String> {
    let mut found = Vec::new();
    for (folder, text) in sources {
        let file: &str = format!("kernels/src/format/{folder}/mod.rs").leak();
        for line in text.leak().split_once(HEADER).map_or("", |(_, lines)| lines).lines() {
            let error = || format!("{file}: cannot read {line:?}, expected // [PART] `SOURCE` => `SOURCE`");
            found.push(mutation(file, line).ok_or_else(error)?);
        }
    }
    Ok(found)
}

fn mutation(file: &'static str, line: &'static str) -> Option<Mutation> {
    let (part, change) = line.strip_prefix("// [")?.split_once("] `")?;
    let (find, replace) = change.strip_suffix('`')?.split_once("` => `")?;
    Some(Mutation { op: "matmul", parts: vec![part].leak(), file, find, replace, needs: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_below_the_code_are_mutations() {
        let text = format!("fn codes() {{\n    a => b\n}}\n{HEADER}// [matmul] `a => b` => `a => c`\n");
        assert_eq!(code(&text), "fn codes() {\n    a => b\n}\n");
        let read = |text: String| of_formats(Sources::from([("q4_0".to_owned(), text)]));
        let found = read(text.clone()).unwrap();
        let [Mutation { parts: ["matmul"], find: "a => b", replace: "a => c", .. }] = found[..] else {
            panic!("{} mutations", found.len());
        };
        assert_eq!(found[0].format(), Some("q4_0"));
        assert!(read(text + "// `a` => `b`\n").is_err_and(|error| error.contains("q4_0/mod.rs: cannot read")));
    }
}
