//! A folder in which the commands of a page run.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::prove::ready::is_ready;
use crate::{root, sh};

/// The port of `gristmill serve` in the guides.
const PORT: u16 = 8080;
/// Timeout of a command; `cargo install` compiles everything.
const LIMIT: Duration = Duration::from_secs(1_200);
/// Prefixes of environment variables that must not reach the commands.
const REMOVED: [&str; 3] = ["GRISTMILL_", "HF_", "XDG_"];
/// Input of a chat.
const CHAT: &str = "Name a colour.\n/stats\n";
/// Makes curl fail if a request fails; by default curl only shows the error.
const CURLRC: &str = "fail-with-body\nsilent\nshow-error\n";

/// A mock of the hub, which ends when the value is dropped.
pub(super) struct Hub {
    child: Child,
    endpoint: String,
}

impl Hub {
    /// Starts `crates/hub/examples/standin.rs` with these words.
    pub(super) fn start(standin: &Path, words: &[String]) -> Result<Hub, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", standin.display());
        let mut child =
            Command::new(standin).args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).map_err(failed)?;
        }
        let endpoint = line.split(' ').next().unwrap_or_default().to_owned();
        Ok(Hub { child, endpoint })
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        // It has nothing to lose.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs commands in a folder of its own, with a home folder in it.
pub(super) struct Shell {
    folder: PathBuf,
    variables: Vec<(&'static str, String)>,
    server: Option<Child>,
}

impl Shell {
    /// Creates an empty folder. `gristmill` is the program, unless `cargo install` has put one into `installed`.
    pub(super) fn new(folder: PathBuf, gristmill: &Path, installed: &Path, hub: &Hub) -> Result<Shell, String> {
        let home = folder.join("home");
        let _ = fs::remove_dir_all(&folder);
        write(&home.join(".curlrc"), CURLRC)?;
        let variable = |name: &str| std::env::var(name).ok();
        let old_home = variable("HOME").unwrap_or_default();
        let kept =
            |name: &'static str, folder: &str| (name, variable(name).unwrap_or_else(|| format!("{old_home}/{folder}")));
        let built = gristmill.parent().unwrap_or(gristmill).display();
        let path = variable("PATH").unwrap_or_default();
        let variables = vec![
            ("PATH", format!("{}/bin:{built}:{path}", installed.display())),
            ("HOME", home.display().to_string()),
            ("HF_ENDPOINT", hub.endpoint.clone()),
            ("CARGO_INSTALL_ROOT", installed.display().to_string()),
            // Packages are found in their registry, and not installed.
            ("PIP_DRY_RUN", "1".to_owned()),
            kept("CARGO_HOME", ".cargo"),
            kept("RUSTUP_HOME", ".rustup"),
        ];
        Ok(Shell { folder, variables, server: None })
    }

    /// Copies a file or a folder of the repository to where a guide has it.
    pub(super) fn copy(&self, source: &str, name: &str) -> Result<(), String> {
        let to = match name.strip_prefix("~/") {
            Some(rest) => self.folder.join("home").join(rest),
            None => self.folder.join(name),
        };
        let is_folder = root().join(source).is_dir();
        let parent = if is_folder { &to } else { to.parent().unwrap_or(&to) };
        fs::create_dir_all(parent).map_err(|error| format!("cannot make {}: {error}", parent.display()))?;
        let from = if is_folder { format!("{source}/.") } else { source.to_owned() };
        sh("cp", &["-r", &from, &to.display().to_string()])
    }

    /// Makes the folder a repository of Git in which a file has changed.
    pub(super) fn change(&self, name: &str) -> Result<(), String> {
        let made = self.finish(&format!(
            "git init -q && echo one > {name} && git add {name} && git -c user.name=a -c user.email=a@b commit -qm one \
             && echo two > {name}"
        ));
        made.map(drop)
    }

    /// Runs a command to its end, and returns what it printed. A server is left running, until another command starts
    /// one or the value is dropped.
    pub(super) fn run(&mut self, text: &str) -> Result<String, String> {
        match text.starts_with("gristmill serve") {
            true => self.serve(text),
            false => self.finish(text),
        }
    }

    /// Writes a file into the folder.
    pub(super) fn write(&self, name: &str, content: &str) -> Result<(), String> {
        write(&self.folder.join(name), content)
    }

    /// Runs a command to its end.
    pub(super) fn finish(&self, text: &str) -> Result<String, String> {
        let input = self.folder.join("stdin");
        write(&input, if text.starts_with("gristmill chat") { CHAT } else { "" })?;
        let mut command = self.command(text)?;
        match text.starts_with("gristmill chat") {
            true => command.stdin(open(&input)?),
            false => command.stdin(Stdio::null()),
        };
        let mut child = command.spawn().map_err(|error| format!("bash: {error}"))?;
        let begin = Instant::now();
        let status = loop {
            match child.try_wait().map_err(|error| format!("bash: {error}"))? {
                Some(status) => break status,
                None if begin.elapsed() > LIMIT => {
                    let _ = child.kill();
                    return Err(format!("did not end within {} s", LIMIT.as_secs()));
                }
                None => sleep(Duration::from_millis(10)),
            }
        };
        let printed = self.printed();
        if status.success() { Ok(printed) } else { Err(format!("{status}\n{printed}")) }
    }

    /// What the last command has printed. Random models write bytes that are not UTF-8.
    fn printed(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.folder.join("output")).unwrap_or_default()).into_owned()
    }

    fn serve(&mut self, text: &str) -> Result<String, String> {
        self.stop()?;
        TcpListener::bind(("127.0.0.1", PORT)).map_err(|error| format!("port {PORT} must be free: {error}"))?;
        let mut child = self.command(&format!("exec {text}"))?.spawn().map_err(|error| format!("bash: {error}"))?;
        let begin = Instant::now();
        while !is_ready(PORT) {
            let ended = child.try_wait().map_err(|error| format!("bash: {error}"))?;
            if ended.is_some() || begin.elapsed() > LIMIT {
                let _ = child.kill();
                return Err(format!("no server\n{}", self.printed()));
            }
            sleep(Duration::from_millis(50));
        }
        self.server = Some(child);
        Ok(self.printed())
    }

    /// Ends the server as Ctrl-C does, with exit code 0.
    pub(super) fn stop(&mut self) -> Result<(), String> {
        let Some(mut server) = self.server.take() else { return Ok(()) };
        sh("kill", &["-INT", &server.id().to_string()])?;
        let status = server.wait().map_err(|error| format!("the server: {error}"))?;
        if status.success() { Ok(()) } else { Err(format!("the server: {status} after SIGINT")) }
    }

    /// A command of bash, whose output goes to a file. Cargo runs in the checkout, as in the guides.
    fn command(&self, text: &str) -> Result<Command, String> {
        let output = self.folder.join("output");
        let file = File::create(&output).map_err(|error| format!("cannot write {}: {error}", output.display()))?;
        let errors = file.try_clone().map_err(|error| format!("{}: {error}", output.display()))?;
        let mut command = Command::new("bash");
        command.args(["-euo", "pipefail", "-c", text]);
        command.current_dir(if text.starts_with("cargo ") { root() } else { &self.folder });
        let is_removed = |name: &str| REMOVED.iter().any(|start| name.starts_with(start));
        for (name, _) in std::env::vars().filter(|(name, _)| is_removed(name)) {
            command.env_remove(name);
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(file).stderr(errors);
        Ok(command)
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let folder = path.parent().unwrap_or(path);
    let made = fs::create_dir_all(folder).and_then(|()| fs::write(path, text));
    made.map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn open(path: &Path) -> Result<File, String> {
    File::open(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}
