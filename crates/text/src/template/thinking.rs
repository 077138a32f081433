//! The variables with which templates turn thinking on and off. Each family has a name of its own.

use serde_json::Value as Json;

/// Efforts that turn thinking off, or are the lowest, from the most to the least specific. A template gets the first
/// one that it contains as a text, because it can refuse others.
const LOWEST: [&str; 4] = ["none", "no_think", "minimal", "low"];

/// The effort without thinking of templates that turn it on by another effort.
const OFF: &str = "no_think";

/// The variables that turn thinking on or off in this template; unread variables change nothing.
pub(super) fn switch(source: &str, on: bool) -> Vec<(&'static str, Json)> {
    let is_written = |text: &str| ['\'', '"'].iter().any(|quote| source.contains(&format!("{quote}{text}{quote}")));
    let mut variables: Vec<(&str, Json)> = vec![
        ("enable_thinking", on.into()),
        // DeepSeek, Granite, Kimi.
        ("thinking", on.into()),
        // Command.
        ("reasoning", on.into()),
        // MiniMax.
        ("thinking_mode", if on { "enabled" } else { "disabled" }.into()),
        // Ling.
        ("thinking_option", if on { "on" } else { "off" }.into()),
    ];
    if !on {
        // Seed-OSS.
        variables.push(("thinking_budget", 0.into()));
        // gpt-oss always thinks, and least with a low effort.
        let lowest = LOWEST.into_iter().find(|text| is_written(text)).unwrap_or("low");
        variables.push(("reasoning_effort", lowest.into()));
    } else if is_written(OFF) {
        variables.push(("reasoning_effort", "high".into()));
    }
    variables
}

#[cfg(test)]
mod tests {
    use crate::template::{Chat, ChatTemplate, Message, RenderOptions, Role};
    use serde_json::json;

    fn rendered(source: &str, thinking: Option<bool>, effort: Option<&str>) -> String {
        let mut chat = Chat { thinking, ..Chat::new(vec![Message::new(Role::User, "x")]) };
        chat.variables.extend(effort.map(|effort| ("reasoning_effort".to_owned(), json!(effort))));
        let template = ChatTemplate::new(source).expect("a template");
        template.render(&chat, &RenderOptions::default()).expect("it renders")
    }

    #[test]
    fn each_name_is_set() {
        // The condition for thinking of a family.
        for condition in [
            "enable_thinking is not defined or enable_thinking",
            "thinking is undefined or thinking",
            "(reasoning if reasoning is defined else true)",
            "thinking_mode is not defined or thinking_mode == 'enabled'",
            "thinking_option | default('on') == 'on'",
            "thinking_budget | default(-1) != 0",
            "reasoning_effort | default('high') not in ['low', 'minimal']",
            "reasoning_effort | default('high') != 'no_think'",
            "reasoning_effort | default('high') != 'none'",
        ] {
            let source = format!("{{% if {condition} %}}thinks{{% else %}}not{{% endif %}}");
            let found = [None, Some(true), Some(false)].map(|thinking| rendered(&source, thinking, None));
            assert_eq!(found, ["thinks", "thinks", "not"], "{condition}");
        }
        // Off by default.
        let source = "{% if reasoning_effort | default('no_think') != 'no_think' %}thinks{% endif %}";
        assert_eq!(
            [None, Some(true), Some(false)].map(|thinking| rendered(source, thinking, None)),
            ["", "thinks", ""]
        );
    }

    #[test]
    fn an_effort_of_the_caller_stays() {
        let source = "Reasoning: {{ reasoning_effort | default('medium') }}";
        assert_eq!(rendered(source, None, None), "Reasoning: medium");
        assert_eq!(rendered(source, Some(true), Some("high")), "Reasoning: high");
        assert_eq!(rendered(source, Some(false), None), "Reasoning: low");
        assert_eq!(rendered(source, Some(false), Some("high")), "Reasoning: high");
    }
}
