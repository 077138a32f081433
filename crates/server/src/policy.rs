//! Fields that an interface does not have: harmless ones, and those that would change a result.
//!
//! # A field changes the result, or is refused
//!
//! `policy.rs` lists fields of other servers: harmless fields, and fields that are refused unless their value is the
//! default. A header names unknown fields. One deserializer (`fields/value.rs`) reads requests: it collects the path of
//! each field that no struct has, so the rule holds at every depth. *Serde buffers the values of an untagged enum or of
//! `flatten`, and loses these paths; so objects in requests have neither (test
//! `a_strict_server_refuses_unknown_fields_at_every_depth`).*

mod nested;

use crate::fields::{Policy, Refused, refused, refused_unless};

/// Fields that are about accounts, caches, time and where a request runs. Some set what another field turns on, which is
/// refused.
const HARMLESS: &[&str] = &[
    "adaptive_decay",
    "backend_sampling",
    "bootstrap_host",
    "bootstrap_port",
    "bootstrap_room",
    "cache_prompt",
    "custom_labels",
    "custom_params",
    "data_parallel_rank",
    "detokenize",
    "disagg_prefill_dp_rank",
    "dynatemp_exponent",
    "guided_decoding_backend",
    "id_slot",
    "images_config",
    "max_dynamic_patch",
    "media_io_kwargs",
    "metadata",
    "min_dynamic_patch",
    "mirostat_eta",
    "mirostat_tau",
    "mm_processor_kwargs",
    "n_cache_reuse",
    "n_discard",
    "n_keep",
    "prediction",
    "priority",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "request_id",
    "return_cached_tokens_details",
    "rid",
    "routed_dp_rank",
    "routed_experts_prompt_start",
    "routed_experts_start_len",
    "safety_identifier",
    "service_tier",
    "session_id",
    "spaces_between_special_tokens",
    "sse_ping_interval",
    "store",
    "stream_interval",
    "truncation_side",
    "use_audio_in_video",
    "user",
    "verbose",
    "video_config",
    "xtc_threshold",
];

const SAMPLERS: &str = "leave it out; this server samples with temperature, top_k, top_p, min_p, penalties and DRY";
const NOT_RETURNED: &str = "leave it out; this server does not return it";
const LORA: &str = "leave it out; this server runs the model as it is";
const NO_IMAGES: &str = "leave it out; write images as parts of a message's content";
const MARKS: &str = "leave it out; the model defines the marks around reasoning";
const TIME: &str = "use max_tokens, or close the connection";
const GRAMMARS: &str = "leave it out; a grammar applies from the first token";
const WITHIN: &str = "leave it out; the server sets it itself";

/// Fields of other servers that change which tokens are sampled, and what is returned of them; and OpenAI's former
/// fields for tools.
const EXTENSIONS: &[Refused] = &[
    refused_unless("adaptive_target", &["-1"], SAMPLERS),
    refused("chat_format", WITHIN),
    refused("chat_parser", WITHIN),
    refused("chat_template", "/v1/chat/completions has it; the model's own is used here"),
    refused_unless("custom_logit_processor", &["\"\""], SAMPLERS),
    refused_unless("documents", &["[]"], "write them into the messages"),
    refused_unless("dynatemp_range", &["0"], SAMPLERS),
    refused_unless("early_stopping", &["false"], SAMPLERS),
    refused("ec_transfer_params", "leave it out; this server moves no caches"),
    refused("format", "use response_format, with json_schema"),
    refused("extra_body", "send its fields next to the others, as client libraries do"),
    refused("function_call", "use tool_choice"),
    refused("functions", "use tools"),
    refused("generation_prompt", WITHIN),
    refused_unless("grammar_lazy", &["false"], GRAMMARS),
    refused_unless("grammar_triggers", &["[]"], GRAMMARS),
    refused("grammar_type", "leave it out; the grammar itself shows it"),
    refused_unless("include_reasoning", &["true"], "leave it out, and reasoning_content out of what you show"),
    refused("input_embeds", "send texts or token ids"),
    refused("input_extra", "this server continues texts at their end"),
    refused("input_ids", "use /v1/completions, with token ids as the prompt"),
    refused("input_prefix", "this server continues texts at their end"),
    refused("input_suffix", "this server continues texts at their end"),
    refused("kv_transfer_params", "leave it out; this server moves no caches"),
    refused_unless("length_penalty", &["1"], SAMPLERS),
    refused_unless("logits_processors", &["[]"], SAMPLERS),
    refused_unless("logprob_token_ids", &["[]"], "use top_logprobs"),
    refused_unless("lora", &["[]"], LORA),
    refused_unless("lora_path", &["\"\""], LORA),
    refused_unless("min_keep", &["0"], SAMPLERS),
    refused_unless("mirostat", &["0"], SAMPLERS),
    refused_unless("mirostat_mode", &["0"], SAMPLERS),
    refused("mm_payload", NO_IMAGES),
    refused("moderation", "leave it out; this server judges no texts"),
    refused_unless("n_cmpl", &["1"], "use n"),
    refused_unless("n_indent", &["0"], "this server continues texts at their end"),
    refused_unless("n_probs", &["0"], "use logprobs"),
    refused("options", "send its fields in the request itself, by their names in OpenAI's interface"),
    refused_unless("parse_tool_calls", &["true"], "leave tools out, and calls are text"),
    refused_unless("post_sampling_probs", &["false"], "log-probabilities come from the unmodified logits of the model"),
    refused_unless("preserved_tokens", &["[]"], "leave it out; the marks of a reply are kept as its form needs them"),
    refused("prompt_embeds", "send texts or token ids"),
    refused("prompt_logprobs", "use /v1/completions with echo and logprobs"),
    refused("reasoning_budget_end_tag", MARKS),
    refused("reasoning_budget_end_tags", MARKS),
    refused_unless("reasoning_budget_message", &["\"\""], MARKS),
    refused("reasoning_budget_start_tag", MARKS),
    refused_unless("reasoning_control", &["false"], "use thinking_budget"),
    refused_unless("reasoning_format", &["\"auto\"", "\"deepseek\""], "reasoning is always in reasoning_content"),
    refused("repetition_detection", "use DRY or a repetition_penalty"),
    refused_unless("response_fields", &["[]"], "leave it out, and read the fields that you need"),
    refused_unless("return_flat_raw_output_top_logprobs", &["false"], "use top_logprobs"),
    refused_unless("return_flat_raw_top_logprobs_b64", &["false"], "use top_logprobs"),
    refused_unless("return_hidden_states", &["false"], "use /v1/embeddings"),
    refused_unless("return_input_ids_in_sglext", &["false"], "use /tokenize"),
    refused_unless("return_meta_info", &["false"], "read usage.gristmill"),
    refused_unless("return_mm_kwargs", &["false"], NO_IMAGES),
    refused_unless("return_output_ids_in_sglext", &["false"], NOT_RETURNED),
    refused_unless("return_progress", &["false"], NOT_RETURNED),
    refused_unless("return_prompt_text", &["false"], "use /apply-template"),
    refused_unless("return_prompt_token_ids", &["false"], "use /tokenize"),
    refused_unless("return_routed_experts", &["false"], "use experts"),
    refused_unless("return_sampling_mask", &["false"], NOT_RETURNED),
    refused_unless("return_spec_tokens_details", &["false"], "read usage.gristmill"),
    refused_unless("return_token_ids", &["false"], "use /tokenize"),
    refused_unless("return_token_offsets", &["false"], "use /tokenize"),
    refused_unless("return_tokens", &["false"], "use /tokenize"),
    refused_unless("return_tokens_as_token_ids", &["false"], "use /tokenize"),
    refused_unless("return_weight_versions", &["false"], "read usage.gristmill.model"),
    refused("samplers", SAMPLERS),
    refused("sampling_logprobs_mode", "log-probabilities come from the unmodified logits of the model"),
    refused_unless("separate_reasoning", &["true"], "reasoning is always in reasoning_content"),
    refused_unless("session_params", &["{}"], "this server keeps no sessions; send the whole prompt"),
    refused_unless("skip_special_tokens", &["true"], "control tokens are never a part of the text"),
    refused_unless("smoothing_factor", &["0"], SAMPLERS),
    refused("stop_regex", "use stop, or guided_regex for the whole text"),
    refused_unless("stream_reasoning", &["true"], "reasoning is sent as it is generated"),
    refused_unless("t_max_predict_ms", &["0", "-1"], TIME),
    refused_unless("t_max_prompt_ms", &["0", "-1"], TIME),
    refused("task", "write it into the messages"),
    refused_unless("tfs_z", &["1"], SAMPLERS),
    refused_unless("top_a", &["0"], SAMPLERS),
    refused_unless("top_n_sigma", &["0", "-1"], SAMPLERS),
    refused("truncate_prompt_tokens", "a prompt that is longer than the context is refused, never truncated"),
    refused_unless("typical_p", &["1"], SAMPLERS),
    refused_unless("use_beam_search", &["false"], SAMPLERS),
    refused_unless("vllm_xargs", &["{}"], SAMPLERS),
    refused_unless("watermark", &["false"], "this server marks no texts"),
    refused_unless("watermarking", &["false"], "this server marks no texts"),
    refused_unless("xtc_probability", &["0"], SAMPLERS),
    refused("context", "send the whole conversation, or the whole prompt"),
    refused_unless("do_sample", &["true"], "use temperature 0"),
    refused("guided_whitespace_pattern", "leave it out; white space between tokens is short"),
    refused("images", NO_IMAGES),
    refused("max_new_tokens", "use max_tokens"),
    refused_unless("num_beams", &["1"], SAMPLERS),
    refused("num_ctx", "leave it out; `serve --ctx` sets the context"),
    refused("num_predict", "use max_tokens"),
    refused_unless("raw", &["false"], "use /v1/completions, which applies no template"),
    refused("sampling_params", "send its fields in the request itself"),
    refused("system", "send a message of the role system"),
    refused("template", "leave it out; the model's own is used"),
    refused("text", "send it as messages, input or prompt"),
];

const FORMATS: &str = "use output_config.format, or /v1/chat/completions, which has it";
const ONE_MESSAGE: &str = "the reply is one message; send several requests";

const OF_CHATS_AND_COMPLETIONS: &[Refused] = &[
    refused("audio", "this server writes text"),
    refused_unless("best_of", &["1"], "request n choices and choose among them"),
    refused_unless("modalities", &["[\"text\"]"], "this server writes text"),
    refused("web_search_options", "this server has no search"),
];

const ONLY_CHATS: &str = "use /v1/chat/completions, which has conversations, tools and reasoning";

pub(crate) const CHATS: Policy = Policy {
    harmless: &[HARMLESS, nested::HARMLESS, nested::HARMLESS_IN_CHATS],
    left_out: nested::LEFT_OUT_OF_CHATS,
    refused: &[
        EXTENSIONS,
        nested::REFUSED_IN_CHATS,
        OF_CHATS_AND_COMPLETIONS,
        &[
            refused_unless("add_special_tokens", &["false"], "the chat template writes them"),
            refused_unless("echo", &["false"], "/v1/completions has it"),
            refused_unless("parse_special", &["false"], "messages are read as text; /v1/completions has it"),
            refused("suffix", "this server continues texts at their end"),
        ],
    ],
};

pub(crate) const COMPLETIONS: Policy = Policy {
    harmless: &[HARMLESS, nested::HARMLESS, &["parallel_tool_calls"]],
    left_out: &[],
    refused: &[
        &[refused_unless("raw", &["true", "false"], ONLY_CHATS)],
        EXTENSIONS,
        OF_CHATS_AND_COMPLETIONS,
        &[
            refused_unless("add_generation_prompt", &["false"], ONLY_CHATS),
            refused_unless("chat_template_kwargs", &["{}"], ONLY_CHATS),
            refused_unless("continue_final_message", &["false"], ONLY_CHATS),
            refused_unless("reasoning_effort", &["\"none\""], ONLY_CHATS),
            refused("suffix", "this server continues texts at their end"),
            refused_unless("tool_choice", &["\"none\""], ONLY_CHATS),
            refused_unless("tools", &["[]"], ONLY_CHATS),
            refused_unless("top_logprobs", &["0"], "use logprobs, with this number"),
            refused_unless("thinking_budget", &["-1"], ONLY_CHATS),
            refused_unless("thinking_budget_tokens", &["-1"], ONLY_CHATS),
            refused_unless("thinking_token_budget", &["-1"], ONLY_CHATS),
            refused_unless("reasoning_budget", &["-1"], ONLY_CHATS),
            refused_unless("reasoning_budget_tokens", &["-1"], ONLY_CHATS),
        ],
    ],
};

pub(crate) const RESPONSES: Policy = Policy {
    // Only OpenAI's own tools and its cache look at the second list.
    harmless: &[
        HARMLESS,
        nested::HARMLESS,
        nested::HARMLESS_IN_RESPONSES,
        &["access_programs", "background_options", "image", "max_tool_calls"],
    ],
    left_out: nested::LEFT_OUT_OF_RESPONSES,
    refused: &[
        EXTENSIONS,
        nested::REFUSED_IN_RESPONSES,
        &[
            refused_unless("add_generation_prompt", &["true"], "a response always starts a reply"),
            refused_unless("add_special_tokens", &["false"], "the chat template writes them"),
            refused_unless("parse_special", &["false"], "items are read as text; /v1/completions has it"),
            refused_unless("best_of", &["1"], "a response is one choice; send several requests"),
            refused_unless("continue_final_message", &["false"], "a response always starts a reply"),
            refused_unless("echo", &["false"], "/v1/completions has it"),
            refused_unless("logprobs", &["false"], "use include, with message.output_text.logprobs"),
            refused_unless("enable_response_messages", &["false"], NOT_RETURNED),
            refused("conversation", "use previous_response_id, or send the items of the conversation again in input"),
            refused("max_completion_tokens", "use max_output_tokens"),
            refused("max_tokens", "use max_output_tokens"),
            refused("messages", "use input"),
            refused("n_predict", "use max_output_tokens"),
            refused_unless("previous_input_messages", &["[]"], "send the items of the conversation in input"),
            refused("prompt", "this server keeps no prompts; send the text in instructions or input"),
            refused("response_format", "use text.format"),
        ],
    ],
};

pub(crate) const MESSAGES: Policy = Policy {
    left_out: nested::LEFT_OUT_OF_MESSAGES,
    harmless: &[
        HARMLESS,
        nested::HARMLESS,
        nested::HARMLESS_IN_MESSAGES,
        &[
            "betas",
            "billing_policy",
            "cache_control",
            "diagnostics",
            "fallback_credit_token",
            "fallbacks",
            "inference_geo",
            "speed",
            "stream_options",
            "user_profile_id",
            "workspace_id",
        ],
    ],
    refused: &[
        &[
            refused_unless("add_special_tokens", &["false"], "the chat template writes them"),
            refused_unless("parse_special", &["false"], "messages are read as text; /v1/completions has it"),
            refused_unless("add_generation_prompt", &["true"], "let the messages end with the assistant's words"),
            refused_unless("best_of", &["1"], ONE_MESSAGE),
            refused("container", "this server runs no code"),
            refused_unless("continue_final_message", &["true"], "the assistant's words at the end are continued"),
            refused_unless("echo", &["false"], "/v1/completions has it"),
            refused("ebnf", FORMATS),
            refused("format", FORMATS),
            refused_unless("grammar", &["\"\""], FORMATS),
            refused("guided_choice", FORMATS),
            refused("guided_grammar", FORMATS),
            refused("guided_json", "use output_config.format"),
            refused("guided_regex", FORMATS),
            refused("json_schema", "use output_config.format"),
            refused_unless("logprobs", &["false"], "/v1/chat/completions has it"),
            refused("max_completion_tokens", "use max_tokens"),
            refused("mcp_servers", "this server sends no requests to other servers"),
            refused_unless("n", &["1"], ONE_MESSAGE),
            refused("n_predict", "use max_tokens"),
            refused_unless("parallel_tool_calls", &["true"], "use tool_choice.disable_parallel_tool_use"),
            refused("prompt", "use messages"),
            refused_unless("reasoning_budget", &["-1"], "use thinking.budget_tokens"),
            refused_unless("reasoning_budget_tokens", &["-1"], "use thinking.budget_tokens"),
            refused("regex", FORMATS),
            refused_unless("response_format", &[r#"{"type": "text"}"#], "use output_config.format"),
            refused_unless("stop", &["[]"], "use stop_sequences"),
            refused("structured_outputs", FORMATS),
            refused_unless("thinking_budget", &["-1"], "use thinking.budget_tokens"),
            refused_unless("thinking_budget_tokens", &["-1"], "use thinking.budget_tokens"),
            refused_unless("thinking_token_budget", &["-1"], "use thinking.budget_tokens"),
            refused("thread", "this server keeps no state; send the whole conversation"),
            refused_unless("top_logprobs", &["0"], "/v1/chat/completions has it"),
        ],
        nested::REFUSED_IN_MESSAGES,
        EXTENSIONS,
    ],
};

const VECTORS: &str = "the model's file sets the pooling, and vectors have length 1";
const NEVER_CUT: &str = "a text that is longer than the context is refused, never truncated";
const INPUTS: &str = "use input";

pub(crate) const EMBEDDINGS: Policy = Policy {
    harmless: &[HARMLESS, &["embed_override_token_id", "padding"]],
    left_out: &[],
    refused: &[&[
        refused("cache_salt", "leave it out, or use a key for each user"),
        refused("chat_template", INPUTS),
        refused("chat_template_kwargs", INPUTS),
        refused("content", INPUTS),
        refused_unless("embd_normalize", &["2"], VECTORS),
        refused_unless("embed_dtype", &["\"float32\""], "use encoding_format"),
        refused_unless("embed_overrides", &["[]"], "send texts or token ids"),
        refused("embedding_types", "use encoding_format"),
        refused_unless("endianness", &["\"little\"", "\"native\""], "base64 is little-endian"),
        refused("images", NO_IMAGES),
        refused("input_type", "write the prefix that the model needs into input"),
        refused("inputs", INPUTS),
        refused("instruction", "write the prefix that the model needs into input"),
        refused_unless("late_chunking", &["false"], "send each text as it is"),
        refused_unless("lora", &["[]"], LORA),
        refused_unless("lora_path", &["\"\""], LORA),
        refused("max_tokens", NEVER_CUT),
        refused("messages", INPUTS),
        refused_unless("normalize", &["true"], VECTORS),
        refused("output_dimension", "use dimensions"),
        refused("pooling", VECTORS),
        refused("pooling_type", VECTORS),
        refused("prompt_name", "write the prefix that the model needs into input"),
        refused("task", "write the prefix that the model needs into input"),
        refused("texts", INPUTS),
        refused_unless("truncate", &["false", "\"NONE\""], NEVER_CUT),
        refused("truncate_prompt_tokens", NEVER_CUT),
        refused_unless("use_activation", &["true"], VECTORS),
    ]],
};

/// Comparisons of texts by their vectors.
pub(crate) const COMPARISONS: Policy = Policy {
    harmless: &[HARMLESS, &["padding"]],
    left_out: &[],
    refused: &[
        nested::REFUSED_IN_COMPARISONS,
        &[
            refused_unless("activation", &["false"], COSINES),
            refused("cache_salt", "leave it out, or use a key for each user"),
            refused("chat_template", PLAIN),
            refused("chat_template_kwargs", "send instruction"),
            refused("images", NO_IMAGES),
            refused_unless("lora", &["[]"], LORA),
            refused_unless("lora_path", &["\"\""], LORA),
            refused("max_chunks_per_doc", NEVER_CUT),
            refused("max_tokens_per_doc", NEVER_CUT),
            refused_unless("normalize", &["true"], COSINES),
            refused("pooling", VECTORS),
            refused("pooling_type", VECTORS),
            refused("rank_fields", "send texts, or objects with the field text"),
            refused_unless("softmax", &["false"], COSINES),
            refused_unless("truncate", &["false", "\"NONE\""], NEVER_CUT),
            refused("truncate_prompt_tokens", NEVER_CUT),
            refused_unless("use_activation", &["false"], COSINES),
        ],
    ],
};

const COSINES: &str = "scores are cosines, from -1 to 1";
const PLAIN: &str = "write the prefix that the model needs into the texts";

/// Requests that generate nothing: other fields change nothing of a text's tokens.
pub(crate) const NO_REPLY: Policy = Policy { harmless: &[], refused: &[], left_out: &[] };
