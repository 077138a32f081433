//! The commands of a chat. Other programs' names of a command work too.

/// A line that is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command<'a> {
    Help,
    Stats,
    Reset,
    /// A file with an image for the next message.
    Image(&'a str),
    /// A new system message; without a text, none.
    System(&'a str),
    End,
    Unknown(&'a str),
}

/// Names, arguments, and what the command does. The help has the first name of each.
const COMMANDS: [(&[&str], &str, &str); 6] = [
    (&["/image"], " FILE", "show an image with the next message; several times for several images"),
    (&["/reset", "/clear"], "", "clear the conversation"),
    (&["/system"], " TEXT", "set the system message and begin again; without TEXT, remove it"),
    (&["/stats"], "", "tokens and times so far"),
    (&["/help", "/?"], "", "this"),
    // A message of one of these words is for the program: Python, shells and database clients end with them.
    (&["/quit", "/exit", "/bye", "exit", "quit"], "", "end (also Ctrl-D, exit, quit)"),
];

impl<'a> Command<'a> {
    /// The command of a message; `None` if the message is for the model.
    pub(super) fn of(message: &'a str) -> Option<Command<'a>> {
        let message = message.trim();
        let (word, rest) = message.split_once(char::is_whitespace).unwrap_or((message, ""));
        let names = COMMANDS.iter().map(|(names, ..)| *names).find(|names| names.contains(&word));
        // Commands have one line, except /system. A word without a slash is a command only if nothing follows.
        if (message.contains('\n') && word != "/system") || (!word.starts_with('/') && !rest.is_empty()) {
            return None;
        }
        match names.and_then(|names| names.first()) {
            Some(&"/help") => Some(Command::Help),
            Some(&"/stats") => Some(Command::Stats),
            Some(&"/reset") => Some(Command::Reset),
            Some(&"/image") => Some(Command::Image(rest.trim())),
            Some(&"/system") => Some(Command::System(rest.trim())),
            Some(_) => Some(Command::End),
            None => has_form(word).then_some(Command::Unknown(word)),
        }
    }
}

/// Whether a word has the form of a command, such as `/reset`. A path or a C comment has another form.
fn has_form(word: &str) -> bool {
    let name = word.strip_prefix('/').unwrap_or_default();
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// The text of `/help`.
pub(super) fn help() -> String {
    let mut help =
        "Enter sends the message. Alt-Enter, or a backslash before Enter, begins another line; pasted lines \
                    are one message."
            .to_owned();
    for (names, arguments, what) in COMMANDS {
        let name = format!("{}{arguments}", names.first().copied().unwrap_or_default());
        help += &format!("\n{name:<15} {what}");
    }
    help + "\nCtrl-C          stop the answer"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_messages() {
        for (message, expected) in [
            ("/help", Some(Command::Help)),
            (" /? ", Some(Command::Help)),
            ("/stats", Some(Command::Stats)),
            ("/reset", Some(Command::Reset)),
            ("/clear", Some(Command::Reset)),
            ("/system Be\nbrief. ", Some(Command::System("Be\nbrief."))),
            ("/system", Some(Command::System(""))),
            ("/image  a b.png ", Some(Command::Image("a b.png"))),
            ("/image", Some(Command::Image(""))),
            ("/quit", Some(Command::End)),
            ("/exit", Some(Command::End)),
            ("/bye", Some(Command::End)),
            ("exit", Some(Command::End)),
            ("quit\n", Some(Command::End)),
            ("/nonsense x", Some(Command::Unknown("/nonsense"))),
            ("exit the program?", None),
            ("quit\nnow", None),
            ("/quit\nx", None),
            ("/a/b", None),
            ("/* a comment", None),
            ("bye", None),
            ("", None),
        ] {
            assert_eq!(Command::of(message), expected, "{message:?}");
        }
    }

    #[test]
    fn the_help_has_each_command() {
        let help = help();
        for name in
            ["\n/reset          clear", "\n/system TEXT    set", "\n/quit           end (", "\nCtrl-C          stop"]
        {
            assert!(help.contains(name), "{name:?}: {help}");
        }
    }
}
