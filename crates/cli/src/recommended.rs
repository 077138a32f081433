//! How tokens are drawn where the user does not say: as the model file recommends, otherwise as suits the model.

use std::fmt::Display;

use gristmill_engine::SamplingOptions;
use gristmill_engine::gguf::{FromValue, GgufFile, Metadata};

use crate::args::Verbosity;
use crate::source::Source;

/// The recommendations of a file, under the keys that llama.cpp reads too.
pub(crate) fn sampling(source: Source, file: &GgufFile, say: &Verbosity) -> SamplingOptions {
    let mut sampling = match source {
        Source::File(_) => SamplingOptions::default(),
        // Of the settings that repeat no more runs of four words than its training text does (0.4%), the one whose
        // stories the model that wrote that text finds most likely.
        Source::BuiltIn => SamplingOptions { temperature: 0.6, repeat_penalty: 1.15, ..SamplingOptions::default() },
    };
    let metadata = file.metadata();
    let mut adopt = Adopt { metadata, say, sampling: &mut sampling };
    adopt.key::<f32>("temp", |sampling, x| sampling.temperature = x);
    adopt.key::<f32>("top_p", |sampling, x| sampling.top_p = x);
    adopt.key::<f32>("min_p", |sampling, x| sampling.min_p = x);
    adopt.key::<f32>("penalty_repeat", |sampling, x| sampling.repeat_penalty = x);
    // As in llama.cpp, a negative number keeps all as well.
    adopt.key::<i32>("top_k", |sampling, k| sampling.top_k = u32::try_from(k).unwrap_or(0));
    sampling
}

struct Adopt<'a> {
    metadata: &'a Metadata,
    say: &'a Verbosity,
    sampling: &'a mut SamplingOptions,
}

impl<'a> Adopt<'a> {
    /// Takes over a key's value. One that is out of range is told and left out: it is only a recommendation.
    fn key<T: FromValue<'a>>(&mut self, name: &str, set: impl FnOnce(&mut SamplingOptions, T)) {
        let key = format!("general.sampling.{name}");
        let leave = |error: &dyn Display| {
            self.say.info(format_args!("{error}; the file recommends this as {key}, and it is left out"));
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
