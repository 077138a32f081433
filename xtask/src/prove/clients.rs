//! `prove clients`: runs client packages and test suites of other projects against `gristmill serve`.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::date::date_and_commit;
use super::ready::is_ready;
use super::report;
use crate::{build, model, root, sh};

/// The source of the package that holds the JSON-Schema-Test-Suite.
const SCHEMAS: &str = "jsonschema==4.26.0";
/// The test that runs this suite.
const SUITE: &str = "each_schema_of_the_suite_is_enforced_or_refused";
/// The test that reads the schemas of libraries.
const LIBRARIES: &str = "schemas_of_libraries_are_enforced";
/// Python packages that are named in the report.
const PACKAGES: [&str; 9] = [
    "openai",
    "anthropic",
    "schemathesis",
    "jsonschema",
    "openapi-spec-validator",
    "openapi-schema-validator",
    "pydantic",
    "pyzmq",
    "msgspec",
];
const FRAMEWORKS: [&str; 9] = [
    "litellm",
    "langchain",
    "langchain-openai",
    "langchain-anthropic",
    "instructor",
    "pydantic-ai-slim",
    "outlines",
    "openai",
    "anthropic",
];
/// npm packages that are named in the report.
const NPM: [&str; 7] =
    ["openai", "@anthropic-ai/sdk", "ai", "@ai-sdk/openai-compatible", "@ai-sdk/openai", "@ai-sdk/anthropic", "zod"];
/// npm programs.
const PROGRAMS: [&str; 4] = ["@anthropic-ai/claude-code", "@openai/codex", "opencode-ai", "@qwen-code/qwen-code"];
/// Programs that are also tested in an earlier version.
const EARLIER: [&str; 1] = ["@anthropic-ai/claude-code"];
/// A tiny vision tower, whose rows are as wide as the scripted model.
const TOWER: &str = "crates/conformance/golden/vision/lfm2-vl-f32.mmproj.gguf";
/// Random requests of schemathesis for each operation, besides those at the limits of each field.
const CASES: &str = "50";

/// A server process, which ends when the value is dropped.
pub(super) struct Server {
    child: Child,
    pub(super) address: String,
}

impl Server {
    /// Starts the server with a model, or with the built-in model.
    pub(super) fn start(gristmill: &Path, model: Option<&Path>, options: &[&str]) -> Result<Server, String> {
        let port = free_port()?;
        let child = Command::new(gristmill)
            .args(["serve", "--quiet", "--parallel", "8"])
            .args(options)
            .args(["--port", &port.to_string()])
            .args(model.into_iter().flat_map(|model| [Path::new("--model"), model]))
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("{}: {error}", gristmill.display()))?;
        let server = Server { child, address: format!("http://127.0.0.1:{port}") };
        let begin = Instant::now();
        while !is_ready(port) {
            if begin.elapsed() > Duration::from_secs(60) {
                return Err("the server does not answer within a minute".to_owned());
            }
            sleep(Duration::from_millis(50));
        }
        Ok(server)
    }
}

pub(super) fn free_port() -> Result<u16, String> {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    Ok(port.map_err(|error| format!("no free port: {error}"))?.port())
}

impl Drop for Server {
    fn drop(&mut self) {
        // Whether it had ended is seen by the client that failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The page's line for a line that a command prints.
pub(super) type Tells = fn(&str) -> Option<String>;

/// The page's line for a check of a script.
pub(super) fn checked(line: &str) -> Option<String> {
    let failed = line.strip_prefix("FAILED: ").map(|what| format!("- FAILED: {what}"));
    line.strip_prefix("ok: ").map(|what| format!("- {what}")).or(failed)
}

fn row(line: &str) -> Option<String> {
    line.starts_with('|').then(|| line.to_owned())
}

/// Schemathesis's number of requests.
fn generated(line: &str) -> Option<String> {
    line.contains(" generated, ").then(|| format!("- {line}"))
}

const OF_THE_SUITE: &str = "\
Each schema is enforced or refused; of those that are enforced, no instance that the suite calls invalid is allowed, except
where it is valid for several schemas of a `oneOf`. Valid ones may be refused for the order of their properties or their
white space.

| draft | enforced | refused | invalid instances | allowed by several schemas of a `oneOf` | valid instances that are allowed |
| --- | ---: | ---: | ---: | ---: | ---: |
";

const OF_LIBRARIES: &str = "\
Each schema is enforced; the texts that its library or a validator accepts are allowed, and those with one change that the
validator rejects are refused. Texts are also drawn from the grammar.

| library | schemas | refused | valid texts, all allowed | invalid texts, all refused | drawn texts |
| --- | ---: | ---: | ---: | ---: | ---: |
";

/// The page under construction.
pub(super) struct Page {
    pub(super) text: String,
    pub(super) failed: Vec<String>,
}

impl Page {
    /// Runs a command. Records what `tells` returns for its lines, or the failure.
    pub(super) fn add(&mut self, title: &str, intro: &str, tells: Tells, command: &mut Command) -> Result<(), String> {
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

/// Tools for the clients, from registries and from this repository.
struct Tools {
    scripts: PathBuf,
    packages: PathBuf,
    frameworks: PathBuf,
    lm_eval: PathBuf,
    aider: PathBuf,
    node: PathBuf,
    programs: PathBuf,
    earlier: PathBuf,
    schemas: PathBuf,
    gristmill: PathBuf,
    /// A server whose replies come from a script.
    scripted: PathBuf,
    model: PathBuf,
}

impl Tools {
    fn install() -> Result<Tools, String> {
        let folder = root().join("target/prove");
        let scripts = root().join("scripts/clients");
        let [packages, frameworks, lm_eval, aider] =
            ["packages", "frameworks", "lm_eval", "aider"].map(|name| python(&folder, &scripts, name));
        let [node, programs, earlier] = ["node", "programs", "earlier"].map(|name| folder.join(name));
        npm(&node, &["package.json", "with_node.mjs", "with_tools.mjs", "schemas.mjs"].map(|file| scripts.join(file)))?;
        npm(&programs, &[scripts.join("programs/package.json")])?;
        npm(&earlier, &[scripts.join("programs/earlier/package.json")])?;
        Ok(Tools {
            packages: packages?,
            frameworks: frameworks?,
            lm_eval: lm_eval?,
            aider: aider?,
            node,
            programs,
            earlier,
            schemas: schemas(&folder)?,
            gristmill: build("bin", "gristmill")?,
            scripted: build("example", "scripted")?,
            model: model::fetch()?,
            scripts,
        })
    }

    /// A heading, and the versions of all packages.
    fn heading(&self) -> Result<String, String> {
        let mut text = format!("# Clients of the server, {}\n\n", date_and_commit());
        text += "`cargo xtask prove clients`: packages as they come from their registries talk to `gristmill serve` \
                 with\nSmolLM2-135M-Instruct (Q4_1) on the CPU, and check what they get; the scripts are in \
                 `scripts/clients`. Where tools are called, a script chooses the tokens of\na random model \
                 (`crates/server/examples/scripted.rs`); all else is the server's.\n\n";
        text += &versions(&self.packages, &PACKAGES)?;
        text += &versions(&self.frameworks, &FRAMEWORKS)?;
        text += &versions(&self.lm_eval, &["lm-eval"])?;
        text += &versions(&self.aider, &["aider-chat"])?;
        text += &versions_of_npm(&self.node, &NPM);
        text += &versions_of_npm(&self.programs, &PROGRAMS);
        text += &versions_of_npm(&self.earlier, &EARLIER);
        Ok(text)
    }

    fn serve(&self, options: &[&str]) -> Result<Server, String> {
        Server::start(&self.gristmill, Some(&self.model), options)
    }

    fn script(&self, python: &Path, name: &str) -> Command {
        let mut command = Command::new(python);
        command.arg(self.scripts.join(name));
        command
    }
}

/// Runs all clients and suites, and fails unless all pass.
pub(super) fn clients(words: &[&str]) -> Result<(), String> {
    report::no_options("clients", words)?;
    let tools = Tools::install()?;
    let mut page = Page { text: tools.heading()?, failed: Vec::new() };
    packages(&tools, &mut page)?;
    programs(&tools, &mut page)?;
    calls(&tools, &mut page)?;
    suites(&tools, &mut page)?;
    report::write("clients", &page.text)?;
    match page.failed.is_empty() {
        true => Ok(()),
        false => Err(format!("not all clients passed:\n{}", page.failed.join("\n"))),
    }
}

/// Packages that programs use.
fn packages(tools: &Tools, page: &mut Page) -> Result<(), String> {
    let server = tools.serve(&["--ctx", "2048"])?;
    for (title, python, script) in [
        ("openai (Python)", &tools.packages, "with_openai.py"),
        ("anthropic (Python)", &tools.packages, "with_anthropic.py"),
        ("litellm, langchain-openai, instructor", &tools.frameworks, "with_frameworks.py"),
        ("openapi-spec-validator", &tools.packages, "with_openapi.py"),
    ] {
        page.add(title, "", checked, tools.script(python, script).arg(&server.address))?;
    }
    kv_events(tools, page)?;
    let script = tools.node.join("with_node.mjs");
    page.add("openai, ai (npm)", "", checked, Command::new("node").arg(script).arg(&server.address))?;
    let mut evaluation = tools.script(&tools.lm_eval, "with_lm_eval.py");
    evaluation.arg(&server.address).arg(&tools.gristmill).arg(&tools.model);
    evaluation.args(
        ["README.md", "ARCHITECTURE.md", "docs/serve.md", "docs/serve-api.md", "docs/library.md"]
            .map(|page| root().join(page)),
    );
    page.add("lm-eval", "", checked, &mut evaluation)
}

/// Events of the prefix cache.
fn kv_events(tools: &Tools, page: &mut Page) -> Result<(), String> {
    let [events, replay] = [free_port()?, free_port()?].map(|port| format!("tcp://127.0.0.1:{port}"));
    let server = tools.serve(&["--ctx", "2048", "--kv-events", &events, "--kv-events-replay", &replay])?;
    let mut script = tools.script(&tools.packages, "with_kv_events.py");
    page.add("pyzmq, msgspec", "", checked, script.args([&server.address, &events, &replay]))
}

/// Programs themselves. They request models by names of their own. The prompts of Codex have more than 8,192 tokens,
/// and the context ends its replies, because it sets no limit.
fn programs(tools: &Tools, page: &mut Page) -> Result<(), String> {
    let server = tools.serve(&["--ctx", "12288", "--alias", "claude-*", "--alias", "gpt-*"])?;
    let mut programs = tools.script(&tools.packages, "with_programs.py");
    page.add("Claude Code, Codex", "", checked, programs.arg(&server.address).arg(&tools.programs))
}

/// Packages and programs with tool calls, which a script writes instead of a model.
fn calls(tools: &Tools, page: &mut Page) -> Result<(), String> {
    let (scripted, model) = (&tools.scripted, &tools.model);
    let mut frameworks = tools.script(&tools.frameworks, "with_tools.py");
    page.add("Python packages that call tools", "", checked, frameworks.arg(scripted).arg(model))?;
    let mut packages = Command::new("node");
    packages.arg(tools.node.join("with_tools.mjs")).arg(&tools.packages).arg(&tools.scripts).arg(scripted).arg(model);
    page.add("npm packages that call tools", "", checked, &mut packages)?;
    let mut agents = tools.script(&tools.packages, "with_agents.py");
    agents.arg(scripted).arg(model).args([&tools.programs, &tools.earlier]).arg(&tools.aider);
    page.add("Programs that call tools", "", checked, &mut agents)?;
    let mut images = tools.script(&tools.frameworks, "with_images.py");
    images.arg(scripted).arg(model).arg(root().join(TOWER)).arg(&tools.programs);
    page.add("Packages and programs with images", "", checked, &mut images)
}

/// Test suites of other projects.
fn suites(tools: &Tools, page: &mut Page) -> Result<(), String> {
    // Whole replies of its made-up requests must be short: the context is 64 tokens.
    let server = tools.serve(&["--ctx", "64", "--alias", "*"])?;
    let mut schemathesis = Command::new(tools.packages.with_file_name("schemathesis"));
    schemathesis.args(["run", "--max-examples", CASES, "--phases", "examples,coverage,fuzzing", "--no-color"]);
    schemathesis.args(["--checks", "not_a_server_error,response_schema_conformance,content_type_conformance"]);
    page.add("schemathesis", "", generated, schemathesis.arg(format!("{}/openapi.json", server.address)))?;
    drop(server);

    let mut suite = Command::new("cargo");
    // With the whole workspace, as everything else is built.
    suite.args(["test", "--quiet", "--workspace", "--lib", SUITE, "--", "--ignored", "--nocapture"]);
    page.add("JSON-Schema-Test-Suite", OF_THE_SUITE, row, suite.current_dir(root()))?;
    let mut judge = Command::new(&tools.packages);
    judge.args(["-W", "ignore"]).arg(tools.scripts.join("drawn.py")).arg(tools.schemas.join("drawn.jsonl"));
    page.add("Texts drawn by those grammars", "", checked, &mut judge)?;
    libraries(tools, page)
}

/// Schemas of pydantic, zod and OpenAPI.
fn libraries(tools: &Tools, page: &mut Page) -> Result<(), String> {
    let folder = root().join("target/prove/schemas");
    let script = |name: &str| {
        let mut command = Command::new(&tools.packages);
        command.args(["-W", "ignore"]).arg(tools.scripts.join(name));
        command
    };
    let mut made = script("schemas.py");
    page.add("pydantic, zod, OpenAPI", "", checked, made.arg(tools.node.join("schemas.mjs")).arg(&folder))?;
    let mut test = Command::new("cargo");
    test.args(["test", "--quiet", "--workspace", "--lib", LIBRARIES, "--", "--ignored", "--nocapture"]);
    page.add("Grammars of their schemas", OF_LIBRARIES, row, test.current_dir(root()))?;
    let mut judge = script("drawn.py");
    page.add("Texts drawn by the grammars of libraries", "", checked, judge.arg(folder.join("drawn.jsonl")))
}

/// A Python with the packages of `NAME.txt`. Those of the frameworks want other versions of openai.
pub(super) fn python(folder: &Path, scripts: &Path, name: &str) -> Result<PathBuf, String> {
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

/// Creates a folder with these files. npm installs the packages of its `package.json`.
pub(super) fn npm(folder: &Path, files: &[PathBuf]) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    for file in files {
        let to = folder.join(file.file_name().unwrap_or_default());
        fs::copy(file, to).map_err(|error| format!("cannot copy {}: {error}", file.display()))?;
    }
    let prefix = folder.display().to_string();
    sh("npm", &["install", "--silent", "--no-audit", "--no-fund", "--prefix", &prefix])
        .map_err(|error| format!("{error}\nthe clients take Node.js with npm, and a network"))
}

/// The folder with the test suite, downloaded if it is missing.
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
pub(super) fn versions(python: &Path, packages: &[&str]) -> Result<String, String> {
    let script = "import sys, importlib.metadata as m; print(', '.join(f'{p} {m.version(p)}' for p in sys.argv[1:]))";
    let said = Command::new(python).args(["-c", script]).args(packages).output();
    let said = said.map_err(|error| format!("{}: {error}", python.display()))?;
    Ok(format!("- Python: {}\n", String::from_utf8_lossy(&said.stdout).trim()))
}

pub(super) fn versions_of_npm(node: &Path, packages: &[&str]) -> String {
    let one = |name: &&str| {
        let text = fs::read_to_string(node.join("node_modules").join(name).join("package.json")).unwrap_or_default();
        let version = text.split_once("\"version\":").and_then(|(_, rest)| rest.split('"').nth(1));
        format!("{name} {}", version.unwrap_or("unknown"))
    };
    format!("- npm: {}\n", packages.iter().map(one).collect::<Vec<_>>().join(", "))
}
