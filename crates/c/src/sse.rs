//! The data of server-sent events, from bytes that arrive in any parts.

/// Bytes of an event that is not complete.
#[derive(Debug, Default)]
pub(crate) struct Sse {
    rest: Vec<u8>,
}

impl Sse {
    /// Adds bytes, and returns the data of each line that is complete. The server writes one line of data for each event.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        self.rest.extend_from_slice(bytes);
        let Some(end) = self.rest.iter().rposition(|&byte| byte == b'\n') else { return Vec::new() };
        let lines: Vec<u8> = self.rest.drain(..=end).collect();
        let data = lines.split(|&byte| byte == b'\n').filter_map(|line| line.strip_prefix(b"data: "));
        data.map(|data| String::from_utf8_lossy(data).into_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_arrive_in_any_parts() {
        let bytes = "data: {\"a\":\"é\"}\n\n: comment\n\ndata: [DONE]\n\n".as_bytes();
        for size in 1..=bytes.len() {
            let mut sse = Sse::default();
            let data: Vec<String> = bytes.chunks(size).flat_map(|part| sse.push(part)).collect();
            assert_eq!(data, ["{\"a\":\"é\"}", "[DONE]"], "parts of {size} bytes");
        }
    }
}
