//! Parameters: the arguments of kernels by their attributes, and the allowed parameters of other functions.

use super::attribute::Attribute;
use super::translator::Translator;
use std::collections::{BTreeMap, BTreeSet};

/// Number of buffers that a kernel can have: `[[buffer(0)]]` to `[[buffer(30)]]`.
const BUFFERS: u32 = 31;

/// Attributes of parameters that contain a thread's position.
const BUILT_IN: &[&str] = &[
    "thread_position_in_grid",
    "thread_position_in_threadgroup",
    "threadgroup_position_in_grid",
    "threads_per_grid",
    "threads_per_threadgroup",
    "dispatch_threads_per_threadgroup",
    "threadgroups_per_grid",
    "grid_origin",
    "thread_index_in_threadgroup",
    "thread_index_in_simdgroup",
    "thread_index_in_quadgroup",
    "simdgroup_index_in_threadgroup",
    "quadgroup_index_in_threadgroup",
    "threads_per_simdgroup",
    "thread_execution_width",
    "simdgroups_per_threadgroup",
    "dispatch_simdgroups_per_threadgroup",
    "quadgroups_per_threadgroup",
    "dispatch_quadgroups_per_threadgroup",
];

/// The argument that an entry point passes for one parameter, and the parameter's index.
pub(super) type Passed = (usize, String);

impl Translator<'_> {
    /// Writes the parameters of a kernel; what is passed for them, and the types of the buffers by their numbers.
    pub(super) fn parameters(&mut self, open: usize, close: usize) -> (Vec<Passed>, BTreeMap<u32, String>) {
        let (mut passed, mut buffers) = (Vec::new(), BTreeMap::new());
        // Buffers without a number have the smallest that are free, in their order.
        let numbers: BTreeSet<u32> = self.numbers_of_buffers(open, close);
        let mut free = (0..).filter(move |number| !numbers.contains(number));
        for (i, (from, to)) in self.split(open + 1, close).into_iter().enumerate() {
            if i > 0 {
                self.emit(from, ",".to_owned());
            }
            let end = (from..to).find(|&at| self.is_attribute(at)).unwrap_or(to);
            let (attributes, after) = if end < to { self.attributes(end) } else { (Vec::new(), to) };
            let simple =
                end >= from + 2 && self.is_word(end - 1) && !(from..end).any(|at| self.is(at, "(") || self.is(at, "="));
            if after != to || !simple {
                self.problem(from, "a kernel's parameter is a type, a name and an attribute");
                continue;
            }
            let ty = self.type_text(from, end - 1);
            let counted = attributes.is_empty() && self.in_buffer(from, end);
            let what = match counted.then(|| free.next()).flatten() {
                Some(number) => self.buffer(from, end - 1, &ty, number, &mut buffers),
                None => self.parameter(from, end - 1, &ty, &attributes, &mut buffers),
            };
            self.plain(from, end);
            passed.push((from, what));
        }
        (passed, buffers)
    }

    /// The argument for one parameter, whose type is between two places.
    fn parameter(
        &mut self,
        from: usize,
        to: usize,
        ty: &str,
        attributes: &[Attribute],
        buffers: &mut BTreeMap<u32, String>,
    ) -> String {
        let name = self.text(to).to_owned();
        let known = |attribute: &&Attribute| {
            matches!(attribute.name.as_str(), "buffer" | "threadgroup") || BUILT_IN.contains(&attribute.name.as_str())
        };
        let Some(attribute) = attributes.iter().find(known).cloned() else {
            let given: Vec<&str> = attributes.iter().map(|attribute| attribute.name.as_str()).collect();
            let what = match given.as_slice() {
                [] => {
                    format!("the parameter {name} has no attribute: [[buffer(n)]], [[threadgroup(0)]] or of the thread")
                }
                _ => format!("the parameter {name} has an attribute that is not simulated: {}", given.join(", ")),
            };
            self.problem(from, what);
            return String::new();
        };
        self.refuse_attributes(attributes, &[attribute.name.as_str()], "this parameter");
        let has = |word: &str| (from..to).any(|at| self.is(at, word));
        let points = (from..to).filter(|&at| self.is(at, "*") || self.is(at, "&")).count();
        if attribute.name == "buffer" || attribute.name == "threadgroup" {
            let in_space = match attribute.name.as_str() {
                "buffer" => self.in_buffer(from, to),
                _ => has("threadgroup"),
            };
            if !in_space && points == 1 {
                let wanted = if attribute.name == "buffer" { "device or constant" } else { "threadgroup" };
                self.problem(from, format!("the parameter {name} must point to the address space {wanted}"));
            }
            let Some(number) = self.number(&attribute) else { return String::new() };
            if attribute.name == "threadgroup" {
                self.check_pointer(from, to);
                if number != 0 {
                    self.problem(attribute.at, "only [[threadgroup(0)]] is simulated");
                }
                return format!("gpu_sim::Buffer<{ty}>::of(gpu_sim::dynamic_shared())");
            }
            return self.buffer(from, to, ty, number, buffers);
        }
        if attribute.argument.is_some() {
            self.problem(attribute.at, format!("{} takes no argument", attribute.name));
        }
        if points != 0 {
            self.problem(from, format!("the parameter {name} must be an integer or a vector of integers"));
        }
        format!("gpu_sim::built_in<{ty}>(gpu_sim::attributes::{}())", attribute.name)
    }

    /// The numbers that buffers among the parameters have.
    fn numbers_of_buffers(&mut self, open: usize, close: usize) -> BTreeSet<u32> {
        let at: Vec<usize> = (open..close).filter(|&at| self.is_attribute(at) && self.is(at + 2, "buffer")).collect();
        let attributes: Vec<Attribute> = at.into_iter().flat_map(|at| self.attributes(at).0).collect();
        attributes
            .iter()
            .filter(|attribute| attribute.name == "buffer")
            .filter_map(|attribute| self.number(attribute))
            .collect()
    }

    /// Whether a parameter is a pointer to memory of a buffer.
    fn in_buffer(&self, from: usize, to: usize) -> bool {
        (from..to).any(|at| self.is(at, "device") || self.is(at, "constant"))
    }

    /// A type that ends at the name `to` points to memory, once.
    fn check_pointer(&mut self, from: usize, to: usize) {
        let points = (from..to).filter(|&at| self.is(at, "*") || self.is(at, "&")).count();
        if points != 1 || !(self.is(to - 1, "*") || self.is(to - 1, "&")) {
            let what = format!("the parameter {} must be a pointer or a reference", self.text(to));
            self.problem(from, what);
        }
    }

    /// The argument for a buffer of a number, whose type is between two places.
    fn buffer(&mut self, from: usize, to: usize, ty: &str, number: u32, buffers: &mut BTreeMap<u32, String>) -> String {
        self.check_pointer(from, to);
        if number >= BUFFERS {
            self.problem(from, format!("buffer {number}: a kernel has buffers 0 to {}", BUFFERS - 1));
            return String::new();
        }
        if buffers.insert(number, ty.to_owned()).is_some() {
            self.problem(from, format!("two parameters are buffer {number}"));
        }
        format!("gpu_sim::Buffer<{ty}>::of(arguments[{number}])")
    }

    /// Writes the parameters of a function that is no kernel: the attributes that a kernel's have mean nothing here.
    pub(super) fn function_parameters(&mut self, open: usize, close: usize) {
        let mut expected = vec!["buffer", "threadgroup"];
        expected.extend(BUILT_IN);
        let mut from = open;
        while let Some(at) = (from..close).find(|&at| self.is_attribute(at)) {
            self.plain(from, at);
            let (attributes, after) = self.attributes(at);
            self.refuse_attributes(&attributes, &expected, "a parameter");
            from = after;
        }
        self.plain(from.min(close), close + 1);
    }

    /// The parts between commas.
    pub(super) fn split(&self, from: usize, to: usize) -> Vec<(usize, usize)> {
        let mut parts = Vec::new();
        let (mut begin, mut at) = (from, from);
        while at < to {
            match self.text(at) {
                "(" | "[" | "{" => at = self.matching(at),
                "<" => at = self.after_angles(at, to).map_or(at, |after| after - 1),
                "," => {
                    parts.push((begin, at));
                    begin = at + 1;
                }
                _ => {}
            }
            at += 1;
        }
        if begin < to || !parts.is_empty() {
            parts.push((begin, to));
        }
        parts
    }
}
