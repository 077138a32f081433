//! The events of a chunk.

use serde_json::Value;

use crate::abi::gm_event_kind::{
    self, GM_EVENT_CHUNK, GM_EVENT_CONTENT, GM_EVENT_FINISH, GM_EVENT_REASONING, GM_EVENT_TOOL_CALL,
};
use crate::failure::Failure;

/// A part of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) kind: gm_event_kind,
    pub(crate) choice: u32,
    pub(crate) text: String,
}

/// The events of a chunk of `/v1/chat/completions` or `/v1/completions`: the chunk, and its parts.
///
/// # Errors
/// The error that the chunk reports instead.
pub(crate) fn events(chunk: String) -> Result<Vec<Event>, Failure> {
    let read: Value = serde_json::from_str(&chunk).map_err(|error| Failure::internal(format!("chunk: {error}")))?;
    if let Some(error) = read.get("error") {
        return Err(Failure::of_event(error));
    }
    let mut events = vec![Event { kind: GM_EVENT_CHUNK, choice: 0, text: chunk }];
    for choice in read["choices"].as_array().into_iter().flatten() {
        let number = choice["index"].as_u64().and_then(|index| u32::try_from(index).ok()).unwrap_or_default();
        let mut push = |kind, text: &str| {
            if !text.is_empty() {
                events.push(Event { kind, choice: number, text: text.to_owned() });
            }
        };
        let delta = &choice["delta"];
        push(GM_EVENT_REASONING, delta["reasoning_content"].as_str().unwrap_or_default());
        push(GM_EVENT_CONTENT, delta["content"].as_str().or_else(|| choice["text"].as_str()).unwrap_or_default());
        delta["tool_calls"]
            .as_array()
            .into_iter()
            .flatten()
            .for_each(|call| push(GM_EVENT_TOOL_CALL, &call.to_string()));
        push(GM_EVENT_FINISH, choice["finish_reason"].as_str().unwrap_or_default());
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::gm_status;

    #[test]
    fn a_chunk_has_an_event_for_each_part() {
        let chunk = r#"{"choices":[{"index":1,"delta":{"reasoning_content":"a","content":"b","tool_calls":[{"index":0}]},"finish_reason":"stop"}]}"#;
        let found = events(chunk.to_owned()).unwrap();
        let found: Vec<_> = found.iter().map(|event| (event.kind, event.choice, event.text.as_str())).collect();
        let expected = [
            (GM_EVENT_CHUNK, 0, chunk),
            (GM_EVENT_REASONING, 1, "a"),
            (GM_EVENT_CONTENT, 1, "b"),
            (GM_EVENT_TOOL_CALL, 1, r#"{"index":0}"#),
            (GM_EVENT_FINISH, 1, "stop"),
        ];
        assert_eq!(found, expected);
        let found = events(r#"{"choices":[{"index":0,"text":"c","finish_reason":null}]}"#.to_owned()).unwrap();
        assert_eq!((found.len(), found[1].kind, found[1].text.as_str()), (2, GM_EVENT_CONTENT, "c"));
    }

    #[test]
    fn an_error_ends_the_reply() {
        let error = r#"{"error":{"message":"m","type":"server_error","param":null,"code":null}}"#;
        let failure = events(error.to_owned()).unwrap_err();
        assert_eq!((failure.status, failure.message.as_str()), (gm_status::GM_INTERNAL, "m"));
    }
}
