//! `/v1/rerank` and `/score` against the vectors of `/v1/embeddings`.

use serde_json::{Value, json};

use crate::server::{Running, engine, model, options};

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
        ("/score", json!({"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}), "text_1"),
        ("/score", json!({"text_1": "a", "text_2": []}), "text_2"),
        ("/score", json!({"text_1": "a", "text_2": ["a", ""]}), "text_2[1]"),
        ("/score", json!({"queries": "", "documents": ["a"]}), "queries[0]"),
    ] {
        let reply = server.post(path, &body);
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(param)), "{body}: {}", reply.text);
    }
}
