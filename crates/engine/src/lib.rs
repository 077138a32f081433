//! GGUF files, tokenizers, chat templates and the model runner.

pub mod gguf;
pub mod tokenizer;
