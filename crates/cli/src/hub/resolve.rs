//! The settings of the environment, and the way from a name to files.

use std::cell::Cell;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use gristmill_hub::{Choice, ENDPOINT, Hub, Options, Reference, Token, model_path};

use super::progress::Reporter;
use crate::failure::Failure;
use crate::verbosity::Verbosity;

/// Settings of the command line. The environment has the rest.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Choices<'a> {
    pub(crate) offline: bool,
    pub(crate) endpoint: Option<&'a str>,
    pub(crate) connections: Option<usize>,
}

/// Whether `--offline` was given, which counts for all models of a command as HF_HUB_OFFLINE does.
static OFFLINE: AtomicBool = AtomicBool::new(false);

thread_local! {
    static OFFLINE_HERE: Cell<bool> = const { Cell::new(false) };
}

/// Whether models that this thread opens are downloaded, in a process that opens others with other options.
pub(crate) fn set_offline_here(is_offline: bool) {
    OFFLINE_HERE.set(is_offline);
}

/// From now on nothing is downloaded.
pub(crate) fn stay_offline() {
    OFFLINE.store(true, Ordering::Relaxed);
}

/// The name of a model of the hub, if a model argument is one: a marked name (`hf:ORG/REPO`, an address of the hub), or
/// a bare one (`ORG/REPO`) that is no file.
pub(crate) fn name(model: &Path) -> Option<&str> {
    let is_bare = |name: &str| Reference::is_bare(name) && !model.exists();
    model.to_str().filter(|name| Reference::is_marked(name) || is_bare(name))
}

/// The first file of a model of the hub, or its folder. A marked name is downloaded unless the cache has it; a bare name is looked up
/// in the cache only, because it may be a path with a mistake.
pub(crate) fn path(name: &str, log: &Verbosity) -> Result<PathBuf, Failure> {
    if !Reference::is_marked(name) {
        return cached(name);
    }
    let reference: Reference = name.parse()?;
    let hub = client(Choices::default())?;
    let reporter = Reporter::new(log);
    let files = hub.fetch(&reference, &|event| reporter.event(event));
    reporter.finish();
    let path = model_path(&files?).map(Path::to_owned);
    path.ok_or_else(|| Failure::new(format!("{name} has no files; name another model")))
}

/// A name of a model, of a command that takes no paths.
pub(super) fn reference(name: &str) -> Result<Reference, Failure> {
    name.parse().map_err(|error| Failure::from(error).into_usage())
}

/// Several names.
pub(super) fn references(names: &[String]) -> Result<Vec<Reference>, Failure> {
    names.iter().map(|name| reference(name)).collect()
}

/// The first file of a model in the cache, or its folder.
pub(crate) fn cached(name: &str) -> Result<PathBuf, Failure> {
    let cache = cache()?;
    let found = cache.find(&name.parse()?)?.and_then(|files| model_path(&files).map(Path::to_owned));
    found.ok_or_else(|| {
        let root = cache.root().display();
        let missing = format!("{name}: no such file or folder, and no such model in the cache {root}");
        Failure::new(format!("{missing}; to download it: gristmill pull {name}"))
    })
}

/// What a repository has besides its models, in one line.
pub(crate) fn no_models(companions: &[Choice]) -> String {
    let one = |choice: &Choice| format!("{} ({})", choice.path(), choice.kind);
    let all: Vec<String> = companions.iter().map(one).collect();
    format!("no language models: {}", all.join(", "))
}

/// A client with the settings of the environment and of the command line.
pub(crate) fn client(choices: Choices) -> Result<Hub, Failure> {
    let offline = choices.offline || OFFLINE.load(Ordering::Relaxed) || OFFLINE_HERE.get();
    let choices = Choices { offline, ..choices };
    Ok(Hub::new(options(choices, &environment)?)?)
}

/// The folder of the cache.
pub(crate) fn cache() -> Result<gristmill_hub::Cache, Failure> {
    Ok(gristmill_hub::Cache::new(folders(&environment)?.1))
}

fn environment(name: &str) -> Option<String> {
    env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// Settings from variables that other programs of the hub also read.
fn options(choices: Choices, variable: &dyn Fn(&str) -> Option<String>) -> Result<Options, Failure> {
    let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
    let (home, cache) = folders(variable)?;
    let token = match set("HF_TOKEN") {
        Some(token) => Some(token),
        // huggingface_hub keeps the token of `hf auth login` here.
        None => fs::read_to_string(home.join("token")).ok(),
    };
    let truth = |value: String| ["1", "true", "yes", "on"].contains(&value.trim().to_ascii_lowercase().as_str());
    let basics = Options::new(cache);
    Ok(Options {
        endpoint: choices.endpoint.map(str::to_owned).or(set("HF_ENDPOINT")).unwrap_or_else(|| ENDPOINT.to_owned()),
        token: token.as_deref().map_or(Ok(None), Token::new)?,
        offline: choices.offline || set("HF_HUB_OFFLINE").is_some_and(truth),
        connections: choices.connections.unwrap_or(basics.connections),
        system_proxy: true,
        ..basics
    })
}

/// The folder of the hub's settings, and that of its cache.
fn folders(variable: &dyn Fn(&str) -> Option<String>) -> Result<(PathBuf, PathBuf), Failure> {
    let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty()).map(PathBuf::from);
    let user = || {
        let found = etcetera::home_dir();
        found.map_err(|_| Failure::new("there is no home directory for a cache; name its folder with HF_HUB_CACHE"))
    };
    let home = match (set("HF_HOME"), set("XDG_CACHE_HOME")) {
        (Some(home), _) => home,
        (None, Some(cache)) => cache.join("huggingface"),
        (None, None) => match (user(), set("HF_HUB_CACHE")) {
            (Ok(user), _) => user.join(".cache").join("huggingface"),
            (Err(_), Some(cache)) => cache,
            (Err(error), None) => return Err(error),
        },
    };
    let cache = set("HF_HUB_CACHE").unwrap_or_else(|| home.join("hub"));
    Ok((home, cache))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options_of(choices: Choices, pairs: &[(&str, &str)]) -> Options {
        let variable = |name: &str| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string());
        options(choices, &variable).expect("settings")
    }

    #[test]
    fn variables_are_those_of_the_hub() {
        let nothing = options_of(Choices::default(), &[("XDG_CACHE_HOME", "/x")]);
        assert_eq!(
            (nothing.endpoint.as_str(), nothing.cache.as_path(), nothing.offline, nothing.token.is_some()),
            (ENDPOINT, Path::new("/x/huggingface/hub"), false, false)
        );
        let all =
            [("HF_HOME", "/h"), ("HF_ENDPOINT", "http://mirror"), ("HF_HUB_OFFLINE", "True"), ("HF_TOKEN", "hf_x")];
        let set = options_of(Choices::default(), &all);
        assert_eq!(
            (set.endpoint.as_str(), set.cache.as_path(), set.offline),
            ("http://mirror", Path::new("/h/hub"), true)
        );
        assert!(set.token.is_some());
        let given = Choices { offline: true, endpoint: Some("http://here"), connections: Some(2) };
        let given =
            options_of(given, &[("HF_HUB_CACHE", "/c"), ("HF_ENDPOINT", "http://mirror"), ("HF_HUB_OFFLINE", "0")]);
        assert_eq!(
            (given.endpoint.as_str(), given.cache.as_path(), given.connections),
            ("http://here", Path::new("/c"), 2)
        );
        assert!(
            given.offline && !options_of(Choices::default(), &[("HF_HOME", "/h"), ("HF_HUB_OFFLINE", "0")]).offline
        );
    }

    #[test]
    fn the_token_may_be_in_a_file() {
        let home = std::env::temp_dir().join(format!("gristmill-token-{}", std::process::id()));
        fs::create_dir_all(&home).expect("a folder");
        fs::write(home.join("token"), "hf_file\n").expect("a token");
        let found = options_of(Choices::default(), &[("HF_HOME", &home.to_string_lossy())]);
        assert!(found.token.is_some() && !format!("{found:?}").contains("hf_file"));
        fs::remove_dir_all(home).expect("removed");
    }
}
