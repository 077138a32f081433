//! One option for each setting of the sampler, from their table.

use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};
use gristmill_engine::SamplingOptions;
use gristmill_engine::{SETTINGS, Setting, check_sampling, requested_value};

use crate::failure::Failure;
use crate::{numbers, recommended};

/// The settings that the command line has.
#[derive(Clone, Debug, Default)]
pub(crate) struct SettingArgs(Vec<(&'static Setting, f64)>);

impl SettingArgs {
    pub(crate) fn apply(&self, options: &mut SamplingOptions) {
        self.0.iter().for_each(|(setting, value)| (setting.set)(options, *value));
    }

    /// Fails if a setting is out of its range.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let mut options = SamplingOptions::default();
        self.apply(&mut options);
        Ok(check_sampling(&options)?)
    }
}

impl FromArgMatches for SettingArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<SettingArgs, Error> {
        let mut settings = SettingArgs::default();
        settings.update_from_arg_matches(matches)?;
        Ok(settings)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        for setting in &SETTINGS {
            let value = match setting.whole {
                true => matches.try_get_one::<u32>(setting.name).map(|value| value.map(|&value| f64::from(value))),
                false => matches.try_get_one::<f32>(setting.name).map(|value| value.map(|&value| f64::from(value))),
            };
            let value = value.map_err(|error| Error::raw(ErrorKind::UnknownArgument, error))?;
            self.0.extend(value.map(|value| (setting, requested_value(setting, value))));
        }
        Ok(())
    }
}

impl Args for SettingArgs {
    fn augment_args(command: Command) -> Command {
        command.args(SETTINGS.iter().map(arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        SettingArgs::augment_args(command)
    }
}

fn arg(setting: &'static Setting) -> Arg {
    let arg = Arg::new(setting.name).long(option(setting)).help(help(setting)).help_heading("Length and sampling");
    match setting.whole {
        true => arg.value_name("N").allow_negative_numbers(true).value_parser(numbers::count_or_all),
        false => arg.value_name("X").allow_hyphen_values(true).value_parser(numbers::number),
    }
}

/// The name of the option, without its dashes.
fn option(setting: &Setting) -> String {
    match setting.name {
        "temperature" => "temp".to_owned(),
        name => name.replace('_', "-"),
    }
}

fn help(setting: &Setting) -> String {
    let (usual, built_in) = (SamplingOptions::default(), recommended::built_in());
    let mut default = shown(setting, &usual);
    if setting.file_key.is_some() {
        default = format!("as the model file recommends, or {default}");
    }
    if (setting.get)(&usual) != (setting.get)(&built_in) {
        default += &format!("; of the built-in model {}", shown(setting, &built_in));
    }
    format!("{} [default: {default}]", setting.help)
}

/// The value of a setting.
fn shown(setting: &Setting, options: &SamplingOptions) -> String {
    match setting.whole {
        true => ((setting.get)(options) as u64).to_string(),
        false => ((setting.get)(options) as f32).to_string(),
    }
}

/// All settings with their values.
pub(crate) fn line(options: &SamplingOptions) -> String {
    let one = |setting: &Setting| format!("{} {}", setting.name.replace('_', "-"), shown(setting, options));
    SETTINGS.iter().map(one).collect::<Vec<_>>().join(", ")
}
