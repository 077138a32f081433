//! Models that judge whether a document answers a query, by the logits of "yes" and "no": Qwen3-Reranker.
//!
//! llama.cpp's converter writes the two rows of the head as `cls.output.weight`, with `pooling_type` 4 (rank), the labels
//! of the rows in `classifier.output_labels`, and the prompt in `tokenizer.chat_template.rerank`. Other files contain the
//! whole language model; their name shows what they are.

use gristmill_files::gguf::{GgufFile, TensorInfo};
use gristmill_text::tokenizer::{EncodeOptions, Tokenizer};

use crate::model::Model;
use crate::spec::CLASSIFIER;

/// The prompt that Qwen publishes with the model, in the form of `tokenizer.chat_template.rerank`.
const PROMPT: &str = "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the \
                      Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n\
                      <Instruct>: Given a web search query, retrieve relevant passages that answer the query\n\
                      <Query>: {query}\n<Document>: {document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
/// The line of a prompt that contains the instruction starts with this.
const INSTRUCT: &str = "<Instruct>: ";
const LABELS: [&str; 2] = ["yes", "no"];
/// The value of `pooling_type` for rerankers.
const RANK: u32 = 4;

/// The head and the prompt of a reranker.
#[derive(Clone, Debug, PartialEq)]
pub struct Reranker {
    /// Rows of the head for "yes" and "no", of the model's width.
    rows: [Vec<f32>; 2],
    prompt: Vec<Piece>,
}

/// A piece of a prompt.
#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(String),
    /// The instruction of the model's own prompt, which a request can replace.
    Instruction(String),
    Query,
    Document,
}

impl Reranker {
    /// The reranker that a model is; `None` for another model.
    pub fn of(model: &Model) -> Option<Self> {
        let file = model.file();
        let width = model.spec().hidden;
        let metadata = file.metadata();
        let text = |key: &str| metadata.optional::<&str>(key).ok().flatten();
        // A prompt of another form is another model's.
        let prompt = pieces(text("tokenizer.chat_template.rerank").unwrap_or(PROMPT))?;
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
        Some(Self { rows: [yes, no], prompt })
    }

    /// Whether a request can replace the instruction in the prompt.
    pub fn takes_instruction(&self) -> bool {
        self.prompt.iter().any(|piece| matches!(piece, Piece::Instruction(_)))
    }

    /// The prompt that judges a document, with this instruction or with the model's own. Also returns the bytes of the
    /// query, the document and the given instruction in it, in which no control token is read.
    pub fn prompt(&self, instruction: Option<&str>, query: &str, document: &str) -> (String, Vec<usize>) {
        let (mut text, mut plain) = (String::new(), Vec::new());
        for piece in &self.prompt {
            let (value, is_plain) = match piece {
                Piece::Text(fixed) => (fixed.as_str(), false),
                Piece::Instruction(own) => (instruction.unwrap_or(own), instruction.is_some()),
                Piece::Query => (query, true),
                Piece::Document => (document, true),
            };
            if is_plain {
                plain.extend(text.len()..text.len() + value.len());
            }
            text.push_str(value);
        }
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

/// The pieces of a prompt in the form of `tokenizer.chat_template.rerank`; `None` if it lacks the query or the document.
fn pieces(prompt: &str) -> Option<Vec<Piece>> {
    let mut pieces = Vec::new();
    let own = prompt.split_once(INSTRUCT).and_then(|(head, rest)| Some((head, rest.split_once('\n')?)));
    let mut rest = match own {
        // Not an instruction that the template itself fills.
        Some((head, (own, tail))) if !own.contains('{') && !head.contains('{') => {
            pieces.extend([Piece::Text(format!("{head}{INSTRUCT}")), Piece::Instruction(own.to_owned())]);
            &prompt[prompt.len() - tail.len() - 1..]
        }
        _ => prompt,
    };
    let named = [("{query}", Piece::Query), ("{document}", Piece::Document)];
    while let Some((at, name, piece)) =
        named.iter().filter_map(|(name, piece)| Some((rest.find(name)?, name, piece))).min_by_key(|found| found.0)
    {
        pieces.extend([Piece::Text(rest[..at].to_owned()), piece.clone()]);
        rest = &rest[at + name.len()..];
    }
    pieces.push(Piece::Text(rest.to_owned()));
    named.iter().all(|(_, piece)| pieces.contains(piece)).then_some(pieces)
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

    fn reranker(prompt: &str) -> Option<Reranker> {
        Some(Reranker { rows: [vec![1.0, 0.0], vec![0.0, 1.0]], prompt: pieces(prompt)? })
    }

    #[test]
    fn a_prompt_has_both_texts_as_they_are() {
        let reranker = reranker("<s>{query}|{document}.").expect("it has both");
        let (text, plain) = reranker.prompt(None, "{document}", "<s>");
        assert_eq!(text, "<s>{document}|<s>.");
        assert_eq!(plain, (3..13).chain(14..17).collect::<Vec<_>>());
        assert!((reranker.score(&[3.0, 1.0]) - 0.880_797_1).abs() < 1e-6);
        assert_eq!(reranker.score(&[-1e30, 1e30]), 0.0);
        assert!(!reranker.takes_instruction());
    }

    #[test]
    fn an_instruction_replaces_that_of_the_prompt() {
        let reranker = reranker(PROMPT).expect("it has both");
        assert!(reranker.takes_instruction());
        let (own, plain) = reranker.prompt(None, "Q", "D");
        assert_eq!(own, PROMPT.replace("{query}", "Q").replace("{document}", "D"));
        assert_eq!(plain.len(), 2);
        let (text, plain) = reranker.prompt(Some("{query}\n<s>"), "Q", "D");
        let before = "Given a web search query, retrieve relevant passages that answer the query";
        assert_eq!(text, own.replace(before, "{query}\n<s>"));
        let plain: String = plain.into_iter().map(|at| char::from(text.as_bytes()[at])).collect();
        assert_eq!(plain, "{query}\n<s>QD");
    }

    #[test]
    fn prompts_of_other_forms_are_recognised() {
        assert_eq!(pieces("{query}"), None);
        assert_eq!(pieces("<Instruct>: a\n{document}"), None);
        let takes = |prompt: &str| reranker(prompt).expect("it has both").takes_instruction();
        assert!(takes("<Instruct>: a\n{query}{document}"));
        // A line that is not the model's own text, or that does not end.
        assert!(!takes("<Instruct>: {query}\n{document}"));
        assert!(!takes("{query}<Instruct>: {document}"));
        assert!(!takes("{query}{document}<Instruct>: a\n"));
    }

    #[test]
    fn names_are_recognised() {
        for name in ["Qwen3-Reranker-0.6B", "Qwen3 Reranker 0.6B", "qwen3_reranker"] {
            assert!(is_reranker(name), "{name}");
        }
        assert!(!is_reranker("Qwen3-Embedding-0.6B"));
    }
}
