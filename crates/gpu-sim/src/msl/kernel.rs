//! Kernels: one entry point per kernel, whose arguments are the buffer addresses by index; templates of kernels and
//! their instances.

use super::attribute::Attribute;
use super::function::Function;
use super::parameters::Passed;
use super::translator::{Dialect, Translator};
use std::fmt::Write;

/// Facts about a template that its instances need.
#[derive(Clone, Debug)]
pub(super) struct Signature {
    buffers: usize,
    /// Maximum threads of a threadgroup in C++, 0 if it is not declared.
    threads: String,
}

/// The indices of a template's parameters, and the length of the output before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Template {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) written: usize,
}

impl Translator<'_> {
    /// Translates a kernel and writes its entry point. Returns the index after it.
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

    /// Adds a kernel to the list that the loader reads.
    fn list(&mut self, at: usize, name: &str, host_name: &str, [entry, table]: [&str; 2], signature: &Signature) {
        let Signature { buffers, threads } = signature;
        let number = self.listed;
        self.listed += 1;
        self.emit(at, format!(
            "static gpu_sim::MetalKernel {name}_gpu_sim_kernel_{number}({host_name}, {entry}, {table}, {buffers}, {threads})"
        ));
        self.emit(at, ";".to_owned());
    }

    /// The name, with its quotes, by which the host finds a kernel.
    fn host_name(&mut self, attributes: &[Attribute]) -> Option<String> {
        let attribute = attributes.iter().find(|attribute| attribute.name == "host_name")?;
        match attribute.argument {
            // Strings next to each other are one.
            Some((from, to)) if from < to && (from..to).all(|at| self.text(at).starts_with('"')) => {
                Some((from..to).map(|at| self.text(at)).collect::<Vec<_>>().join(" "))
            }
            _ => {
                self.problem(attribute.at, "host_name needs a string");
                None
            }
        }
    }

    /// Some tokens as C++.
    pub(super) fn type_text(&mut self, from: usize, to: usize) -> String {
        let first = self.out.len();
        self.plain(from, to);
        self.out.drain(first..).map(|token| token.text.into_owned()).collect::<Vec<_>>().join(" ")
    }

    /// A template's parameters as source, and their names.
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
