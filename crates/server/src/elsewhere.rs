//! Paths of other interfaces, and what this server has instead.

/// Paths without `/v1`, each with those below it, and the advice for its caller. The first that fits counts.
const INSTEAD: &[(&str, &str)] = &[
    (
        "/api/v0",
        "choose a server that is compatible with OpenAI in the client, with the base URL of this server and /v1",
    ),
    ("/api/v1", "the base URL of this server ends with /v1, without /api"),
    (
        "/api",
        "Ollama's own interface is not supported; choose a server that is compatible with OpenAI in the client, with the base URL of this server and /v1",
    ),
    (
        "/openai/deployments",
        "Azure's interface is not supported; use a client for OpenAI, with the base URL of this server and /v1",
    ),
    ("/openai", "the base URL of this server ends with /v1, without /openai"),
    (
        "/v1beta",
        "Gemini's interface is not supported; use a client for OpenAI, with the base URL of this server and /v1",
    ),
    ("/assistants", "this server keeps no state; use /v1/chat/completions or /v1/responses"),
    ("/audio", "this server reads and writes text"),
    ("/batches", "this server has no batches; send each request on its own, several at a time"),
    ("/complete", "use /v1/messages"),
    ("/completion", "use /v1/completions"),
    ("/conversations", "this server keeps no state; send the items of the conversation again to /v1/responses"),
    ("/embedding", "use /v1/embeddings"),
    ("/files", "this server keeps no files"),
    ("/generate", "use /v1/completions"),
    ("/generate_stream", "use /v1/completions, with stream"),
    ("/images", "this server reads and writes text"),
    ("/infill", "this server continues texts at their end; use /v1/completions"),
    ("/messages/batches", "this server has no batches; send each request to /v1/messages, several at a time"),
    ("/moderations", "this server judges no texts"),
    ("/responses", "this server keeps no responses; send the items of the conversation again to /v1/responses"),
    ("/threads", "this server keeps no state; use /v1/chat/completions or /v1/responses"),
    ("/vector_stores", "this server keeps no files; use /v1/embeddings"),
];

/// The advice for who asks for a path that this server does not have.
pub(crate) fn advice(path: &str) -> &'static str {
    let bare = |path| str::strip_prefix(path, "/v1").filter(|rest| rest.starts_with('/')).unwrap_or(path);
    let path = bare(bare(path));
    let fits = |own: &str| path.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    INSTEAD.iter().find(|(own, _)| fits(own)).map_or("see /openapi.json", |(_, advice)| advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_fits_the_path() {
        for (path, part) in [
            ("/api/chat", "Ollama"),
            ("/api/v1/chat/completions", "without /api"),
            ("/v1/api/tags", "Ollama"),
            ("/openai/deployments/gpt/chat/completions", "Azure"),
            ("/openai/v1/chat/completions", "without /openai"),
            ("/v1/audio/speech", "reads and writes text"),
            ("/v1/v1/files", "keeps no files"),
            ("/v1/responses/resp_1", "keeps no responses"),
            ("/v1beta/models/x:generateContent", "Gemini"),
            ("/completion", "/v1/completions"),
            ("/apis", "see /openapi.json"),
            ("/v1", "see /openapi.json"),
            ("/completions/x", "see /openapi.json"),
        ] {
            assert!(advice(path).contains(part), "{path}: {}", advice(path));
        }
    }
}
