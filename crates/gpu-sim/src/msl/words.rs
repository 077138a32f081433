//! Reserved words: those that MSL does not have, and those of the simulator.

use super::tokens::Kind;
use super::translator::Translator;

/// Words of C++ with their status in MSL (Metal Shading Language Specification, 1.5, "Metal and C++14 restrictions").
const REFUSED: &[(&str, &str)] = &[
    ("double", "Metal has no double"),
    ("goto", "Metal has no goto"),
    ("try", "Metal has no exceptions"),
    ("catch", "Metal has no exceptions"),
    ("throw", "Metal has no exceptions"),
    ("new", "Metal has no new"),
    ("delete", "Metal has no delete"),
    ("virtual", "Metal has no virtual functions"),
    ("dynamic_cast", "Metal has no dynamic_cast"),
    ("typeid", "Metal has no typeid"),
    ("thread_local", "Metal has no thread_local"),
    ("asm", "Metal has no assembler"),
    ("wchar_t", "Metal has no wchar_t"),
    ("char16_t", "Metal has no char16_t"),
    ("char32_t", "Metal has no char32_t"),
    ("std", "Metal has no namespace std"),
    ("vertex", "only kernels are simulated"),
    ("fragment", "only kernels are simulated"),
    ("threadgroup_imageblock", "imageblocks are not simulated"),
    ("ray_data", "ray tracing is not simulated"),
    ("object_data", "mesh shaders are not simulated"),
];

/// Words with two underscores that Apple's compiler also has. The last is Clang's; a source can test for it
/// (`__has_builtin`).
const UNDERSCORES: &[&str] = &["__attribute__", "__restrict", "__METAL_VERSION__", "__func__", "__builtin_offsetof"];

impl Translator<'_> {
    /// Refuses words that are invalid everywhere.
    pub(super) fn refuse_words(&mut self) {
        for at in 0..self.tokens.len() {
            let token = &self.tokens[at];
            let text = token.text.to_string();
            match token.kind {
                Kind::Word => self.refuse_word(at, &text),
                Kind::Number => {
                    let decimal = !text.starts_with("0x") && !text.starts_with("0X");
                    if text.ends_with("ll") || text.ends_with("LL") {
                        self.problem(at, "Metal has no long long: a long has 64 bits");
                    } else if decimal && text.contains(['.', 'e', 'E']) && text.ends_with(['l', 'L']) {
                        self.problem(at, "Metal has no long double");
                    }
                }
                Kind::Text => {}
                Kind::Mark if text == "#" || text == "##" => {
                    self.problem(at, "a directive is not at a line's beginning")
                }
                Kind::Mark => {}
            }
            if self.is_lambda(at) {
                self.problem(at, "a lambda, which Metal 3.1 does not have");
            }
        }
    }

    fn refuse_word(&mut self, at: usize, text: &str) {
        if let Some((_, what)) = REFUSED.iter().find(|(word, _)| *word == text) {
            self.problem(at, *what);
        }
        if text == "long" && self.is(at + 1, "long") {
            self.problem(at, "Metal has no long long: a long has 64 bits");
        }
        if text.starts_with("gpu_sim") || text.starts_with("GPU_SIM") {
            self.problem(at, format!("{text}: names that begin so are the simulator's own"));
        }
        let reserved = text.starts_with("__") || text.starts_with("_Float");
        if reserved && !UNDERSCORES.contains(&text) {
            self.problem(at, format!("{text} is not a word of Metal"));
        }
    }

    /// Whether `[` starts an expression, or the names of a structured binding.
    fn is_lambda(&self, at: usize) -> bool {
        if !self.is(at, "[") || self.is_attribute(at) || at > 0 && self.is_attribute(at - 1) {
            return false;
        }
        let Some(before) = at.checked_sub(1).and_then(|at| self.tokens.get(at)) else { return true };
        match before.kind {
            Kind::Word => matches!(&*before.text, "return" | "auto" | "case" | "else" | "do"),
            Kind::Number => true,
            Kind::Text => false,
            // An array of references or of pointers has its brackets after `)` or `>`; `operator[]` after a word.
            Kind::Mark => !matches!(&*before.text, ")" | "]" | ">" | "}"),
        }
    }
}
