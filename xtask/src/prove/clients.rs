//! `prove clients`: packages that people use talk to `gristmill serve`, and suites of others judge it.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::date::date_and_commit;
use crate::{build, model, root, sh};

/// The source of the package that holds the JSON-Schema-Test-Suite.
const SCHEMAS: &str = "jsonschema==4.26.0";
/// The engine's test of that suite.
const SUITE: &str = "each_schema_of_the_suite_is_enforced_or_refused";
/// Python packages that are named in the page.
const PACKAGES: [&str; 4] = ["openai", "anthropic", "schemathesis", "jsonschema"];
const FRAMEWORKS: [&str; 4] = ["litellm", "langchain-openai", "instructor", "openai"];
/// Packages of npm that are.
const NPM: [&str; 3] = ["openai", "ai", "@ai-sdk/openai-compatible"];
/// Requests that schemathesis makes up for each operation, beside those for the limits of each field.
const CASES: &str = "50";

/// A server, which ends with the value.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(gristmill: &Path, model: &Path, options: &[&str]) -> Result<Server, String> {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let port = port.map_err(|error| format!("no free port: {error}"))?.port();
        let child = Command::new(gristmill)
            .args(["serve", "--quiet", "--parallel", "8"])
            .args(options)
            .args(["--port", &port.to_string(), "--model"])
            .arg(model)
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("{}: {error}", gristmill.display()))?;
        let server = Server { child, address: format!("http://127.0.0.1:{port}") };
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if begin.elapsed() > Duration::from_secs(60) {
                return Err("the server does not answer within a minute".to_owned());
            }
            sleep(Duration::from_millis(50));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Whether it had ended is seen by the client that failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the page has of a line that a command prints.
type Tells = fn(&str) -> Option<String>;

/// What a script has checked.
fn checked(line: &str) -> Option<String> {
    line.strip_prefix("ok: ").map(|what| format!("- {what}"))
}

fn row(line: &str) -> Option<String> {
    line.starts_with('|').then(|| line.to_owned())
}

/// Schemathesis's number of requests.
fn generated(line: &str) -> Option<String> {
    line.contains(" generated, ").then(|| format!("- {line}"))
}

const OF_THE_SUITE: &str = "\
Each schema is enforced or refused; of those that are enforced, no instance that the suite calls invalid is allowed. Valid
ones may be refused for the order of their properties or their white space.

| draft | enforced | refused | invalid instances, all refused | valid instances that are allowed |
| --- | ---: | ---: | ---: | ---: |
";

/// The page while it is written.
struct Page {
    text: String,
    failed: Vec<String>,
}

impl Page {
    /// Runs a command, and notes what `tells` makes of its lines, or that it failed.
    fn add(&mut self, title: &str, intro: &str, tells: Tells, command: &mut Command) -> Result<(), String> {
        eprintln!("{title}");
        let begin = Instant::now();
        let done = command.output().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
        let said = [&done.stdout, &done.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat();
        self.text += &format!("\n## {title}\n\n{intro}");
        said.lines().map(str::trim).filter_map(tells).for_each(|line| self.text += &format!("{line}\n"));
        self.text += &format!(
            "\n{} in {} s.\n",
            if done.status.success() { "Passed" } else { "FAILED" },
            begin.elapsed().as_secs()
        );
        if !done.status.success() {
            eprintln!("{said}");
            self.failed.push(format!("{title}: {}", done.status));
        }
        Ok(())
    }
}

/// Runs all clients and suites, and fails unless each passes.
pub(crate) fn clients(output: Option<&str>) -> Result<(), String> {
    let folder = root().join("target/prove");
    let scripts = root().join("scripts/clients");
    let [packages, frameworks, lm_eval] =
        ["packages", "frameworks", "lm_eval"].map(|name| python(&folder, &scripts, name));
    let (packages, frameworks, lm_eval) = (packages?, frameworks?, lm_eval?);
    let node = node(&folder.join("node"), &scripts)?;
    let schemas = schemas(&folder)?;
    let (gristmill, model) = (build("bin", "gristmill")?, model::fetch()?);

    let mut page = Page { text: format!("# Clients of the server, {}\n\n", date_and_commit()), failed: Vec::new() };
    page.text += "`cargo xtask prove clients`: packages as they come from their registries talk to `gristmill serve` with\n\
                  SmolLM2-135M-Instruct (Q4_1) on the CPU, and check what they get; the scripts are in `scripts/clients`.\n\n";
    page.text += &versions(&packages, &PACKAGES)?;
    page.text += &versions(&frameworks, &FRAMEWORKS)?;
    page.text += &versions(&lm_eval, &["lm-eval"])?;
    page.text += &versions_of_npm(&folder.join("node"));

    let server = Server::start(&gristmill, &model, &["--ctx", "2048"])?;
    for (title, python, script) in [
        ("openai (Python)", &packages, "with_openai.py"),
        ("anthropic (Python)", &packages, "with_anthropic.py"),
        ("litellm, langchain-openai, instructor", &frameworks, "with_frameworks.py"),
    ] {
        page.add(title, "", checked, Command::new(python).arg(scripts.join(script)).arg(&server.address))?;
    }
    page.add("openai, ai (npm)", "", checked, Command::new("node").arg(&node).arg(&server.address))?;
    let mut evaluation = Command::new(&lm_eval);
    evaluation.arg(scripts.join("with_lm_eval.py")).arg(&server.address).arg(&gristmill).arg(&model);
    evaluation.args(["README.md", "ARCHITECTURE.md", "docs/serve.md", "docs/library.md"].map(|page| root().join(page)));
    page.add("lm-eval", "", checked, &mut evaluation)?;
    drop(server);

    // Whole replies of its made-up requests must be short: the context is 64 tokens.
    let server = Server::start(&gristmill, &model, &["--ctx", "64", "--alias", "*"])?;
    let mut schemathesis = Command::new(packages.with_file_name("schemathesis"));
    schemathesis.args(["run", "--max-examples", CASES, "--phases", "examples,coverage,fuzzing", "--no-color"]);
    schemathesis.args(["--checks", "not_a_server_error,response_schema_conformance,content_type_conformance"]);
    page.add("schemathesis", "", generated, schemathesis.arg(format!("{}/openapi.json", server.address)))?;
    drop(server);

    let mut suite = Command::new("cargo");
    suite.args(["test", "--quiet", "--package", "gristmill-engine", "--lib", SUITE, "--", "--ignored", "--nocapture"]);
    page.add("JSON-Schema-Test-Suite", OF_THE_SUITE, row, suite.current_dir(root()))?;
    page.add(
        "Texts drawn by those grammars",
        "",
        checked,
        Command::new(&packages).args(["-W", "ignore"]).arg(scripts.join("drawn.py")).arg(schemas.join("drawn.jsonl")),
    )?;

    println!("{}", page.text);
    if let Some(path) = output {
        fs::write(path, &page.text).map_err(|error| format!("cannot write {path}: {error}"))?;
    }
    match page.failed.is_empty() {
        true => Ok(()),
        false => Err(format!("not all clients passed:\n{}", page.failed.join("\n"))),
    }
}

/// A Python with the packages of `NAME.txt`. Those of the frameworks want other versions of openai.
fn python(folder: &Path, scripts: &Path, name: &str) -> Result<PathBuf, String> {
    let venv = folder.join(name);
    let python = venv.join("bin/python");
    let [folder, program] = [&venv, &python].map(|path| path.display().to_string());
    let wanted = scripts.join(format!("{name}.txt")).display().to_string();
    if !python.is_file() {
        sh("python3", &["-m", "venv", &folder])?;
    }
    sh(&program, &["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement", &wanted])
        .map_err(|error| format!("{error}\nthe clients take python3 with venv, and a network"))?;
    Ok(python)
}

/// The script for Node.js beside the packages that it takes.
fn node(folder: &Path, scripts: &Path) -> Result<PathBuf, String> {
    fs::create_dir_all(folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    for file in ["package.json", "with_node.mjs"] {
        fs::copy(scripts.join(file), folder.join(file)).map_err(|error| format!("cannot copy {file}: {error}"))?;
    }
    let prefix = folder.display().to_string();
    sh("npm", &["install", "--silent", "--no-audit", "--no-fund", "--prefix", &prefix])
        .map_err(|error| format!("{error}\nthe clients take Node.js with npm, and a network"))?;
    Ok(folder.join("with_node.mjs"))
}

/// The folder with the test suite, which is fetched unless it is there.
fn schemas(folder: &Path) -> Result<PathBuf, String> {
    let suite = folder.join("json-schema");
    if suite.join("tests").is_dir() {
        return Ok(suite);
    }
    let work = folder.join("jsonschema-source");
    let destination = work.display().to_string();
    sh(
        "python3",
        &["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", &destination, SCHEMAS],
    )?;
    let archive = work.join(format!("{}.tar.gz", SCHEMAS.replace("==", "-")));
    sh("tar", &["-xzf", &archive.display().to_string(), "-C", &destination])?;
    let unpacked = work.join(SCHEMAS.replace("==", "-")).join("json");
    fs::rename(&unpacked, &suite).map_err(|error| format!("{}: {error}", unpacked.display()))?;
    let _ = fs::remove_dir_all(&work);
    Ok(suite)
}

/// A line with the packages of a Python and their versions.
fn versions(python: &Path, packages: &[&str]) -> Result<String, String> {
    let script = "import sys, importlib.metadata as m; print(', '.join(f'{p} {m.version(p)}' for p in sys.argv[1:]))";
    let said = Command::new(python).args(["-c", script]).args(packages).output();
    let said = said.map_err(|error| format!("{}: {error}", python.display()))?;
    Ok(format!("- Python: {}\n", String::from_utf8_lossy(&said.stdout).trim()))
}

fn versions_of_npm(node: &Path) -> String {
    let one = |name: &&str| {
        let text = fs::read_to_string(node.join("node_modules").join(name).join("package.json")).unwrap_or_default();
        let version = text.split_once("\"version\":").and_then(|(_, rest)| rest.split('"').nth(1));
        format!("{name} {}", version.unwrap_or("unknown"))
    };
    format!("- npm: {}\n", NPM.iter().map(one).collect::<Vec<_>>().join(", "))
}
