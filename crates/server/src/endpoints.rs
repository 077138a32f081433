//! The endpoints: `routes` serves them, and `openapi` describes them.

/// Calls the macro `$then` with the table: a method, a path and a handler for each endpoint. Those of `interfaces` are
/// also there without `/v1` and with two of it.
macro_rules! endpoints {
    ($then:ident) => {
        $then! {
            interfaces {
                post "/chat/completions" openai::chat::endpoint::serve,
                post "/completions" openai::completions::endpoint::serve,
                post "/embeddings" openai::embeddings::serve,
                post "/rerank" openai::rerank::rerank,
                post "/score" openai::rerank::score,
                post "/responses" openai::responses::endpoint::serve,
                get "/responses/{id}" openai::responses::stored::get,
                delete "/responses/{id}" openai::responses::stored::delete,
                get "/responses/{id}/input_items" openai::responses::stored::input_items,
                get "/models" openai::models::list,
                get "/models/{*id}" openai::models::one,
                post "/messages" anthropic::endpoints::messages,
                post "/messages/count_tokens" anthropic::endpoints::count_tokens,
                post "/chat/completions/render" openai::render::chat,
                post "/completions/render" openai::render::completions,
                post "/responses/render" openai::render::responses,
                post "/responses/input_tokens" openai::render::input_tokens,
            }
            others {
                post "/models/load" openai::models::load,
                post "/models/unload" openai::models::unload,
                post "/tokenize" openai::tokens::tokenize,
                post "/detokenize" openai::tokens::detokenize,
                get "/tokenizer_info" openai::tokens::info,
                post "/apply-template" openai::tokens::apply_template,
                get "/model" model::show,
                get "/server_info" worker::server_info,
                get "/model_info" worker::model_info,
                get "/get_load" worker::load,
                get "/v1/loads" worker::loads,
                post "/flush_cache" worker::flush_cache,
                get "/version" info::version,
                get "/props" info::props,
                get "/slots" info::slots,
                get "/health" health::health,
                get "/ready" health::ready,
                get "/metrics" metrics::endpoint::show,
            }
        }
    };
}

pub(crate) use endpoints;
