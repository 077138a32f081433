//! The forms in which models write replies: a table with one line for each. CONTRIBUTING says how to add one.

use super::syntax::Syntax;
use super::{
    command, ernie, gemma4, glm, harmony, hermes, hunyuan, hy3, lfm2, lists, llama, llama4, minimax, minimax_m3,
    mistral, muse, objects, sections, seed, typed,
};

/// The forms, in the order in which a template is compared with them.
pub(super) const SYNTAXES: [&Syntax; 34] = [
    &muse::SYNTAX,
    &harmony::SYNTAX,
    &minimax_m3::SYNTAX,
    &mistral::NAMED,
    &mistral::LISTED,
    &llama4::SYNTAX,
    &llama::SYNTAX,
    &lfm2::SYNTAX,
    &sections::FENCED,
    &sections::DEEPSEEK,
    &sections::KIMI,
    &sections::SOLAR,
    &typed::DSML,
    &typed::DSML_V4,
    &typed::KIMI_K3,
    &typed::MINICPM,
    &lists::APERTUS,
    &lists::NEMOTRON,
    &objects::GIGACHAT_MARK,
    &objects::GIGACHAT,
    &objects::FUNCTIONARY,
    &objects::FUNCTIONARY_RECIPIENT,
    &objects::MINIMAX_M1,
    &hy3::SYNTAX,
    &glm::SYNTAX,
    &minimax::SYNTAX,
    &gemma4::SYNTAX,
    &command::SYNTAX,
    &seed::SYNTAX,
    &ernie::SYNTAX,
    &hunyuan::SYNTAX,
    &lists::GRANITE,
    &hermes::CODER,
    &hermes::SYNTAX,
];

impl Syntax {
    /// All forms that are built in.
    pub fn all() -> impl Iterator<Item = &'static Syntax> {
        SYNTAXES.into_iter()
    }

    /// The form that a template, or the end of a prompt, shows by its marks.
    pub(crate) fn shown(template: &str, prompt_end: &str) -> Option<&'static Syntax> {
        Syntax::all().find(|syntax| (syntax.is_shown_by)(template, prompt_end))
    }

    /// The form of the replies to a prompt; Hermes' form if the template shows none.
    pub fn of(template: &str, prompt_end: &str) -> &'static Syntax {
        Syntax::shown(template, prompt_end).unwrap_or_else(Syntax::generic)
    }

    /// The form of replies of a model whose template knows no tools, and whose prompt describes them in words.
    pub fn generic() -> &'static Syntax {
        &hermes::SYNTAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_start_after_reasoning() {
        for (template, prompt, ending, opening) in [
            ("", "<|im_start|>assistant\n<think>\n", "\n</think>\n\n", ""),
            ("", "<|im_start|>assistant\n<think>\n\n</think>\n\n", "", ""),
            ("<arg_key>", "<|assistant|>\n<think>", "</think>\n", ""),
            ("<|tool_call>", "<|turn>model\n<|channel>thought\n", "\n<channel|>", ""),
            ("<|tool_call>", "<|turn>model\n<|channel>thought\n<channel|>", "", ""),
            ("<|START_ACTION|>", "<|CHATBOT_TOKEN|><|START_THINKING|>", "<|END_THINKING|>", ""),
            ("<seed:tool_call>", "<seed:bos>assistant\n<seed:think>", "</seed:think>\n", ""),
            ("[THINK][TOOL_CALLS]", "[/INST][THINK]", "[/THINK]", ""),
            ("]<]minimax[>[", "]~b]ai\n<mm:think>", "</mm:think>", ""),
            ("<tool_calls>[", "<think>\n", "\n</think>\n<answer>\n", ""),
            ("<atem:function_calls>", "<|start|>assistant", "", " to=user<|message|>"),
            ("<atem:function_calls>", "<|start|>assistant to=self<|message|>", "<|eom|><|start|>assistant", ""),
            ("<|channel|>", "<|start|>assistant", "", "<|channel|>final<|message|>"),
            ("<|channel|>", "<|start|>assistant<|channel|>analysis<|message|>", "<|end|><|start|>assistant", ""),
            ("", "assistant:", "", ""),
        ] {
            let syntax = Syntax::of(template, prompt);
            assert_eq!((syntax.reasoning_ending(prompt), syntax.answer_opening(prompt)), (ending, opening), "{prompt}");
        }
    }

    #[test]
    fn templates_show_forms() {
        for (template, name) in [
            ("", "Hermes"),
            ("<tool_call>", "Hermes"),
            ("<tool_call> <|python_tag|>", "Hermes"),
            ("<tool_call><function=", "Qwen3-Coder"),
            ("<tool_call>name<arg_key>", "GLM"),
            ("<｜tool▁calls▁begin｜><｜tool▁sep｜>", "DeepSeek"),
            ("function<｜tool▁sep｜>name\n```json", "DeepSeek R1"),
            ("<|tool_call_argument_begin|>", "Kimi"),
            ("'<tool_sep{}>'.format(HYTK)", "Hy3"),
            ("<minimax:tool_call>", "MiniMax"),
            ("ns_token = ']<]minimax[>[' '<tool_call>'", "MiniMax M3"),
            ("<global_setting>\n<tool_call>", "ERNIE"),
            ("<tool_calls>[{\"name\": ", "Hunyuan"),
            ("<|start|>assistant <atem:function_calls>", "Muse"),
            ("<|tool_call>call:", "Gemma 4"),
            ("<|START_ACTION|>[", "Command"),
            ("<seed:tool_call>\n<function=", "Seed"),
            ("List of tools: <|tool_list_start|>", "LFM2"),
            ("\"\\n\" + \"List of tools: [\"", "LFM2"),
            ("<|tool_call:begin|>", "Solar"),
            ("'｜DSML｜' + 'function_calls>'", "DeepSeek V3.2"),
            ("'｜DSML｜' + 'tool_calls>'", "DeepSeek V4"),
            ("<|open|><|close|><|sep|>", "Kimi K3"),
            ("<function name=\"x\"><param name=\"", "MiniCPM 5"),
            ("<|tools_prefix|>", "Apertus"),
            ("<TOOLCALL>", "Nemotron"),
            ("<|tool_call|>", "Granite 3"),
            ("<|message_sep|> 'function call'", "GigaChat 3"),
            ("<|function_call|>", "GigaChat 3.1"),
            ("<tool_calls>\\n{\"name\"", "MiniMax M1"),
            ("'<function=' '</function>'", "functionary 3.1"),
            (">>>all", "functionary 3.2"),
            ("ipython", "Llama"),
            ("<|python_start|> ipython", "Llama 4"),
            ("[TOOL_CALLS] [", "Mistral (list)"),
            ("[TOOL_CALLS]name[ARGS]", "Mistral (named)"),
            ("<|channel|>", "Harmony"),
        ] {
            assert_eq!(Syntax::of(template, "").name, name, "{template}");
        }
    }
}
