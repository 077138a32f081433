//! The models and workloads of a table in `docs/benchmarks.md`.

use std::fmt;

use serde::Serialize;

use super::measure::Workload;
use super::report::{Report, Row};
use crate::error::LabError;

/// A model, cut to some layers or whole, and its workloads.
pub struct Case {
    /// The name and the format of a synthetic model.
    pub model: &'static str,
    /// Layers of it; `None` for all.
    pub layers: Option<u32>,
    /// What is measured.
    pub workloads: &'static [Workload],
}

const SHORT: Workload = Workload { batch: 1, depth: 0, prompt: 512, decode: 32, chunk: 512 };
const LONG: Workload = Workload { prompt: 4096, decode: 0, ..SHORT };
const DEEP: Workload = Workload { depth: 8192, prompt: 0, ..SHORT };
const BATCH: Workload = Workload { batch: 8, prompt: 0, ..SHORT };

const fn moe(model: &'static str) -> Case {
    Case { model, layers: Some(4), workloads: &[SHORT] }
}

/// Formats, contexts and batches on the CPU.
pub const CPU: &[Case] = &[
    Case { model: "qwen3-30b-a3b:Q4_K_M", layers: Some(4), workloads: &[SHORT, LONG, DEEP, BATCH] },
    moe("qwen3-30b-a3b:Q8_0"),
    moe("qwen3-30b-a3b:Q4_0"),
    moe("qwen3-30b-a3b:Q6_K"),
    moe("qwen3-30b-a3b:Q5_K"),
    moe("qwen3-30b-a3b:Q3_K"),
    moe("qwen3-30b-a3b:Q2_K"),
    moe("qwen3-30b-a3b:IQ4_XS"),
    moe("qwen3-30b-a3b:IQ4_NL"),
    moe("gpt-oss-20b:MXFP4_MOE"),
    Case { model: "qwen3-30b-a3b:BF16", layers: Some(2), workloads: &[SHORT] },
    Case { model: "qwen3-30b-a3b:F16", layers: Some(2), workloads: &[SHORT] },
    Case { model: "qwen3-8b:Q4_K_M", layers: Some(8), workloads: &[SHORT] },
    Case { model: "smollm2-135m:Q8_0", layers: None, workloads: &[SHORT] },
    Case { model: "smollm2-135m:Q4_1", layers: None, workloads: &[SHORT] },
    Case { model: "qwen3-30b-a3b:Q4_K_M", layers: None, workloads: &[SHORT] },
];

/// One line of the results.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// The name of the case.
    pub model: String,
    /// Of the CPU.
    pub level: &'static str,
    /// Why the model was not measured.
    pub skipped: Option<String>,
    /// What was measured.
    pub report: Option<Report>,
}

/// The cases of these names: for each, the case that is called so, or all whose names contain it.
///
/// # Errors
/// If no case has the name.
pub fn chosen(names: &[String]) -> Result<Vec<&'static Case>, LabError> {
    for name in names {
        if !CPU.iter().any(|case| case.name().contains(name)) {
            let known = CPU.iter().map(Case::name).collect::<Vec<_>>().join("; ");
            return Err(LabError::Case { name: name.clone(), known });
        }
    }
    let is_asked = |case: &&Case, name: &String| {
        case.name() == *name || case.name().contains(name) && !CPU.iter().any(|other| other.name() == *name)
    };
    Ok(CPU.iter().filter(|case| names.is_empty() || names.iter().any(|name| is_asked(case, name))).collect())
}

impl Case {
    /// `qwen3-30b-a3b:Q8_0, 4 layers`.
    pub fn name(&self) -> String {
        self.layers.map_or(self.model.to_owned(), |layers| format!("{}, {layers} layers", self.model))
    }
}

/// The heads of the columns of an [`Outcome`].
pub const HEAD: &str =
    "\nmodel                                level     work                      tok/s         min .. max   reached";

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome { model, level, skipped, report } = self;
        if let Some(why) = skipped {
            writeln!(f, "{model:36} {level:9} skipped: {why}")?;
        }
        let Some(Report { workload, prefill, decode, .. }) = report else { return Ok(()) };
        let mut line = |work: String, row: &Option<Row>| match row {
            Some(row) => writeln!(f, "{model:36} {level:9} {work:20} {}", row.brief()),
            None => Ok(()),
        };
        line(format!("prefill {}", workload.prompt), prefill)?;
        match (workload.batch, workload.depth) {
            (1, 0) => line("decode".to_owned(), decode),
            (1, depth) => line(format!("decode at {depth}"), decode),
            (batch, _) => line(format!("decode of {batch}"), decode),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_chosen_by_its_name_or_a_part_of_it() {
        let names = |asked: &[&str]| {
            let asked: Vec<String> = asked.iter().map(|name| (*name).to_owned()).collect();
            chosen(&asked).map(|cases| cases.iter().map(|case| case.name()).collect::<Vec<_>>())
        };
        assert_eq!(names(&[]).unwrap().len(), CPU.len());
        assert_eq!(names(&["qwen3-30b-a3b:Q4_K_M"]).unwrap(), ["qwen3-30b-a3b:Q4_K_M"]);
        assert_eq!(
            names(&["Q8_0", "qwen3-8b"]).unwrap(),
            ["qwen3-30b-a3b:Q8_0, 4 layers", "qwen3-8b:Q4_K_M, 8 layers", "smollm2-135m:Q8_0"]
        );
        let refused = names(&["Q9"]).unwrap_err();
        assert!(refused.to_string().contains("smollm2-135m:Q4_1"), "{refused}");
    }
}
