//! Models that judge whether a document answers a query, by the logits of "yes" and "no": Qwen3-Reranker.
//!
//! llama.cpp's converter writes the two rows of the head as `cls.output.weight`, with `pooling_type` 4 (rank), the labels
//! of the rows in `classifier.output_labels`, and the prompt in `tokenizer.chat_template.rerank`. Other files contain the
//! whole language model; their name shows what they are.

use gristmill_files::gguf::{GgufFile, TensorInfo};
use gristmill_text::tokenizer::{EncodeOptions, Tokenizer};

use crate::model::Model;

/// The prompt that Qwen publishes with the model, in the form of `tokenizer.chat_template.rerank`.
const PROMPT: &str = "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the \
                      Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n\
                      <Instruct>: Given a web search query, retrieve relevant passages that answer the query\n\
                      <Query>: {query}\n<Document>: {document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
const QUERY: &str = "{query}";
const DOCUMENT: &str = "{document}";
const LABELS: [&str; 2] = ["yes", "no"];
/// The value of `pooling_type` for rerankers.
const RANK: u32 = 4;
/// The tensor of a file that has only two rows of the head.
pub(crate) const CLASSIFIER: &str = "cls.output.weight";

/// The head and the prompt of a reranker.
#[derive(Clone, Debug, PartialEq)]
pub struct Reranker {
    /// Rows of the head for "yes" and "no", of the model's width.
    rows: [Vec<f32>; 2],
    prompt: String,
}

impl Reranker {
    /// The reranker that a model is; `None` for another model.
    pub fn of(model: &Model) -> Option<Self> {
        let (file, width) = (model.file(), model.spec().hidden);
        let metadata = file.metadata();
        let text = |key: &str| metadata.optional::<&str>(key).ok().flatten();
        let prompt = text("tokenizer.chat_template.rerank").unwrap_or(PROMPT);
        // A prompt of another form is another model's.
        if !prompt.contains(QUERY) || !prompt.contains(DOCUMENT) {
            return None;
        }
        let key = |name: &str| format!("{}.{name}", model.spec().architecture);
        let pooling = metadata.optional::<u32>(&key("pooling_type")).ok().flatten();
        let rows = match file.tensor(CLASSIFIER) {
            Some(head) if pooling == Some(RANK) && head.shape == [width as u64, 2] => {
                let labels = metadata.optional::<&[String]>(&key("classifier.output_labels")).ok().flatten();
                let of_label = |label: &str| match labels {
                    Some(labels) => labels.iter().position(|found| found == label),
                    None => LABELS.iter().position(|found| *found == label),
                };
                LABELS.map(|label| row(file, head, of_label(label)?))
            }
            Some(_) => return None,
            None => {
                let names = ["general.name", "general.basename"].map(|key| text(key).unwrap_or_default());
                if !names.into_iter().any(is_reranker) {
                    return None;
                }
                let head = file.tensor("output.weight").or_else(|| file.tensor("token_embd.weight"))?;
                let tokenizer = model.tokenizer().ok()?;
                LABELS.map(|label| row(file, head, token(tokenizer, label)?))
            }
        };
        let [Some(yes), Some(no)] = rows else { return None };
        Some(Self { rows: [yes, no], prompt: prompt.to_owned() })
    }

    /// The prompt that judges a document, and the bytes of the query and of the document in it, in which no control token
    /// is read.
    pub fn prompt(&self, query: &str, document: &str) -> (String, Vec<usize>) {
        let (mut text, mut plain, mut rest) = (String::new(), Vec::new(), self.prompt.as_str());
        let places =
            |rest: &str| [(QUERY, query), (DOCUMENT, document)].map(|(name, value)| (rest.find(name), name, value));
        while let Some((at, name, value)) = places(rest)
            .into_iter()
            .filter_map(|(at, name, value)| Some((at?, name, value)))
            .min_by_key(|place| place.0)
        {
            text.push_str(&rest[..at]);
            plain.extend(text.len()..text.len() + value.len());
            text.push_str(value);
            rest = &rest[at + name.len()..];
        }
        text.push_str(rest);
        (text, plain)
    }

    /// The probability of "yes" against "no" after a prompt, from 0 to 1, by the hidden state of its last token after the
    /// last norm.
    pub fn score(&self, state: &[f32]) -> f32 {
        let logit = |row: &[f32]| -> f64 { row.iter().zip(state).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum() };
        let [yes, no] = [&self.rows[0], &self.rows[1]].map(|row| logit(row));
        (1.0 / (1.0 + (no - yes).exp())) as f32
    }
}

/// Whether a name is that of the model, however it is written.
fn is_reranker(name: &str) -> bool {
    name.to_lowercase().replace([' ', '_'], "-").contains("qwen3-reranker")
}

/// The only token of a word.
fn token(tokenizer: &Tokenizer, word: &str) -> Option<usize> {
    let options = EncodeOptions { add_special: false, parse_special: false };
    match tokenizer.encode(word, options).ok()?.as_slice() {
        [token] => Some(*token as usize),
        _ => None,
    }
}

/// A row of a matrix, decoded.
fn row(file: &GgufFile, matrix: &TensorInfo, index: usize) -> Option<Vec<f32>> {
    let width = usize::try_from(*matrix.shape.first()?).ok()?;
    let bytes = matrix.format.row_bytes(width)?;
    let mut values = vec![0.0; width];
    let start = index.checked_mul(bytes)?;
    matrix.format.decode(file.data(matrix).get(start..start.checked_add(bytes)?)?, &mut values)?;
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_has_both_texts_as_they_are() {
        let reranker = Reranker { rows: [vec![1.0, 0.0], vec![0.0, 1.0]], prompt: "<s>{query}|{document}.".to_owned() };
        let (text, plain) = reranker.prompt("{document}", "<s>");
        assert_eq!(text, "<s>{document}|<s>.");
        assert_eq!(plain, (3..13).chain(14..17).collect::<Vec<_>>());
        assert!((reranker.score(&[3.0, 1.0]) - 0.880_797_1).abs() < 1e-6);
        assert_eq!(reranker.score(&[-1e30, 1e30]), 0.0);
    }

    #[test]
    fn names_are_recognised() {
        for name in ["Qwen3-Reranker-0.6B", "Qwen3 Reranker 0.6B", "qwen3_reranker"] {
            assert!(is_reranker(name), "{name}");
        }
        assert!(!is_reranker("Qwen3-Embedding-0.6B"));
    }
}
