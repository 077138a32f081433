//! The commands of a guide: all lines of its shell blocks, and the `$ COMMAND` lines of its other blocks.

/// A command, exactly as the guide has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) text: String,
    /// The lines that follow a `$ COMMAND` line: the output that the guide shows.
    pub(crate) prints: Vec<String>,
}

/// The commands of a page, in its order.
pub(crate) fn commands(markdown: &str) -> Vec<Command> {
    let mut found = Vec::new();
    let mut lines = markdown.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.trim_start().strip_prefix("```") else { continue };
        let block: Vec<&str> = lines.by_ref().take_while(|line| !line.trim_start().starts_with("```")).collect();
        match language {
            "sh" | "bash" | "shell" | "console" => found.extend(whole_commands(&block)),
            _ => found.extend(prompted(&block)),
        }
    }
    found
}

/// The commands of a shell block: a line that ends in a backslash or within quotes continues on the next one.
fn whole_commands(block: &[&str]) -> Vec<Command> {
    let mut found: Vec<Command> = Vec::new();
    let mut is_open = false;
    for line in block.iter().map(|line| line.trim_end()) {
        match found.last_mut().filter(|_| is_open) {
            Some(command) => command.text += &format!("\n{line}"),
            None if line.is_empty() || line.starts_with('#') => continue,
            None => found.push(Command { text: line.to_owned(), prints: Vec::new() }),
        }
        is_open = found.last().is_some_and(|command| is_incomplete(&command.text));
    }
    found
}

fn is_incomplete(text: &str) -> bool {
    let mut quote = None;
    for letter in text.chars() {
        match quote {
            None if letter == '\'' || letter == '"' => quote = Some(letter),
            Some(open) if open == letter => quote = None,
            _ => {}
        }
    }
    quote.is_some() || text.ends_with('\\')
}

/// The lines `$ COMMAND` of a block, each with the lines below it.
fn prompted(block: &[&str]) -> Vec<Command> {
    let mut found: Vec<Command> = Vec::new();
    for line in block {
        match (line.strip_prefix("$ "), found.last_mut()) {
            (Some(text), _) => found.push(Command { text: text.to_owned(), prints: Vec::new() }),
            (None, Some(command)) => command.prints.push((*line).to_owned()),
            (None, None) => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_all_kinds_are_found() {
        let page = "a\n```sh\n# a comment\none 'a\nb'\n\ntwo \\\n  three\n```\n```json\n{}\n```\n\
                    - x\n  ```sh\n  four\n  ```\n```text\n$ five\nprinted\n```\n";
        let found = commands(page);
        let texts: Vec<&str> = found.iter().map(|command| command.text.trim_start()).collect();
        assert_eq!(texts, ["one 'a\nb'", "two \\\n  three", "four", "five"]);
        assert_eq!(found[3].prints, ["printed"]);
        assert!(found[..3].iter().all(|command| command.prints.is_empty()));
    }
}
