//! `/v1/rerank` and `/score` against the vectors of `/v1/embeddings`.

use gristmill_engine::{EmbeddingRequest, Prompt};
use serde_json::{Value, json};

use crate::server::{Running, changed_model, engine, model, options};
use crate::speech;
use crate::tiny::Tiny;

const TEXTS: [&str; 4] = ["wheat and rye", "a river", "the mill grinds", "wheat and rye"];

fn vectors(server: &Running, texts: &[&str]) -> Vec<Vec<f64>> {
    let reply = server.ask("/v1/embeddings", &json!({"input": texts}));
    let numbers = |item: &Value| {
        let numbers = item["embedding"].as_array().expect("a vector").iter();
        numbers.map(|number| number.as_f64().expect("a number")).collect()
    };
    reply["data"].as_array().expect("a list").iter().map(numbers).collect()
}

fn cosine(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[test]
fn documents_are_ordered_by_their_cosines() {
    let server = Running::new(engine(&model(), 2), options());
    let query = "rye and wheat";
    let query_vector = &vectors(&server, &[query])[0];
    let expected: Vec<f64> = vectors(&server, &TEXTS).iter().map(|vector| cosine(query_vector, vector)).collect();
    let documents = json!([TEXTS[0], {"text": TEXTS[1]}, TEXTS[2], TEXTS[3]]);
    for path in ["/v1/rerank", "/rerank"] {
        let reply = server.ask(path, &json!({"model": "tiny", "query": query, "documents": documents}));
        let results = reply["results"].as_array().expect("a list");
        assert_eq!((results.len(), &reply["model"]), (4, &json!("tiny")), "{reply}");
        for result in results {
            let index = result["index"].as_u64().expect("an index") as usize;
            let score = result["relevance_score"].as_f64().expect("a number");
            assert!((score - expected[index]).abs() < 1e-5, "{score} instead of {}", expected[index]);
            assert_eq!(result["document"]["text"], TEXTS[index]);
        }
        let scores: Vec<f64> = results.iter().filter_map(|result| result["relevance_score"].as_f64()).collect();
        assert!(scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
        // Equal documents are in the order of the request.
        let at = |index: usize| results.iter().position(|result| result["index"] == index);
        assert!(at(0) < at(3), "{reply}");
        assert_eq!(reply["usage"]["total_tokens"], reply["usage"]["prompt_tokens"]);
    }
    let body = json!({"query": query, "documents": documents, "top_n": 2, "return_documents": false});
    let few = server.ask("/v1/rerank", &body);
    assert!(few["results"].as_array().is_some_and(|results| results.len() == 2) && !few.to_string().contains("rye"));
}

#[test]
fn pairs_are_scored() {
    let server = Running::new(engine(&model(), 2), options());
    let all = vectors(&server, &TEXTS);
    let scores = |body: Value| -> Vec<f64> {
        let reply = server.ask("/score", &body);
        let data = reply["data"].as_array().expect("a list");
        assert!(data.iter().zip(0..).all(|(item, index)| item["index"] == index && item["object"] == "score"));
        data.iter().map(|item| item["score"].as_f64().expect("a number")).collect()
    };
    let is = |found: Vec<f64>, pairs: &[(usize, usize)]| {
        let expected: Vec<f64> = pairs.iter().map(|&(a, b)| cosine(&all[a], &all[b])).collect();
        assert!(
            found.len() == pairs.len() && found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-5),
            "{found:?} {expected:?}"
        );
    };
    is(scores(json!({"text_1": TEXTS[0], "text_2": TEXTS[1]})), &[(0, 1)]);
    is(scores(json!({"text_1": TEXTS[0], "text_2": TEXTS[1..]})), &[(0, 1), (0, 2), (0, 3)]);
    is(scores(json!({"queries": TEXTS[..2], "documents": TEXTS[2..]})), &[(0, 2), (1, 3)]);
    // A text is like itself.
    assert!((scores(json!({"text_1": TEXTS[0], "text_2": TEXTS[3]}))[0] - 1.0).abs() < 1e-5);
}

#[test]
fn wrong_comparisons_are_named() {
    let server = Running::new(engine(&model(), 2), options());
    for (path, body, param) in [
        ("/v1/rerank", json!({"documents": ["a"]}), "query"),
        ("/v1/rerank", json!({"query": "a", "documents": []}), "documents"),
        ("/v1/rerank", json!({"query": "a", "documents": ["b", ""]}), "documents[1]"),
        ("/v1/rerank", json!({"query": "", "documents": ["b"]}), "query"),
        ("/v1/rerank", json!({"query": "a", "documents": ["b", 5]}), "documents[1]"),
        ("/v1/rerank", json!({"query": "a", "documents": ["b"], "top_n": -1}), "top_n"),
        (
            "/v1/rerank",
            json!({"query": "a", "documents": ["b"], "truncate_prompt_tokens": 5}),
            "truncate_prompt_tokens",
        ),
        // Vectors have no instruction.
        ("/v1/rerank", json!({"query": "a", "documents": ["b"], "instruction": "c"}), "instruction"),
        ("/v1/rerank", json!({"query": "a", "documents": ["b"], "instruct": "c"}), "instruct"),
        ("/score", json!({"text_1": "a", "text_2": "b", "instruction": 5}), "instruction"),
        ("/score", json!({"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}), "text_1"),
        ("/score", json!({"text_1": "a", "text_2": []}), "text_2"),
        ("/score", json!({"text_1": "a", "text_2": ["a", ""]}), "text_2[1]"),
        ("/score", json!({"queries": "", "documents": ["a"]}), "queries[0]"),
    ] {
        let reply = server.post(path, &body);
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(param)), "{body}: {}", reply.text);
    }
}

/// The task in the prompt of Qwen3-Reranker.
const TASK: &str = "Given a web search query, retrieve relevant passages that answer the query";

/// The prompt of Qwen3-Reranker for a pair.
fn judged(task: &str, query: &str, document: &str) -> String {
    let system = "Judge whether the Document meets the requirements based on the Query and the Instruct provided. Note \
                  that the answer can only be \"yes\" or \"no\".";
    format!(
        "<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n<Instruct>: {task}\n<Query>: {query}\n<Document>: \
         {document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
}

/// Tokens of "yes" and "no", which stand for bytes that no text has.
const YES: usize = 0xfe;
const NO: usize = 0xff;

/// A model whose vocabulary has words for a judgement.
fn with_words(tiny: &mut Tiny) {
    let mut tokens = speech::tokens();
    for (index, word) in [(0xfd, "ye"), (YES, "yes"), (NO, "no")] {
        tokens[index] = word.to_owned();
    }
    tiny.set("tokenizer.ggml.tokens", tokens);
    tiny.set("tokenizer.ggml.merges", ["a b", "y e", "ye s", "n o"].map(str::to_owned).to_vec());
}

fn scores(reply: &Value) -> Vec<f64> {
    let results = reply["results"].as_array().expect("a list");
    let mut scores = vec![f64::NAN; results.len()];
    for result in results {
        scores[result["index"].as_u64().expect("an index") as usize] =
            result["relevance_score"].as_f64().expect("a number");
    }
    scores
}

/// A language model whose name says that it is a reranker: the score is the probability of its answer "yes" to the
/// published prompt.
#[test]
fn a_reranker_answers_yes_or_no() {
    let model = changed_model(|tiny| {
        with_words(tiny);
        tiny.set("general.name", "Qwen3 Reranker tiny");
    });
    let server = Running::new(engine(&model, 2), options());
    let query = "rye <|im_end|>";
    let reply = server.ask("/v1/rerank", &json!({"query": query, "documents": TEXTS}));
    let mut tokens = 0;
    for (score, document) in scores(&reply).into_iter().zip(TEXTS) {
        // A mark in a text is text.
        let prompt =
            server.ask("/tokenize", &json!({"prompt": judged(TASK, "@", document), "add_special_tokens": false}));
        let mark =
            server.ask("/tokenize", &json!({"prompt": query, "parse_special": false, "add_special_tokens": false}));
        let list = |reply: &Value| reply["tokens"].as_array().expect("a list").clone();
        let at = list(&prompt).iter().position(|token| token == 0x40).expect("the mark");
        let mut prompt = list(&prompt);
        prompt.splice(at..=at, list(&mark));
        tokens += prompt.len();
        let logprob = |token: usize| {
            let body = json!({"prompt": prompt, "max_tokens": 1, "logprobs": 0, "allowed_token_ids": [token]});
            let reply = server.ask("/v1/completions", &body);
            reply["choices"][0]["logprobs"]["token_logprobs"][0].as_f64().expect("a number")
        };
        let expected = 1.0 / (1.0 + (logprob(NO) - logprob(YES)).exp());
        assert!((score - expected).abs() < 1e-4, "{score} instead of {expected} for {document}");
    }
    assert_eq!(reply["usage"]["prompt_tokens"], tokens);
    let pairs = json!({"text_1": query, "text_2": TEXTS});
    let pairs = server.ask("/v1/score", &pairs);
    let again: Vec<f64> = (0..4).map(|index| pairs["data"][index]["score"].as_f64().expect("a number")).collect();
    assert_eq!(again, scores(&reply));
    // The published task is the default. Another one, by both names, has the score that it has in its prompt.
    let first = |more: Value| {
        let mut body = json!({"query": query, "documents": TEXTS});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        server.ask("/v1/rerank", &body)
    };
    assert_eq!(scores(&first(json!({"instruction": TASK}))), scores(&reply));
    let other = first(json!({"instruction": "Find the grain"}));
    assert_eq!(scores(&first(json!({"instruct": "Find the grain"}))), scores(&other));
    assert_ne!(scores(&other), scores(&reply));
    // A token for a byte.
    let shorter = (TASK.len() - "Find the grain".len()) * TEXTS.len();
    assert_eq!(other["usage"]["prompt_tokens"], tokens - shorter);
    let pairs = server.ask("/score", &json!({"text_1": query, "text_2": TEXTS[1], "instruction": "Find the grain"}));
    assert_eq!(pairs["data"][0]["score"], scores(&other)[1]);
    // A control token in a task is text.
    let marked = first(json!({"instruction": "<|im_end|>"}));
    assert_eq!(marked["usage"]["prompt_tokens"], tokens - (TASK.len() - "<|im_end|>".len()) * TEXTS.len());
    let empty = server.post("/v1/rerank", &json!({"query": "a", "documents": ["b"], "instruct": ""}));
    assert_eq!((empty.status, &empty.json()["error"]["param"]), (400, &json!("instruct")));
    // Its vectors are those of any model.
    assert_eq!(vectors(&server, &["a"]).len(), 1);
    let long = json!({"query": "a", "documents": ["b", "long ".repeat(400)]});
    assert_eq!(server.post("/v1/rerank", &long).json()["error"]["param"], "documents[1]");
}

/// A file with the two rows of the head, as llama.cpp's converter writes it.
#[test]
fn a_reranker_has_a_head_of_two_rows() {
    let labels = |labels: [&str; 2]| {
        changed_model(|tiny| {
            tiny.set("llama.pooling_type", 4_u32);
            tiny.set("llama.classifier.output_labels", labels.map(str::to_owned).to_vec());
            tiny.set("tokenizer.chat_template.rerank", "<|im_start|>{document} {query}?");
            let hidden = tiny.tensors.iter().find(|tensor| tensor.0 == "token_embd.weight").expect("it has one").2[0];
            tiny.tensor("cls.output.weight", &[hidden, 2]);
        })
    };
    for (names, sign) in [(["yes", "no"], 1.0), (["no", "yes"], -1.0)] {
        let model = labels(names);
        let rows: Vec<f64> = {
            let head = model.file().tensor("cls.output.weight").expect("it has one");
            let bytes = model.file().data(head).chunks_exact(4);
            bytes.map(|bytes| f64::from(f32::from_le_bytes(bytes.try_into().expect("four bytes")))).collect()
        };
        let engine = engine(&model, 2);
        let text = "<|im_start|>a river wheat?".to_owned();
        let prompt = Prompt::rendered(text, Vec::new());
        let request = EmbeddingRequest { last_states: true, ..EmbeddingRequest::new(vec![prompt]) };
        let state = engine.embed(request).expect("a state").vectors.remove(0);
        let dot = |row: &[f64]| row.iter().zip(&state).map(|(a, b)| a * f64::from(*b)).sum::<f64>();
        let (first, second) = rows.split_at(state.len());
        let expected = 1.0 / (1.0 + (sign * (dot(second) - dot(first))).exp());
        let server = Running::new(engine, options());
        let reply = server.ask("/v1/rerank", &json!({"query": "wheat", "documents": ["a river"]}));
        let score = scores(&reply)[0];
        assert!((score - expected).abs() < 1e-5, "{score} instead of {expected}");
        assert_eq!(server.post("/v1/embeddings", &json!({"input": "a"})).status, 400);
        // Its prompt has no task.
        let refused = server.post("/score", &json!({"text_1": "a", "text_2": "b", "instruction": "c"}));
        assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("instruction")));
    }
    // Labels that are no judgement.
    let server = Running::new(engine(&labels(["good", "bad"]), 1), options());
    let refused = server.post("/v1/rerank", &json!({"query": "a", "documents": ["b"]}));
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("model")));
}
