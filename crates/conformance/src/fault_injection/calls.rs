//! Calls in kernel sources that order threads or memory.

use gpu_sim::Language;

/// A call in a kernel source that orders threads or memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Line, from 1.
    pub line: usize,
    /// The call.
    pub call: String,
    /// Its bytes in the source.
    pub at: std::ops::Range<usize>,
    /// The replacement that deletes the order.
    pub instead: &'static str,
}

impl Call {
    /// Whether the call orders anything on such a device, in this source. Both devices include both headers, and on
    /// Metal no launch waits for another by itself.
    pub(super) fn is_on(&self, language: Language, source: &str) -> bool {
        match language {
            Language::Cuda => source != "device_metal.h",
            Language::Metal => source != "device_cuda.h" && !self.call.starts_with("dependency_wait"),
        }
    }

    /// Whether the simulator reports that threads reach the call.
    pub(super) fn is_reported(&self) -> bool {
        !self.call.starts_with("wgmma_fence")
    }
}

/// Calls that order, and what replaces each; an empty replacement removes the whole call. The first match counts.
const ORDERING: &[(&str, &str)] = &[
    ("__syncthreads_or(", "("),
    ("__syncthreads_and(", "("),
    ("__syncthreads(", ""),
    ("__syncwarp(", ""),
    ("threadgroup_barrier(", ""),
    ("simdgroup_barrier(", ""),
    ("warp_barrier(", ""),
    ("barrier(", ""),
    ("barrier_global(", ""),
    ("cp_async_wait<", ""),
    ("dependency_wait(", ""),
    ("named_barrier_sync(", ""),
    ("named_barrier_arrive(", ""),
    ("mbarrier_wait(", ""),
    ("fence_async(", ""),
    ("wgmma_fence(", ""),
    ("wgmma_wait<", ""),
];

/// Marks a call that serves the compiler alone.
const ORDERS_NOTHING: &str = "// Orders nothing";

/// Every call in a source that orders threads or memory, without definitions and comments.
pub fn orders(text: &str) -> Vec<Call> {
    let (mut found, mut begin) = (Vec::new(), 0);
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        let code = line.split("//").next().filter(|_| !line.contains(ORDERS_NOTHING)).unwrap_or_default();
        for (word, instead) in ORDERING {
            for (at, _) in code.match_indices(word) {
                let identifier = |c: char| c.is_alphanumeric() || c == '_';
                let before = &code[..at];
                if before.ends_with(identifier) || before.ends_with("void ") {
                    continue;
                }
                // A call with its parentheses, which may be nested; a vote keeps its arguments.
                let mut end = at + word.len();
                let mut open = i32::from(word.ends_with('('));
                while instead.is_empty() && !(open == 0 && code[..end].ends_with(')')) {
                    let Some(next) = code[end..].chars().next() else { break };
                    open += i32::from(next == '(') - i32::from(next == ')');
                    end += next.len_utf8();
                }
                let call = code[at..end].to_owned();
                let instead = if instead.is_empty() { "((void)0)" } else { instead };
                found.push(Call { line: number, call, at: begin + at..begin + end, instead });
            }
        }
        begin += line.len();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_found() {
        let text = "DEV void barrier() { __syncthreads(); }  // not barrier()\n    if (a) warp_barrier(); else barrier();\n\
                    cp_async_wait<N - 2>();\n__syncwarp();  // Orders nothing: so\nsimdgroup_barrier(mem_flags::mem_none);\n if (__syncthreads_or(f(x))) mbarrier_wait(at(1), p);\n";
        let found: Vec<(usize, String, &str)> =
            orders(text).into_iter().map(|order| (order.line, text[order.at].to_owned(), order.instead)).collect();
        let nothing = "((void)0)";
        let expected = [
            (1, "__syncthreads()", nothing),
            (2, "warp_barrier()", nothing),
            (2, "barrier()", nothing),
            (3, "cp_async_wait<N - 2>()", nothing),
            (5, "simdgroup_barrier(mem_flags::mem_none)", nothing),
            (6, "__syncthreads_or(", "("),
            (6, "mbarrier_wait(at(1), p)", nothing),
        ];
        assert_eq!(found, expected.map(|(line, call, instead)| (line, call.to_owned(), instead)));
    }
}
