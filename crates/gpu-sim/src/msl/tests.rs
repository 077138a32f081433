//! Every source results in C++ or in an error, and line numbers are preserved.

use super::{Dialect, translate};
use crate::{Error, Language, Source};

/// A source as the preprocessor leaves it, with most of what the pass looks at.
const TEXT: &str = r#"# 1 "a.metal"
using namespace metal;
struct alignas(16) Args { uint n; device float* p; float get(int i) const device { return p[i]; } };
namespace inner { constant float table[2][2] = {{1.0h, 2}, {3, 4}}; static constant constexpr const int two = 2; }
constant uint add [[function_constant(5 + 2)]];
template <typename T, int N = (3 > 2 ? 1 : 0)> static inline T at(const device T* x, thread const T& y, uint i) {
    for (thread T* p = 0; p != 0; ++p) { *p = y; }
    return x[i] + y * N >> 1;
}
float4 swap(float4 v) { v.xy = v.yx; return v.wzyx; }
kernel void k(constant Args& args [[buffer(1)]], device float* out [[buffer(0)]], threadgroup float4* s [[threadgroup(0)]],
              uint3 i [[thread_position_in_grid]]) {
    threadgroup float a[4][2], b;
    a[i.x][0] = b = (float)*(device half*)(out + 1);
    threadgroup_barrier(mem_flags::mem_threadgroup);
# 90 "b.metal" 1
    out[i.x] = at<float>(out, a[0][0], i.y); }
template <typename T, int N> [[kernel, max_total_threads_per_threadgroup(2 * (3 + 4))]] void t(device T* x [[buffer(30)]]) {}
template [[host_name("t_f32")]] kernel void t<float, 3>(device float*);
"#;

fn source<'a>() -> Source<'a> {
    Source {
        language: Language::Metal,
        name: "a.metal",
        constants: &[(7, crate::Constant::Uint(3))],
        ..Source::default()
    }
}

fn both(text: &str) -> [Result<String, Error>; 2] {
    [Dialect::Cpp, Dialect::OpenCl].map(|dialect| translate(&source(), text, dialect).map(|done| done.text))
}

#[test]
fn a_text_is_translated() {
    let [cpp, opencl] = both(TEXT).map(|text| text.unwrap_or_else(|error| panic!("{error}")));
    for word in ["device", "threadgroup", "thread", "constant", "kernel"] {
        let left = |text: &str| super::tokens::read(text).unwrap().list.iter().any(|token| token.is(word));
        assert!(!left(&cpp) && !left(&opencl), "{word}:\n{cpp}\n{opencl}");
    }
    assert!(!cpp.contains("[[") && !opencl.contains("[["), "{cpp}\n{opencl}");
    assert!(cpp.contains("#line 90 \"b.metal\"") && opencl.contains("#line 90 \"b.metal\""), "{cpp}");
    assert!(opencl.contains("__local float4* s"), "{opencl}");
}

#[test]
fn lines_are_kept() {
    let text = "# 7 \"x.metal\"\nstruct A\n{ int a;\n\n\n int b; };\n# 40 \"y.metal\" 2\n\nint f(int a,\n int b)\n{\n return a; }\n\
                kernel\nvoid\nk(device int* x\n[[buffer(0)\n]])\n{\n\n\n\n\n\n\n\n\n\n\n\n\n x[0] = 1; }\n";
    for result in both(text) {
        let result = result.unwrap_or_else(|error| panic!("{error}"));
        // Where each word stands by the directives of the result.
        let mut line = 0;
        let mut file = "";
        let mut found = Vec::new();
        for row in result.lines() {
            if let Some(rest) = row.strip_prefix("#line ") {
                let (number, name) = rest.split_once(' ').unwrap();
                (line, file) = (number.parse::<u32>().unwrap(), name);
                continue;
            }
            found.extend(row.split([' ', ';']).map(|word| (word.to_owned(), file.to_owned(), line)));
            line += 1;
        }
        let is = |word: &str, file: &str, line: u32| {
            let wanted = (word.to_owned(), format!("\"{file}\""), line);
            assert!(found.contains(&wanted), "{wanted:?} is not in:\n{result}");
        };
        is("struct", "x.metal", 7);
        is("b", "x.metal", 11);
        is("f(int", "y.metal", 41);
        is("return", "y.metal", 44);
        is("x[0]", "y.metal", 63);
    }
}

#[test]
fn hostile_texts_end_with_an_error_or_with_text() {
    let deep = |open: &str, n: usize| open.repeat(n);
    let mut texts: Vec<String> = [
        "", "\u{0}", "\\", "\\\n", "\"", "'", "'\\", "\"\\\n", "#", "# ", "# 1", "# 99999999999 \"x\"", "# 4294967295 \"x\"\n\n\na",
        "[[", "]]", "[[]]", "[[kernel", "kernel", "kernel void", "kernel void k", "kernel void k(", "kernel void k()", "kernel k;",
        "template", "template <", "template <>", "template <> kernel", "template kernel x<", "template [[host_name]] kernel void k<1>;",
        "threadgroup", "constant", "constant [[function_constant]]", "constant [[function_constant(0)]];", "constant int x [[function_constant(((]]",
        "struct", "struct {", "struct { } x; ;", "operator", "operator()", "int operator(", "int operator()() {}", "a::", "::", "<", ">", "a<b", "a<b>;",
        "é", "int é;", "\"é", "# 1 \"é\"\né", "0x", "1e+", ".5.5.5e", "1'", "int x = 1'000;", "kernel void k(device float* x [[buffer(1/0)]]) {}",
        "kernel void k(device float* x [[buffer(-1)]]) {}", "kernel void k(device float* x [[buffer(99999999999999999999)]]) {}",
        "kernel void k(device float* x [[buffer(9223372036854775807 * 2)]]) {}", "kernel void k(device float* x [[buffer(0)]] [[buffer(1)]]) {}",
        "kernel void k(threadgroup float x) { threadgroup; threadgroup threadgroup; threadgroup a b c, ; threadgroup float x[; }",
        "kernel void k() { threadgroup float; threadgroup float a, , b; threadgroup float x = 1; threadgroup const float y; }",
        "kernel void k() { is_function_constant_defined( ", "void f() { is_function_constant_defined(); }", "&", "* *", "int & & x;",
        "kernel void f() {} kernel void f() { f(); }", "namespace", "namespace a", "namespace a;", "namespace { namespace { } }",
        "using", "typedef", "enum", "enum {", "static_assert", "friend;", "extern", "public:", "public", "private:x", ")", "}", "(]", "{(})",
    ]
    .map(str::to_owned)
    .into();
    for open in ["(", "[", "{", "namespace a {", "struct a {", "template <", "a<", "(((((", "[["] {
        texts.push(deep(open, 100_000));
    }
    texts.push(format!("kernel void k(device int* x [[buffer({}0{})]]) {{}}", deep("(", 200), deep(")", 200)));
    texts.push(format!("int x = {}0{};", deep("(", 1_000), deep(")", 1_000)));
    // Every beginning, and every end.
    for at in (0..TEXT.len()).filter(|&at| TEXT.is_char_boundary(at)) {
        texts.push(TEXT[..at].to_owned());
        texts.push(TEXT[at..].to_owned());
    }
    // Words taken out, doubled and put elsewhere.
    let mut state = gristmill_suite::testing::seed_of_test() | 1;
    let mut below = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    let words: Vec<&str> = super::tokens::read(TEXT).unwrap().list.iter().map(|token| find(&token.text)).collect();
    for _ in 0..3_000 {
        let mut words = words.clone();
        for _ in 0..=below(4) {
            let (from, to) = (below(words.len()), below(words.len()));
            match below(3) {
                0 => drop(words.remove(from)),
                1 => words.insert(to, words[from]),
                _ => words.swap(from, to),
            }
        }
        texts.push(words.join(" "));
    }
    for text in texts {
        let _ = both(&text);
    }
}

/// A token's characters, in the source that lives as long as the test.
fn find(token: &str) -> &'static str {
    TEXT.find(token).map_or("", |at| &TEXT[at..at + token.len()])
}
