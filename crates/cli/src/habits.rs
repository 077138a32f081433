//! Options and commands of llama.cpp, Ollama and vLLM. Those with another name here are translated; those that gristmill
//! lacks get one line with a replacement. docs/moving.md is the table for users.

mod table;

use std::ffi::{OsStr, OsString};

use clap::{Arg, Command};

use crate::failure::Failure;
use table::Meaning::{Always, Flag, Found, GpuLayers, Is, No, Only, Prefixed};
use table::{COMMANDS, HABITS, Meaning};

/// Translates the arguments after the program's name. `cli` is the whole command line.
pub(crate) fn translate(arguments: Vec<OsString>, cli: &Command) -> Result<Vec<OsString>, Failure> {
    let Some(name) = arguments.first().and_then(|name| name.to_str()) else { return Ok(arguments) };
    let Some(command) = cli.find_subcommand(name) else {
        return match line_about(name, cli) {
            Some(line) => Err(Failure::new(line).into_usage()),
            None => Ok(arguments),
        };
    };
    let mut out: Vec<OsString> = vec![name.into()];
    let mut rest = arguments.iter().skip(1).peekable();
    while let Some(argument) = rest.next() {
        if argument == "--" {
            out.push(argument.clone());
            out.extend(rest.cloned());
            break;
        }
        let (option, attached) = split(argument);
        let Some(meaning) = habit(option, command) else {
            out.push(argument.clone());
            // The next word is the option's value, whatever it looks like.
            if attached.is_none() && own(command, option).is_some_and(|own| own.get_action().takes_values()) {
                out.extend(rest.next().cloned());
            }
            continue;
        };
        if let Some(target) = target(meaning).filter(|target| own(command, target).is_none()) {
            let others = cli.get_subcommands().filter(|other| own(other, target).is_some());
            let others: Vec<&str> = others.map(Command::get_name).collect();
            let others = others.join(", ");
            return Err(refused(
                option,
                &format!("gristmill {name} has no {target}; leave it out, or use it with {others}"),
            ));
        }
        let mut value = || attached.map(OsStr::to_owned).or_else(|| rest.next().cloned()).unwrap_or_default();
        let mut push = |option: &str, value: &OsStr| {
            let mut word = OsString::from(format!("{option}="));
            word.push(value);
            // Keys and values have one format, which llama.cpp's users give twice.
            if !out.contains(&word) {
                out.push(word);
            }
        };
        match meaning {
            Is(option) => push(option, &value()),
            Prefixed(option, prefix) => {
                let mut word = OsString::from(prefix);
                word.push(value());
                push(option, &word);
            }
            Flag(option) => out.push(option.into()),
            Found => drop(value()),
            Only(known, line) => {
                let value = value();
                if !known.iter().any(|known| value == **known) {
                    return Err(refused(option, line));
                }
            }
            Always(values) => {
                let named = |value: &OsStr| values.iter().any(|known| value == *known);
                match attached {
                    Some(value) if !named(value) => return Err(refused(option, "it is always on; leave it out")),
                    None if rest.peek().is_some_and(|next| *next == "off") && !values.is_empty() => {
                        return Err(refused(option, "it is always on; leave it out"));
                    }
                    None => drop(rest.next_if(|next| named(next))),
                    Some(_) => {}
                }
            }
            GpuLayers => match value().to_str().unwrap_or_default() {
                "0" => push("--device", "cpu".as_ref()),
                "all" | "auto" | "-1" => push("--device", "auto".as_ref()),
                layers if layers.parse::<u32>().is_ok_and(|layers| layers >= 99) => push("--device", "auto".as_ref()),
                _ => {
                    let line = "a model is on one device, whole; leave it out for the GPU, or --device cpu for the CPU";
                    return Err(refused(option, line));
                }
            },
            No(line) => return Err(refused(option, line)),
        }
    }
    Ok(out)
}

fn refused(option: &str, line: &str) -> Failure {
    Failure::new(format!("{option}: {line}")).into_usage()
}

/// What an option of another program means for this command, unless the command has this option itself.
fn habit(option: &str, command: &Command) -> Option<&'static Meaning> {
    if own(command, option).is_some() {
        return None;
    }
    let named = |(names, _): &&(&str, Meaning)| names.split(' ').any(|name| name == option);
    let mut found = HABITS.iter().filter(named).map(|(_, meaning)| meaning);
    let fits = |meaning: &&Meaning| target(meaning).is_none_or(|target| own(command, target).is_some());
    found.clone().find(fits).or(found.next())
}

/// The option that an option of another program becomes.
fn target(meaning: &Meaning) -> Option<&'static str> {
    match meaning {
        Is(target) | Prefixed(target, _) | Flag(target) => Some(target.split('=').next().unwrap_or(target)),
        GpuLayers => Some("--device"),
        Always(_) | Only(..) | Found | No(_) => None,
    }
}

/// The option of a command with this name.
fn own<'a>(command: &'a Command, option: &str) -> Option<&'a Arg> {
    let letter = |name: &str| (name.chars().count() == 1).then(|| name.chars().next()).flatten();
    match (option.strip_prefix("--"), option.strip_prefix('-')) {
        (Some(long), _) => command.get_arguments().find(|own| {
            own.get_long() == Some(long) || own.get_all_aliases().is_some_and(|aliases| aliases.contains(&long))
        }),
        (None, Some(short)) => {
            let short = letter(short)?;
            command.get_arguments().find(|own| own.get_short() == Some(short))
        }
        _ => None,
    }
}

/// An option and the value that is attached to it.
fn split(argument: &OsStr) -> (&str, Option<&OsStr>) {
    let Some(text) = argument.to_str() else { return ("", None) };
    match text.split_once('=') {
        Some((option, value)) if text.starts_with("--") => (option, Some(OsStr::new(value))),
        _ => (text, None),
    }
}

/// What to say about a first word that is no command.
fn line_about(word: &str, cli: &Command) -> Option<String> {
    if let Some((name, line)) = COMMANDS.iter().find(|(name, _)| *name == word) {
        return Some(format!("gristmill {name}: there is no such command; {line}"));
    }
    let option = word.len() > 1 && word.starts_with('-') && own(cli, word).is_none();
    let known = ["-h", "--help", "-V", "--version"].contains(&word);
    if option && !known {
        return Some(format!(
            "{word}: name the command first, as in gristmill run {word} …; gristmill --help lists them"
        ));
    }
    let is_model =
        word.ends_with(".gguf") || gristmill_hub::Reference::is_marked(word) || gristmill_hub::Reference::is_bare(word);
    is_model.then(|| {
        format!("{word}: name the command first, as in gristmill run {word} \"Why?\" or gristmill chat {word}")
    })
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;

    /// The arguments after translation, or the line.
    fn translated(line: &str) -> Result<String, String> {
        let words = line.split_whitespace().map(OsString::from).collect();
        match translate(words, &crate::command()) {
            Ok(words) => Ok(words.join(OsStr::new(" ")).into_string().expect("UTF-8")),
            Err(Failure::Usage(line)) => Err(line),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_of_llama_cpp_mean_what_they_mean_there() {
        for (typed, meant) in [
            ("run -hf a/b:Q4_0 hi", "run --model=hf:a/b:Q4_0 hi"),
            ("chat --hf-repo=a/b", "chat --model=hf:a/b"),
            ("run -m x -ngl 0 hi", "run -m x --device=cpu hi"),
            ("serve --n-gpu-layers=99 x", "serve --device=auto x"),
            ("run -ngl -1 x", "run --device=auto x"),
            ("run -ctk q8_0 -ctv q8_0 x", "run --kv=q8_0 x"),
            ("run -fa on x", "run x"),
            ("run -fa x", "run x"),
            ("run -mm a.gguf --image b.png x", "run --mmproj=a.gguf --image b.png x"),
            ("serve --no-mmproj x", "serve --mmproj=none x"),
            ("bench --no-mmproj x", "bench --mmproj=none x"),
            ("serve --jinja x -np 4 -b 7", "serve x --parallel=4 --batch=7"),
            ("run -no-cnv x -s 3", "run --raw x --seed=3"),
            ("serve x --temp 0.6 --top-p=0.95 --no-webui", "serve x --temp 0.6 --top-p=0.95 --no-page"),
            ("serve -cb --reasoning-format auto -mg 1 x", "serve --device=cuda:1 x"),
            ("serve --models-dir d --sleep-idle-seconds 60", "serve --model=d --idle=60"),
            ("serve x --max-model-len 4096 -tp 1 --tool-call-parser hermes", "serve x --ctx=4096"),
            // Own options, values and what follows -- stay.
            ("bench -b 7 -p 3 -r 2", "bench -b 7 -p 3 -r 2"),
            ("bench -ub 512 x", "bench --chunk=512 x"),
            ("serve -ub 512 x", "serve --batch=512 x"),
            ("run -p -ngl -m x", "run -p -ngl -m x"),
            ("run -m x -- -ngl 3", "run -m x -- -ngl 3"),
            ("-h", "-h"),
            ("--version", "--version"),
        ] {
            assert_eq!(translated(typed).as_deref(), Ok(meant), "{typed}");
        }
        for (typed, words) in [
            ("run -ngl 20 x", "-ngl: a model is on one device"),
            ("run -fa off x", "-fa: it is always on"),
            ("run --lora x", "--lora: adapters are not supported"),
            ("serve x --reasoning-format none", "--reasoning-format: reasoning is always in reasoning_content"),
            ("serve x -ot exps=CPU", "-ot: for experts on the CPU use --experts-on cpu"),
            ("serve x -s 1", "-s: requests set seed"),
            ("serve x --tensor-parallel-size=2", "--tensor-parallel-size: a model is on one device"),
            ("run -np 4 x", "-np: gristmill serve --parallel"),
            ("chat -b 512 x", "-b: leave it out; gristmill serve --batch"),
            (
                "tokenize --temperature 1 x",
                "--temperature: gristmill tokenize has no --temp; leave it out, or use it with run,",
            ),
            ("ps", "gristmill ps: there is no such command; curl http://127.0.0.1:8080/v1/models"),
            ("-m x.gguf -p hi", "gristmill run -m …"),
            ("x.gguf", "gristmill chat x.gguf"),
            ("a/b-GGUF:Q4_0", "gristmill run a/b-GGUF:Q4_0"),
        ] {
            let line = translated(typed).expect_err(typed);
            assert!(line.contains(words), "{typed}: {line}");
        }
    }

    /// The cells of a line of a table: their codes, with `|` for `\|`.
    fn cells(line: &str) -> Vec<Vec<String>> {
        let line = line.replace("\\|", "\u{0}");
        let cells = line.trim().trim_matches('|').split('|');
        let codes = |cell: &str| cell.split('`').skip(1).step_by(2).map(|code| code.replace('\u{0}', "|")).collect();
        cells.map(codes).collect()
    }

    /// Whether the words are a command line, or get a line that has one of the words of `instead`.
    fn is_taken(words: &[String], instead: &[String]) -> bool {
        match translate(words.iter().map(OsString::from).collect(), &crate::command()) {
            Err(Failure::Usage(line)) => {
                instead.is_empty()
                    || instead.iter().flat_map(|code| code.split_whitespace()).any(|word| line.contains(word))
            }
            Err(_) => false,
            Ok(words) => {
                let whole = [OsString::from("gristmill")].into_iter().chain(words);
                let parsed = crate::command().try_get_matches_from(whole);
                // An option may need another one next to it.
                parsed.map_or_else(|error| error.kind() == ErrorKind::MissingRequiredArgument, |_| true)
            }
        }
    }

    /// Every row of docs/moving.md is true: the command or option on the left is accepted, or its message names the one
    /// on the right.
    #[test]
    fn the_table_of_moving_holds() {
        let page =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/moving.md")).expect("a page");
        let words = |code: &str| -> Vec<String> {
            let replaced = code.replace(['"', '…'], "").replace("auto|cpu|cuda:N", "cpu");
            let number = |word: &str| if word == "N" { "1".to_owned() } else { word.to_owned() };
            replaced.split_whitespace().map(number).collect()
        };
        let mut rows = 0;
        for line in page.lines().filter(|line| line.starts_with("| `")) {
            let [left, right, ..] = &cells(line)[..] else { panic!("{line}") };
            for code in right.iter().filter(|code| code.starts_with("gristmill ")) {
                assert!(is_taken(&words(code)[1..], &[]), "{code}");
            }
            for code in left {
                rows += 1;
                let typed = words(code);
                let taken = match code.strip_prefix("ollama ") {
                    Some(_) => is_taken(&typed[1..], right),
                    // What llama.cpp's other programs are called is not typed here, nor are variables and paths.
                    None if !code.starts_with('-') => true,
                    None => ["run", "serve", "chat", "bench", "perplexity", "embed"].iter().any(|command| {
                        [&[][..], &["1".to_owned()]].into_iter().any(|value| {
                            let model = if *command == "run" { &["m.gguf".to_owned()][..] } else { &[] };
                            let all = [&[(*command).to_owned()], model, &typed[..], value].concat();
                            is_taken(&all, right)
                        })
                    }),
                };
                assert!(taken, "{code} of {line}");
            }
        }
        assert!(rows > 50, "{rows} rows were read");
    }
}
