//! Fields that an interface does not have: harmless ones, and those that would change a result.

use crate::fields::{Policy, Refused, refused, refused_unless};

/// Fields that are about accounts, caches and time. Some set what another field turns on, which is refused.
const HARMLESS: &[&str] = &[
    "cache_prompt",
    "detokenize",
    "dynatemp_exponent",
    "guided_decoding_backend",
    "id_slot",
    "metadata",
    "mirostat_eta",
    "mirostat_tau",
    "prediction",
    "priority",
    "prompt_cache_key",
    "prompt_cache_retention",
    "request_id",
    "safety_identifier",
    "service_tier",
    "store",
    "timings_per_token",
    "user",
    "xtc_threshold",
];

const SAMPLERS: &str = "leave it out; this server samples with temperature, top_k, top_p, min_p, penalties and DRY";

/// Fields of other servers that change which tokens are sampled, and what is returned of them; and OpenAI's former
/// fields for tools.
const EXTENSIONS: &[Refused] = &[
    refused_unless("allowed_token_ids", &["[]"], "use logit_bias or guided_regex"),
    refused_unless("bad_words", &["[]"], "use logit_bias"),
    refused("chat_template", "the model's own is used; chat_template_kwargs sets its variables"),
    refused_unless("documents", &["[]"], "write them into the messages"),
    refused_unless("dynatemp_range", &["0"], SAMPLERS),
    refused("function_call", "use tool_choice"),
    refused("functions", "use tools"),
    refused("grammar", "use guided_grammar, whose grammars are in Lark"),
    refused_unless("include_stop_str_in_output", &["false"], "append the stop string that you sent"),
    refused_unless("length_penalty", &["1"], SAMPLERS),
    refused_unless("logits_processors", &["[]"], SAMPLERS),
    refused_unless("min_keep", &["0"], SAMPLERS),
    refused_unless("mirostat", &["0"], SAMPLERS),
    refused_unless("mirostat_mode", &["0"], SAMPLERS),
    refused_unless("n_probs", &["0"], "use logprobs"),
    refused("prompt_logprobs", "use /v1/completions with echo and logprobs"),
    refused_unless("repeat_last_n", &["-1"], "penalties look at all generated tokens"),
    refused("samplers", SAMPLERS),
    refused_unless("skip_special_tokens", &["true"], "control tokens are never a part of the text"),
    refused_unless("smoothing_factor", &["0"], SAMPLERS),
    refused_unless("stop_token_ids", &["[]"], "use stop, with the texts of the tokens"),
    refused_unless("tfs_z", &["1"], SAMPLERS),
    refused_unless("top_a", &["0"], SAMPLERS),
    refused_unless("top_n_sigma", &["0", "-1"], SAMPLERS),
    refused("truncate_prompt_tokens", "a prompt that is longer than the context is refused, never cut"),
    refused_unless("typical_p", &["1"], SAMPLERS),
    refused_unless("use_beam_search", &["false"], SAMPLERS),
    refused_unless("xtc_probability", &["0"], SAMPLERS),
];

const FORMATS: &str = "use output_config.format, or /v1/chat/completions, which has it";
const ONE_MESSAGE: &str = "the reply is one message; send several requests";

const OF_CHATS_AND_COMPLETIONS: &[Refused] = &[
    refused("audio", "this server writes text"),
    refused_unless("best_of", &["1"], "ask for n choices and choose among them"),
    refused_unless("modalities", &["[\"text\"]"], "this server writes text"),
    refused("web_search_options", "this server has no search"),
];

pub(crate) const CHATS: Policy = Policy {
    harmless: &[HARMLESS],
    refused: &[
        EXTENSIONS,
        OF_CHATS_AND_COMPLETIONS,
        &[
            refused_unless("add_special_tokens", &["false"], "the chat template writes them"),
            refused_unless("echo", &["false"], "/v1/completions has it"),
            refused("suffix", "this server continues texts at their end"),
        ],
    ],
};

pub(crate) const COMPLETIONS: Policy = Policy {
    harmless: &[HARMLESS],
    refused: &[
        EXTENSIONS,
        OF_CHATS_AND_COMPLETIONS,
        &[
            refused_unless("add_special_tokens", &["true"], "send token ids, to which nothing is added"),
            refused("suffix", "this server continues texts at their end"),
        ],
    ],
};

pub(crate) const RESPONSES: Policy = Policy {
    // Only OpenAI's own tools and its cache look at the second list.
    harmless: &[HARMLESS, &["max_tool_calls", "prompt_cache_options"]],
    refused: &[
        EXTENSIONS,
        &[
            refused_unless("add_generation_prompt", &["true"], "a response always begins a reply"),
            refused_unless("best_of", &["1"], "a response is one choice; send several requests"),
            refused_unless("continue_final_message", &["false"], "a response always begins a reply"),
            refused_unless("echo", &["false"], "/v1/completions has it"),
            refused("enable_thinking", "use reasoning.effort, or chat_template_kwargs"),
            refused_unless("logprobs", &["false"], "use include, with message.output_text.logprobs"),
            refused("conversation", "this server keeps no state; send the items of the conversation again in input"),
            refused("max_completion_tokens", "use max_output_tokens"),
            refused("max_tokens", "use max_output_tokens"),
            refused("messages", "use input"),
            refused("n_predict", "use max_output_tokens"),
            refused(
                "previous_response_id",
                "this server keeps no state; send the items of the conversation again in input",
            ),
            refused("prompt", "this server keeps no prompts; send the text in instructions or input"),
            refused("reasoning_effort", "use reasoning.effort"),
            refused("response_format", "use text.format"),
        ],
    ],
};

pub(crate) const MESSAGES: Policy = Policy {
    harmless: &[HARMLESS, &["cache_control"]],
    refused: &[
        &[
            refused_unless("add_generation_prompt", &["true"], "let the messages end with the assistant's words"),
            refused_unless("best_of", &["1"], ONE_MESSAGE),
            refused("chat_template_kwargs", "use thinking and output_config.effort"),
            refused("container", "this server runs no code"),
            refused_unless("continue_final_message", &["true"], "the assistant's words at the end are continued"),
            refused_unless("echo", &["false"], "/v1/completions has it"),
            refused("enable_thinking", "use thinking"),
            refused("grammar", FORMATS),
            refused("guided_choice", FORMATS),
            refused("guided_grammar", FORMATS),
            refused("guided_json", "use output_config.format"),
            refused("guided_regex", FORMATS),
            refused("json_schema", "use output_config.format"),
            refused_unless("logprobs", &["false"], "/v1/chat/completions has it"),
            refused("max_completion_tokens", "use max_tokens"),
            refused("mcp_servers", "this server asks no other"),
            refused_unless("n", &["1"], ONE_MESSAGE),
            refused("n_predict", "use max_tokens"),
            refused("prompt", "use messages"),
            refused("reasoning_effort", "use output_config.effort"),
            refused_unless("response_format", &[r#"{"type": "text"}"#], "use output_config.format"),
            refused_unless("stop", &["[]"], "use stop_sequences"),
            refused("structured_outputs", FORMATS),
            refused_unless("top_logprobs", &["0"], "/v1/chat/completions has it"),
        ],
        EXTENSIONS,
    ],
};
