//! Default sampling settings: those that the model file recommends, completed by gristmill's.

use std::fmt::Display;

use gristmill_engine::SamplingOptions;
use gristmill_files::gguf::{FromValue, GgufFile, Metadata};

use crate::args::Verbosity;
use crate::source::Source;

/// The defaults for a model; the file's keys are those of llama.cpp.
pub(crate) fn sampling(source: Source, file: &GgufFile, log: &Verbosity) -> SamplingOptions {
    let mut sampling = match source {
        Source::File(_) | Source::Hub(_) => SamplingOptions::default(),
        // Measured: stories repeat 0.4% of their runs of four words, as the training text does; of the settings with
        // that rate, the model that wrote the training text gives stories of this one the highest probability.
        Source::BuiltIn => SamplingOptions { temperature: 0.6, repeat_penalty: 1.15, ..SamplingOptions::default() },
    };
    let metadata = file.metadata();
    let mut adopt = Adopt { metadata, log, sampling: &mut sampling };
    adopt.key::<f32>("temp", |sampling, x| sampling.temperature = x);
    adopt.key::<f32>("top_p", |sampling, x| sampling.top_p = x);
    adopt.key::<f32>("min_p", |sampling, x| sampling.min_p = x);
    adopt.key::<f32>("penalty_repeat", |sampling, x| sampling.repeat_penalty = x);
    // Zero and negative numbers keep all tokens, as in llama.cpp.
    adopt.key::<i32>("top_k", |sampling, k| sampling.top_k = u32::try_from(k).unwrap_or(0));
    sampling
}

struct Adopt<'a> {
    metadata: &'a Metadata,
    log: &'a Verbosity,
    sampling: &'a mut SamplingOptions,
}

impl<'a> Adopt<'a> {
    /// Adopts the value of a key. A value out of range is reported and left out.
    fn key<T: FromValue<'a>>(&mut self, name: &str, set: impl FnOnce(&mut SamplingOptions, T)) {
        let key = format!("general.sampling.{name}");
        let leave = |error: &dyn Display| {
            self.log.info(format_args!("{error}; the file recommends this as {key}, and it is left out"));
        };
        match self.metadata.optional::<T>(&key) {
            Ok(None) => {}
            Ok(Some(value)) => {
                let mut changed = *self.sampling;
                set(&mut changed, value);
                match changed.check() {
                    Ok(()) => *self.sampling = changed,
                    Err(error) => leave(&error),
                }
            }
            Err(error) => leave(&error),
        }
    }
}
