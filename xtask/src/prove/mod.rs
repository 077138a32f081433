//! `prove`: proofs that take too long for every run of CI. Each writes its report into `target/prove`.

mod barriers;
mod browser;
mod checked;
mod clients;
mod cpu_levels;
mod date;
mod format_mutations;
mod guides;
mod hub;
mod kernels;
mod list;
mod mutations;
mod publish;
mod python;
mod ready;
mod replicas;
mod report;
mod rounds;
mod scratch_tree;
mod seeds;
mod settings;
mod synthetic;
mod templates;

pub(crate) use date::date;
pub(crate) use kernels::few as compile_few;
pub(crate) use kernels::only as compile_only;

use crate::sh;

/// Runs a proof with these options.
type Run = fn(&[&str]) -> Result<(), String>;

/// All proofs, those first that take least.
const PROOFS: [(&str, Run); 17] = [
    ("hub", hub::hub),
    ("page", browser::browser),
    ("templates", templates::templates),
    ("guides", guides::guides),
    ("publish", publish::publish),
    ("python", python::python),
    ("replicas", replicas::replicas),
    ("clients", clients::clients),
    ("synthetic", synthetic::synthetic),
    ("settings", settings::settings),
    ("cross", cross),
    ("amx", amx),
    ("checked", checked::checked),
    ("kernels", kernels::all),
    ("seeds", seeds::seeds),
    ("barriers", barriers::barriers),
    ("mutations", mutations::mutations),
];

/// Runs one proof with its options, or all one after another.
pub(crate) fn prove(words: &[&str]) -> Result<(), String> {
    let Some((&name, options)) = words.split_first() else {
        let run = |(name, run): &(&str, Run)| run(&[]).map_err(|error| format!("{name}: {error}"));
        let failed: Vec<String> = PROOFS.iter().filter_map(|proof| run(proof).err()).collect();
        return if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) };
    };
    match PROOFS.iter().find(|(known, _)| *known == name) {
        Some((_, run)) => run(options),
        None => Err(format!("prove: there is no proof {name}; there are {}", PROOFS.map(|(name, _)| name).join(", "))),
    }
}

fn cross(words: &[&str]) -> Result<(), String> {
    report::no_options("cross", words)?;
    sh("scripts/cross.sh", &["all"])
}

fn amx(words: &[&str]) -> Result<(), String> {
    report::no_options("amx", words)?;
    sh("scripts/amx.sh", &["run"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_proofs_are_refused() {
        assert!(prove(&["--all"]).is_err_and(|error| error.contains("no proof --all") && error.contains("templates")));
        assert!(prove(&["cross", "few"]).is_err_and(|error| error.contains("few")));
    }
}
