//! Sources that are not MSL are refused, in the right line: by the pass over tokens, by the C++ compiler, and by the
//! compiler that knows address spaces. MSL is taken, however it is written.
#![cfg(all(target_arch = "x86_64", unix))]

mod common;

use common::metal::{compile_with, source, with_header};
use gpu_sim::{Constant, Error, Mode, check_address_spaces};
use std::path::Path;

/// Sources with the expected diagnostics, by line.
fn refused(texts: &[(&str, &str)]) {
    for (text, says) in texts {
        let log = match compile_with("wrong.metal", text, &[], &[], Mode::Fast) {
            Err(Error::Compile { log, .. }) => log,
            other => panic!("it was taken: {other:?}\n{text}"),
        };
        assert_marked(text, &log);
        assert!(log.contains(says), "{says:?} is not said:\n{text}\n{log}");
    }
}

/// Each line with a mark is named, and no other.
fn assert_marked(text: &str, log: &str) {
    let mut marks = 0;
    for (number, line) in (1..).zip(text.lines()) {
        let named = log.lines().any(|row| {
            let place = format!("wrong.metal:{number}:");
            row.starts_with(&place) && !row.contains("note:") && !row.contains("required from")
        });
        let marked = line.ends_with("// !");
        assert_eq!(named, marked, "line {number}:\n{text}\n{log}");
        marks += usize::from(marked);
    }
    assert!(marks > 0, "no line is marked:\n{text}");
}

#[test]
fn words_that_metal_does_not_have() {
    refused(&[
        ("kernel void k() {\n    auto f = [](int a) { return a; };  // !\n}", "lambda"),
        ("float f(float x) {\n    return [=] { return x; }();  // !\n}", "lambda"),
        ("float f() {\n    double x = 1;  // !\n    return x;\n}", "no double"),
        ("long f() {\n    unsigned long long x = 1;  // !\n    return x + 1ll;  // !\n}", "64 bits"),
        ("float f() {\n    return 1.0L;  // !\n}", "long double"),
        ("void f() {\n    goto end;  // !\nend:;\n}", "goto"),
        ("void f() {\n    try {  // !\n        throw 1;  // !\n    } catch (int) {}  // !\n}", "exceptions"),
        ("void f() {\n    thread int* x = new int;  // !\n    delete x;  // !\n}", "no new"),
        ("struct S {\n    virtual void f();  // !\n};", "virtual"),
        ("float f(float x) {\n    return std::exp(x);  // !\n}", "std"),
        ("void f() {\n    __syncthreads();  // !\n}", "__syncthreads"),
        ("void f() {\n    asm(\"nop\");  // !\n}", "assembler"),
        ("uint f() {\n    return gpu_sim::lane();  // !\n}", "the simulator's own"),
        ("vertex float4 f() { return 0; }  // !", "only kernels"),
        ("extern int x;  // !", "extern"),
    ]);
}

#[test]
fn variables_in_the_wrong_place() {
    refused(&[
        ("threadgroup float s[4];  // !\nkernel void k() {}", "in functions only"),
        ("void f() {\n    threadgroup float s[4];  // !\n}", "in kernels only"),
        ("struct S {\n    int n;\n    threadgroup float s[4];  // !\n};", "in functions only"),
        ("kernel void k() {\n    threadgroup float s[2] = {1, 2};  // !\n}", "cannot be initialised"),
        ("kernel void k() {\n    const threadgroup float s[2];  // !\n}", "a constant in threadgroup memory"),
        ("const int two = 2;  // !\nconstexpr int three = 3;  // !\nconstant int four = 4;", "address space constant"),
        ("struct S { static constexpr int n = 4; };  // !", "address space constant"),
        ("struct S { static constexpr constant int n = 4; int m; };\nint n = 1;  // !", "address space constant"),
        ("int f() {\n    static int calls;  // !\n    return ++calls;\n}", "static"),
    ]);
}

#[test]
fn pointers_without_an_address_space() {
    refused(&[
        ("float f(const float* x) { return x[0]; }  // !", "a pointer without an address space"),
        ("void f(float& x) { x = 1; }  // !", "a reference without an address space"),
        ("template <class T> void f(device T* x,\n    const T& y) { *x = y; }  // !", "a reference without"),
        ("float* f(device float* x);  // !", "a pointer without"),
        ("struct S {\n    device float* x;\n    const float* y;  // !\n};", "a pointer without"),
        ("using P = device float*;\nusing Q = float*;  // !", "a pointer without"),
        ("kernel void k(device float* x [[buffer(0)]]) {\n    float v = *(float*)x;  // !\n}", "a pointer without"),
        ("kernel void k(device float* x [[buffer(0)]]) {\n    const uint* y = (device uint*)x;  // !\n}", "a pointer"),
        (
            "float f(device float* x) {\n    return *reinterpret_cast<device int*>(x) +\n        *reinterpret_cast<int*>(x);  // !\n}",
            "a pointer",
        ),
        ("void f(thread float* x) {\n    float& y = *x;  // !\n    for (device float* p = 0; p;) {}\n}", "a reference"),
        ("float f(device float** x);  // !", "a pointer without"),
    ]);
}

#[test]
fn parameters_of_kernels() {
    refused(&[
        ("kernel void k(device float* x [[buffer(0)]],\n    uint y) {}  // !", "has no attribute"),
        ("kernel void k(threadgroup float* x) {}  // !", "has no attribute"),
        ("kernel void k(float* x [[buffer(0)]]) {}  // !", "without an address space"),
        ("kernel void k(threadgroup float* x [[buffer(0)]]) {}  // !", "device or constant"),
        ("kernel void k(device float* x [[threadgroup(0)]]) {}  // !", "address space threadgroup"),
        ("kernel void k(float x [[buffer(0)]]) {}  // !", "a pointer or a reference"),
        ("kernel void k(device float* x [[buffer(30)]],\n    device float* y [[buffer(31)]]) {}  // !", "0 to 30"),
        (
            "kernel void k(device float* x [[buffer(2)]],\n    constant int& y [[buffer(1 + 1)]]) {}  // !",
            "two parameters",
        ),
        ("kernel void k(device float* x [[buffer(n)]]) {}  // !", "numbers"),
        ("kernel void k(device float* x [[buffer(1 / 0)]]) {}  // !", "numbers"),
        ("kernel void k(device float* x [[buffer]]) {}  // !", "needs a number"),
        ("kernel void k(threadgroup float* x [[threadgroup(1)]]) {}  // !", "threadgroup(0)"),
        ("kernel void k(uint i [[thread_index]]) {}  // !", "not simulated"),
        (
            "kernel void k(uint i [[thread_index_in_simdgroup]] [[stage_in]]) {}  // !",
            "a type, a name and an attribute",
        ),
        ("kernel void k(texture2d<float> t [[texture(0)]]) {}  // !", "not simulated"),
        ("kernel int k() { return 1; }  // !", "returns void"),
        ("[[fast]] kernel void k() {}  // !", "fast is not known"),
        ("kernel void k() {}\nkernel void k() {}  // !", "two kernels"),
        ("kernel void k() {}\nvoid f() {\n    k();  // !\n}", "no function can call"),
        (
            "template <class T> kernel void k(device T* x [[buffer(0)]]) {}\ntemplate kernel void k<int>(device int*);  // !",
            "host_name",
        ),
        ("template [[host_name(\"a\")]] kernel void k<int>(device int*);  // !", "no template"),
    ]);
}

#[test]
fn functions_and_constants() {
    refused(&[
        ("int f(int n) { return n < 2 ? 1 : n * f(n - 1); }  // !", "calls itself"),
        ("int g(int n);\nint f(int n) { return g(n); }  // !\nint g(int n) { return f(n); }  // !", "recursion"),
        ("constant int n [[function_constant(3)]];  // !", "was given no value"),
        ("constant int n [[function_constant(0)]];  // !", "was given no value"),
        (
            "float f(device float* x) { return x[0]; }\nfloat f(threadgroup float* x) { return x[1]; }  // !",
            "the same body",
        ),
        ("void f() {\n    {\n        (1;\n    }  // !\n}", "nothing is open"),
        ("void f() {  // !\n    if (true) {\n}", "nothing closes"),
        ("void f() { int x = 1 @ 2; }  // !", "begins no token"),
    ]);
    let given = |text, constants| match compile_with("wrong.metal", text, &[], constants, Mode::Fast) {
        Err(Error::Compile { log, .. }) => log,
        other => panic!("it was taken: {other:?}\n{text}"),
    };
    let log = given("constant int n [[function_constant(3)]];", &[(3, Constant::Float(1.0))]);
    assert!(log.contains("wrong.metal:1: function constant 3 is a int, and was given a float"), "{log}");
    // Overloads that differ in more are several functions, and those that call each other are no recursion.
    let text = "
template <class T> T first(const device T* x) { return x[0]; }
template <class T> T first(const threadgroup T* x) { return x[0]; }
struct Pair {
    float a, b;
    Pair() thread : a(1), b(2) {}
    Pair() constant : a(1), b(2) {}
    float sum() const thread { return a + b; }
    float sum() const device { return a + b; }
    float sum() const constant { return a + b; }
};
struct Other { float sum() const thread { return 1; } };
float sum(float2 v) { return v.x + v.y; }
float sum(float4 v) { return sum(v.xy) + sum(v.zw); }
kernel void k(device float* x [[buffer(0)]], threadgroup float* s [[threadgroup(0)]]) { x[0] = first(x) + first(s) + sum(float4(1)) + Pair().sum() + Other().sum(); }";
    compile_with("right.metal", text, &[], &[], Mode::Fast).unwrap();
}

#[test]
fn types_that_do_not_fit() {
    // All in one source: the C++ compiler tells them all.
    let text = "
kernel void k(device float* out [[buffer(0)]], device half4* h [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    half4 a = h[i] * 2.5f;  // !
    float4 b = h[i];  // !
    float4 c = float4(1, 2, 3);  // !
    long d = simd_sum(long(i));
    out[i] = as_type<float>(half(1));
    atomic_fetch_add_explicit(out, 1.0f, memory_order_relaxed);  // !
    float e = b.s0;  // !
    half g = max(1.0h, 2.0f);  // !
    undeclared = 1;  // !
    // Correct lines are between them.
    half4 x = h[i] * 2.5h + 1;
    float4 y = float4(x) * 2 + 1.5f;
    y.xy += float2(x.zw);
    out[i] = dot(y, float4(y.xyz, 1)) + as_type<float>(half2(x.xy)) + max(y.x, 0.0) + float(1.5bf);
}";
    let log = match compile_with("wrong.metal", text, &[], &[], Mode::Fast) {
        Err(Error::Compile { log, .. }) => log,
        other => panic!("it was taken: {other:?}"),
    };
    let log: String = log.lines().filter(|row| row.contains("error:")).map(|row| row.to_owned() + "\n").collect();
    assert_marked(text, &log);
    assert!(log.contains("simd_sum: no type that passes between lanes") && log.contains("different sizes"), "{log}");
}

#[test]
fn headers() {
    let compile =
        |text| gpu_sim::Program::compile(&source("h.metal", text, Mode::Fast), Path::new(env!("CARGO_TARGET_TMPDIR")));
    let error = compile("kernel void k() {}").unwrap_err().to_string();
    assert!(error.contains("does not include <metal_stdlib>"), "{error}");
    let error = compile("#include <metal_stdlib>\n#include <vector>\nkernel void k() {}").unwrap_err().to_string();
    assert!(error.contains("h.metal:2"), "{error}");
    compile("#  include < metal_stdlib >\n#include <metal_simdgroup_matrix> // matrices\nkernel void k() {}").unwrap();
}

#[test]
fn odd_formatting() {
    let text = "#define FIRST(T, name, n) device T* name [[buffer(n)]]
#define BODY(x) { \\
    if (x) \\
        return; \\
    }
#pragma unroll
/* kernel void not_this(device float* x) {
   [[ buffer(99) ]] */
kernel // a comment, device
void
k /* threadgroup */ ( FIRST(float,
                            x, 2 - 1) , constant
    uint /* const */ & n[[buffer(0)]]
    ,const uint i[[ thread_position_in_grid ]])
{
    _Pragma(\"unroll\") for (uint j = 0; j < 2; ++j) BODY(i > n)
    threadgroup/**/float a /*[9]*/ [2]
        [3], b; const char* not_reached = \"device // \\\" [[x]]\";
    float t\\
en = 10;
    undeclared = ten;  // !
}
";
    let text = text.replace("const char* not_reached = \"device // \\\" [[x]]\"", "a[0][0] = 1");
    let Err(Error::Compile { log, .. }) = compile_with("wrong.metal", &text, &[], &[], Mode::Fast) else {
        panic!("it was taken")
    };
    assert_marked(&text, &log);
    compile_with("right.metal", &text.replace("undeclared", "x[i]"), &[], &[], Mode::Fast).unwrap();
}

#[test]
fn address_spaces_are_told_apart() {
    let check = |text: &str| {
        check_address_spaces(
            &source("", &with_header("wrong.metal", text), Mode::Fast),
            Path::new(env!("CARGO_TARGET_TMPDIR")),
        )
    };
    let right = "
struct Args { uint n; float scale; };
struct Block { half d; uchar q[32]; float at(uint i) const { return float(d) * q[i]; } float far(uint i) const device { return float(d) * q[i]; } };
constant float table[4] = {0.5, 1.0, 1.5, 2.0};
template <class T> static inline T first(const device T* x) { return x[0]; }
template <class T> static inline T first(const threadgroup T* x) { return x[0] + 1; }
static inline void add(thread float& sum, float x) { sum += x; }
static inline float scaled(const Args args, float x) { return args.scale * x; }
template <class T, int N>
kernel void k(constant Args& args [[buffer(0)]], const device Block* blocks [[buffer(1)]], device T* y [[buffer(2)]],
              threadgroup float4* dynamic [[threadgroup(0)]], uint i [[thread_position_in_grid]], uint local [[thread_index_in_simdgroup]]) {
    threadgroup float s[N], total;
    threadgroup atomic_uint count;
    Block own = blocks[i];
    float sum = own.at(local) + blocks[i].far(2) + table[i % 4];
    add(sum, simd_sum(sum));
    s[local] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    atomic_fetch_add_explicit(&count, 1u, memory_order_relaxed);
    simdgroup_float8x8 m;
    simdgroup_load(m, s, 8, ulong2(0, 0), true);
    m.thread_elements()[0] *= 2;
    float4 v = float4(first(s), first(y), as_type<float>(uint(1)), 0.0h);
    dynamic[i] = float4(half4(v));
    y[i] = scaled(args, v.x + dot(v, v) + max(v.y, 0.0));
}
template [[host_name(\"k4\")]] kernel void k<float, 4>(constant Args&, const device Block*, device float*, threadgroup float4*, uint, uint);
";
    match check(right) {
        Err(Error::NoClang { tried }) => {
            println!("SKIPPED: there is no clang on this machine ({tried:?}), so address spaces were not checked");
            return;
        }
        result => result.unwrap_or_else(|error| panic!("{error}")),
    }
    let wrong = "
static inline float f(const device float* p) { return p[0]; }
static inline void g(thread float& r) { r = 1; }
struct S { float v; float get() const { return v; } };
constant float table[2] = {1, 2};
kernel void k(device float* y [[buffer(0)]], constant float& a [[buffer(1)]], device S* s [[buffer(2)]], uint i [[thread_position_in_grid]]) {
    threadgroup float t[64];
    threadgroup atomic_float sum;
    y[i] = f(t);  // !
    g(y[i]);  // !
    a = 2;  // !
    device float* q = t;  // !
    y[i] = s->get();  // !
    const device float* r = (const device float*)y + (threadgroup uint*)t - (threadgroup uint*)t;  // !
    thread float* own = &y[1];  // !
    atomic_fetch_add_explicit(&sum, 1.0f, memory_order_relaxed);  // !
    y[i] = f(table);  // !
    simdgroup_float8x8 m;
    simdgroup_load(m, table);  // !
}";
    let Err(Error::Compile { log, .. }) = check(wrong) else { panic!("it was taken") };
    let log: String = log.lines().filter(|row| row.contains("error:")).map(|row| row.to_owned() + "\n").collect();
    assert_marked(wrong, &log);
    // Source that the translator itself generates, too.
    assert!(matches!(check("void f(float* x) {}"), Err(Error::Compile { .. })));
}
