//! Kernels: their parameters, and an entry point that takes the addresses of the buffers by their numbers.

use super::attribute::Attribute;
use super::scope::Function;
use super::{Dialect, Translator};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Buffers that a kernel can take: `[[buffer(0)]]` to `[[buffer(30)]]`.
const BUFFERS: u32 = 31;

/// Attributes of parameters that tell a thread where it is.
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

/// What a template's instances need to know of it.
#[derive(Clone, Debug)]
pub(super) struct Signature {
    buffers: usize,
    /// Most threads of a threadgroup in C++, 0 if it does not say.
    threads: String,
}

/// Where the parameters of a template stand, and what was written before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Template {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) written: usize,
}

/// What an entry point passes for one parameter, and the place of the parameter.
type Passed = (usize, String);

impl Translator<'_> {
    /// A kernel with its entry point; the place after it.
    pub(super) fn kernel(&mut self, function: Function, template: Option<Template>) -> usize {
        let Function { begin, name, open, close, body } = function;
        let kernel = self.text(name).to_owned();
        let mut attributes = Vec::new();
        let mut at = begin;
        let mut words = Vec::new();
        while at < body {
            if at == name {
                at = close + 1;
            } else if self.is_attribute(at) {
                let (found, after) = self.attributes(at);
                attributes.extend(found);
                at = after;
            } else {
                words.push(self.text(at).to_owned());
                at += 1;
            }
        }
        self.refuse_attributes(&attributes, &["kernel", "host_name", "max_total_threads_per_threadgroup"], "a kernel");
        words.retain(|word| !matches!(word.as_str(), "kernel" | "static" | "inline"));
        if words != ["void"] {
            self.problem(begin, format!("a kernel returns void; {kernel} is declared as {}", words.join(" ")));
        }
        let threads =
            attributes.iter().find(|attribute| attribute.name == "max_total_threads_per_threadgroup").cloned();
        // It may be made of the template's parameters.
        let threads = match threads.map(|attribute| (attribute.argument, attribute.at)) {
            Some((Some((from, to)), _)) if from < to => self.type_text(from, to),
            Some((_, at)) => {
                self.problem(at, "max_total_threads_per_threadgroup needs a number");
                String::new()
            }
            None => "0".to_owned(),
        };
        self.check_parameters(open, close);

        let specifiers = if self.dialect == Dialect::Cpp { "GPU_SIM_BODY" } else { "static" };
        self.emit(begin, format!("{specifiers} void {kernel}("));
        let (passed, buffers) = self.parameters(open, close);
        self.emit(close, ")".to_owned());
        if !self.is(body, "{") {
            self.keep(body);
            return body + 1;
        }
        let end = self.matching(body);
        self.body(body, end + 1, true);
        self.note_calls(&kernel, name, body, end, template.is_some());
        if !self.kernels.insert(kernel.clone()) {
            self.problem(name, format!("there are two kernels {kernel}"));
        }

        let signature = Signature { buffers: buffers.keys().next_back().map_or(0, |last| *last as usize + 1), threads };
        if self.dialect == Dialect::OpenCl {
            if template.is_some() {
                self.templates.insert(kernel, signature);
            }
            return end + 1;
        }
        let mut table = String::new();
        for number in 0..signature.buffers as u32 {
            match buffers.get(&number) {
                Some(ty) => _ = write!(table, "gpu_sim::Buffer<{ty}>::parameter, "),
                None => table.push_str("gpu_sim::NO_PARAMETER, "),
            }
        }
        table.push_str("gpu_sim::NO_PARAMETER");
        match template {
            None => {
                self.emit(
                    end,
                    format!("GPU_SIM_UNCHECKED void {kernel}_gpu_sim_entry(void* const* arguments) {{ {kernel}("),
                );
                self.pass(&passed);
                self.emit(
                    end,
                    format!("); }} static constexpr gpu_sim::Parameter {kernel}_gpu_sim_parameters[] = {{{table}}};"),
                );
                let host_name = self.host_name(&attributes).unwrap_or_else(|| format!("{kernel:?}"));
                self.list(
                    end,
                    &kernel,
                    &host_name,
                    [&format!("{kernel}_gpu_sim_entry"), &format!("{kernel}_gpu_sim_parameters")],
                    &signature,
                );
            }
            Some(Template { from, to, .. }) => {
                let (text, names) = self.template_parameters(from, to);
                self.emit(end, format!(
                    "template <{text}> struct {kernel}_gpu_sim_entry {{ GPU_SIM_UNCHECKED void run(void* const* arguments) \
                     {{ {kernel}<{names}>("
                ));
                self.pass(&passed);
                self.emit(
                    end,
                    format!(
                        "); }} static constexpr gpu_sim::Parameter parameters[] = {{{table}}}; \
                     static constexpr gpu_sim::u32 threads = {}; }}",
                        signature.threads
                    ),
                );
                self.emit(end, ";".to_owned());
                self.templates.insert(kernel, signature);
            }
        }
        end + 1
    }

    fn pass(&mut self, passed: &[Passed]) {
        for (i, (at, text)) in passed.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            self.emit(*at, format!("{comma}{text}"));
        }
    }

    /// Puts a kernel into the list that the loader reads.
    fn list(&mut self, at: usize, name: &str, host_name: &str, [entry, table]: [&str; 2], signature: &Signature) {
        let Signature { buffers, threads } = signature;
        let number = self.listed;
        self.listed += 1;
        self.emit(at, format!(
            "static gpu_sim::MetalKernel {name}_gpu_sim_kernel_{number}({host_name}, {entry}, {table}, {buffers}, {threads})"
        ));
        self.emit(at, ";".to_owned());
    }

    /// The name, with its quotes, by which the host knows a kernel.
    fn host_name(&mut self, attributes: &[Attribute]) -> Option<String> {
        let attribute = attributes.iter().find(|attribute| attribute.name == "host_name")?;
        match attribute.argument {
            // Strings beside each other are one.
            Some((from, to)) if from < to && (from..to).all(|at| self.text(at).starts_with('"')) => {
                Some((from..to).map(|at| self.text(at)).collect::<Vec<_>>().join(" "))
            }
            _ => {
                self.problem(attribute.at, "host_name needs a string");
                None
            }
        }
    }

    /// Writes the parameters of a kernel; what is passed for them, and the types of the buffers by their numbers.
    fn parameters(&mut self, open: usize, close: usize) -> (Vec<Passed>, BTreeMap<u32, String>) {
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

    /// What is passed for one parameter, whose type stands between two places.
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

    /// Whether a parameter says that it points to memory of a buffer.
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

    /// What is passed for a buffer of a number, whose type stands between two places.
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

    /// Some tokens as C++.
    fn type_text(&mut self, from: usize, to: usize) -> String {
        let first = self.out.len();
        self.plain(from, to);
        self.out.drain(first..).map(|token| token.text.into_owned()).collect::<Vec<_>>().join(" ")
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

    /// A template's parameters as a text, and their names.
    fn template_parameters(&mut self, from: usize, to: usize) -> (String, String) {
        let text = self.type_text(from, to);
        let mut names = Vec::new();
        for (from, to) in self.split(from, to) {
            let end = self.find(from, to, &["="]);
            match (from + 1..end).next_back().filter(|&at| self.is_word(at)) {
                Some(at) if !(from..end).any(|at| self.is(at, "...")) => names.push(self.text(at).to_owned()),
                _ => self.problem(from, "a parameter of a kernel's template needs a name, and cannot be a pack"),
            }
        }
        (text, names.join(", "))
    }

    /// `template [[host_name("…")]] kernel … name<…>(…)`: an instance of a kernel's template.
    pub(super) fn instance(&mut self, from: usize, to: usize) {
        let mut attributes = Vec::new();
        let (mut at, mut named) = (from, None);
        while at < to {
            if self.is_attribute(at) {
                let (found, after) = self.attributes(at);
                attributes.extend(found);
                at = after;
                continue;
            }
            match self.text(at) {
                "(" => break,
                "<" => {
                    let Some(after) = self.after_angles(at, to) else { break };
                    // The last of several: the result may be `decltype(name<…>)`.
                    named = Some((at - 1, after));
                    at = after;
                }
                "decltype" if self.is(at + 1, "(") => at = self.matching(at + 1) + 1,
                _ => at += 1,
            }
        }
        self.refuse_attributes(&attributes, &["host_name", "kernel", "max_total_threads_per_threadgroup"], "a kernel");
        let Some((name, after)) = named else {
            self.problem(from, "an instance of a kernel names its template's arguments: name<…>");
            return;
        };
        let kernel = self.text(name).to_owned();
        let Some(signature) = self.templates.get(&kernel).cloned() else {
            self.problem(name, format!("there is no template of a kernel {kernel} before this"));
            return;
        };
        let Some(host_name) = self.host_name(&attributes) else {
            self.problem(from, "an instance of a kernel needs [[host_name(\"…\")]]");
            return;
        };
        let mut begin = name;
        while begin >= 2 && self.is(begin - 1, "::") && self.is_word(begin - 2) {
            begin -= 2;
        }
        let path = self.type_text(begin, name);
        let arguments = self.type_text(name + 1, after);
        if self.dialect == Dialect::OpenCl {
            // To take its address makes the instance.
            let number = self.listed;
            self.listed += 1;
            self.emit(from, format!("static void gpu_sim_instance_{number}() {{ (void)&{path}{kernel}{arguments}; }}"));
            return;
        }
        let entry = format!("{path}{kernel}_gpu_sim_entry{arguments}");
        let signature = Signature { threads: format!("{entry}::threads"), ..signature };
        self.list(from, &kernel, &host_name, [&format!("{entry}::run"), &format!("{entry}::parameters")], &signature);
    }
}
