//! The sampling that a model file recommends, under the keys of llama.cpp.

use gristmill_files::gguf::{FromValue, Metadata};
use gristmill_kernels::ops::{SETTINGS, SamplingOptions, Setting};

use crate::notice::Notice;

/// The defaults with the values that the file recommends, and a notice for each value that is not used.
pub(crate) fn recommended(metadata: &Metadata) -> (SamplingOptions, Vec<Notice>) {
    let (mut options, mut notices) = (SamplingOptions::default(), Vec::new());
    for setting in &SETTINGS {
        let Some(key) = setting.file_key else { continue };
        // Zero and negative numbers keep all tokens, as in llama.cpp.
        let value = match setting.whole {
            true => number(metadata, key, |value: i32| value.max(0).into()),
            false => number(metadata, key, |value: f32| value.into()),
        };
        let adopted = value.and_then(|value| value.map_or(Ok(options), |value| with(options, (setting, key), value)));
        match adopted {
            Ok(adopted) => options = adopted,
            Err(problem) => notices.push(Notice::RecommendedSampling(problem)),
        }
    }
    (options, notices)
}

fn number<'m, T: FromValue<'m>>(
    metadata: &'m Metadata,
    key: &str,
    number: impl FnOnce(T) -> f64,
) -> Result<Option<f64>, String> {
    Ok(metadata.optional::<T>(key).map_err(|error| error.to_string())?.map(number))
}

/// The options with this value, unless it is out of range.
fn with(options: SamplingOptions, (setting, key): (&Setting, &str), value: f64) -> Result<SamplingOptions, String> {
    let mut changed = options;
    (setting.set)(&mut changed, value);
    match changed.out_of_range() {
        None => Ok(changed),
        Some(_) => Err(format!("{key}: the value is out of range (found {}, expected {})", value as f32, setting.rule)),
    }
}

#[cfg(test)]
mod tests {
    use gristmill_files::gguf::{GgufWriter, Value};

    use super::*;

    fn of(pairs: &[(&str, Value)]) -> (SamplingOptions, Vec<Notice>) {
        let mut writer = GgufWriter::new();
        for (key, value) in pairs {
            writer.set(key, value.clone()).expect("a good key");
        }
        recommended(writer.preview().metadata())
    }

    #[test]
    fn values_of_the_file_replace_the_defaults() {
        let key = |name: &str| format!("general.sampling.{name}");
        let (options, notices) = of(&[
            (&key("temp"), Value::F32(0.6)),
            (&key("top_k"), Value::I32(-1)),
            (&key("top_p"), Value::F32(0.5)),
            (&key("min_p"), Value::F32(0.0)),
            (&key("penalty_repeat"), Value::F32(1.25)),
        ]);
        let expected = SamplingOptions {
            temperature: 0.6,
            top_k: 0,
            top_p: 0.5,
            min_p: 0.0,
            repeat_penalty: 1.25,
            ..SamplingOptions::default()
        };
        assert_eq!((options, notices), (expected, vec![]));
        assert_eq!(of(&[]), (SamplingOptions::default(), vec![]));
    }

    /// A value that is not used leaves the others, and is named.
    #[test]
    fn a_value_out_of_range_is_a_notice() {
        let (options, notices) = of(&[
            ("general.sampling.temp", Value::F32(-1.0)),
            ("general.sampling.top_p", Value::String("half".into())),
            ("general.sampling.top_k", Value::I32(7)),
        ]);
        assert_eq!(options, SamplingOptions { top_k: 7, ..SamplingOptions::default() });
        let texts: Vec<String> = notices.iter().map(ToString::to_string).collect();
        assert!(texts.len() == 2 && texts[0].contains("general.sampling.temp"), "{texts:?}");
        assert!(texts[1].contains("general.sampling.top_p"), "{texts:?}");
    }
}
