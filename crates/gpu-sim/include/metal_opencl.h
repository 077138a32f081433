// Metal's qualifiers and intrinsics in C++ for OpenCL, as declarations alone, for a compiler that checks address spaces.
// The types of operands and results are checked where kernels run; here they are loose.
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#pragma OPENCL EXTENSION __cl_clang_function_pointers : enable
#pragma OPENCL EXTENSION __cl_clang_variadic_functions : enable
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef char int8_t;
typedef uchar uint8_t;
typedef short int16_t;
typedef ushort uint16_t;
typedef int int32_t;
typedef uint uint32_t;
typedef long int64_t;
typedef ulong uint64_t;
typedef ulong size_t;
typedef long ptrdiff_t;

struct bfloat {
    ushort bits;
    bfloat() = default;
    constexpr bfloat(float) : bits(0) {}
    operator float() const;
};

#define GPU_SIM_VECTORS(T)                                                                        \
    typedef T T##2 __attribute__((ext_vector_type(2)));                                           \
    typedef T T##3 __attribute__((ext_vector_type(3)));                                           \
    typedef T T##4 __attribute__((ext_vector_type(4)));                                           \
    struct packed_##T##2 { T v[2]; packed_##T##2() = default; packed_##T##2(T##2); operator T##2() const; };   \
    struct packed_##T##3 { T v[3]; packed_##T##3() = default; packed_##T##3(T##3); operator T##3() const; };   \
    struct packed_##T##4 { T v[4]; packed_##T##4() = default; packed_##T##4(T##4); operator T##4() const; };
GPU_SIM_VECTORS(char)
GPU_SIM_VECTORS(uchar)
GPU_SIM_VECTORS(short)
GPU_SIM_VECTORS(ushort)
GPU_SIM_VECTORS(int)
GPU_SIM_VECTORS(uint)
GPU_SIM_VECTORS(long)
GPU_SIM_VECTORS(ulong)
GPU_SIM_VECTORS(half)
GPU_SIM_VECTORS(float)
// Comparisons of vectors give integers in OpenCL.
typedef int bool2 __attribute__((ext_vector_type(2)));
typedef int bool3 __attribute__((ext_vector_type(3)));
typedef int bool4 __attribute__((ext_vector_type(4)));
template <class T, int N> struct gpu_sim_several { T v[N]; T operator[](int) const; };
typedef gpu_sim_several<bfloat, 2> bfloat2;
typedef gpu_sim_several<bfloat, 3> bfloat3;
typedef gpu_sim_several<bfloat, 4> bfloat4;

template <class T, class... A> T gpu_sim_make(A...);
template <class T, class U> T as_type(U);
// Where a variable in threadgroup memory lies.
__local void* gpu_sim_threadgroup_memory();

#define INFINITY (__builtin_inff())
#define NAN (__builtin_nanf(""))
#define HUGE_VALF INFINITY
#define FLT_MAX 3.402823466e+38f
#define MAXFLOAT FLT_MAX
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define HALF_MAX 65504.0h
#define MAXHALF HALF_MAX
#define HALF_MIN 6.103515625e-05h
#define HALF_EPSILON 0.0009765625h
#define CHAR_BIT 8
#define SCHAR_MAX 127
#define SCHAR_MIN (-128)
#define UCHAR_MAX 255
#define CHAR_MAX 127
#define CHAR_MIN (-128)
#define SHRT_MAX 32767
#define SHRT_MIN (-32768)
#define USHRT_MAX 65535
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
#define LONG_MAX 9223372036854775807l
#define LONG_MIN (-9223372036854775807l - 1)
#define ULONG_MAX 18446744073709551615ul
#define M_E_F 2.71828182845904523536f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LOG10E_F 0.434294481903251827651f
#define M_LN2_F 0.693147180559945309417f
#define M_LN10_F 2.30258509299404568402f
#define M_PI_F 3.14159265358979323846f
#define M_PI_2_F 1.57079632679489661923f
#define M_PI_4_F 0.785398163397448309616f
#define M_1_PI_F 0.318309886183790671538f
#define M_2_PI_F 0.636619772367581343076f
#define M_SQRT2_F 1.41421356237309504880f
#define M_SQRT1_2_F 0.707106781186547524401f
#define M_PI_H 3.14159265358979323846h
#define NULL nullptr

namespace metal {

template <class T, int N> struct gpu_sim_vector { typedef T type __attribute__((ext_vector_type(N))); };
template <int N> struct gpu_sim_vector<bfloat, N> { typedef gpu_sim_several<bfloat, N> type; };
template <class T, int N> using vec = typename gpu_sim_vector<T, N>::type;
template <class T, int C, int R> struct matrix {
    vec<T, R> columns[C];
    template <class... A> matrix(A...);
    __private vec<T, R>& operator[](int);
};

template <class A, class B> struct is_same { static __constant constexpr const bool value = false; };
template <class A> struct is_same<A, A> { static __constant constexpr const bool value = true; };
template <class A, class B> __constant constexpr bool is_same_v = is_same<A, B>::value;
template <class A, class B> __constant constexpr bool is_convertible_v = __is_convertible_to(A, B);
template <bool, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { typedef T type; };
template <bool B, class T = void> using enable_if_t = typename enable_if<B, T>::type;
template <bool, class A, class B> struct conditional { typedef A type; };
template <class A, class B> struct conditional<false, A, B> { typedef B type; };
template <bool C, class A, class B> using conditional_t = typename conditional<C, A, B>::type;
template <class T> struct numeric_limits {
    static constexpr T max() { return T(); }
    static constexpr T min() { return T(); }
    static constexpr T lowest() { return T(); }
    static constexpr T epsilon() { return T(); }
    static constexpr T infinity() { return T(); }
    static constexpr T quiet_NaN() { return T(); }
};

// ---- Functions of numbers.
#define GPU_SIM_1(name) template <class A> A name(A);
#define GPU_SIM_2(name) template <class A, class B> decltype(A() + B()) name(A, B);
#define GPU_SIM_3(name) template <class A, class B, class C> decltype(A() + B() + C()) name(A, B, C);
#define GPU_SIM_FUNCTIONS                                                                         \
    GPU_SIM_1(exp) GPU_SIM_1(exp2) GPU_SIM_1(exp10) GPU_SIM_1(log) GPU_SIM_1(log2) GPU_SIM_1(log10) GPU_SIM_1(sqrt) \
    GPU_SIM_1(rsqrt) GPU_SIM_1(sin) GPU_SIM_1(cos) GPU_SIM_1(tan) GPU_SIM_1(asin) GPU_SIM_1(acos) GPU_SIM_1(atan)   \
    GPU_SIM_1(sinh) GPU_SIM_1(cosh) GPU_SIM_1(tanh) GPU_SIM_1(floor) GPU_SIM_1(ceil) GPU_SIM_1(trunc)               \
    GPU_SIM_1(rint) GPU_SIM_1(round) GPU_SIM_1(fract) GPU_SIM_1(fabs)                                               \
    GPU_SIM_2(pow) GPU_SIM_2(powr) GPU_SIM_2(fmod) GPU_SIM_2(atan2) GPU_SIM_2(divide) GPU_SIM_2(fmin) GPU_SIM_2(fmax)
GPU_SIM_FUNCTIONS
namespace precise { GPU_SIM_FUNCTIONS }
namespace fast { GPU_SIM_FUNCTIONS }
GPU_SIM_1(sign) GPU_SIM_1(saturate) GPU_SIM_1(abs) GPU_SIM_1(popcount) GPU_SIM_1(clz) GPU_SIM_1(ctz) GPU_SIM_1(reverse_bits)
GPU_SIM_1(normalize)
GPU_SIM_2(copysign) GPU_SIM_2(fdim) GPU_SIM_2(step) GPU_SIM_2(min) GPU_SIM_2(max) GPU_SIM_2(rotate) GPU_SIM_2(mulhi)
GPU_SIM_2(addsat) GPU_SIM_2(subsat) GPU_SIM_2(hadd) GPU_SIM_2(rhadd) GPU_SIM_2(absdiff) GPU_SIM_2(mul24)
GPU_SIM_3(fma) GPU_SIM_3(clamp) GPU_SIM_3(mix) GPU_SIM_3(smoothstep) GPU_SIM_3(min3) GPU_SIM_3(max3) GPU_SIM_3(median3)
GPU_SIM_3(madhi) GPU_SIM_3(mad24)
template <class A> bool isnan(A);
template <class A> bool isinf(A);
template <class A> bool isfinite(A);
template <class A> bool signbit(A);
template <class A> bool any(A);
template <class A> bool all(A);
template <class A, class B, class C> decltype(A() + B()) select(A, B, C);
template <class A> decltype(A().x) dot(A, A);
template <class A> decltype(A().x) length(A);
template <class A> decltype(A().x) length_squared(A);
template <class A> A ldexp(A, int);
template <class A> A frexp(A, __private int&);
template <class A> A sincos(A, __private A&);
template <class A> A modf(A, __private A&);
template <class A> A extract_bits(A, uint, uint);
template <class A> A insert_bits(A, A, uint, uint);

// ---- Barriers, simdgroups.
enum class mem_flags : uint { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
mem_flags operator|(mem_flags, mem_flags);
void threadgroup_barrier(mem_flags);
void simdgroup_barrier(mem_flags);
GPU_SIM_1(simd_sum) GPU_SIM_1(simd_product) GPU_SIM_1(simd_min) GPU_SIM_1(simd_max) GPU_SIM_1(simd_and) GPU_SIM_1(simd_or)
GPU_SIM_1(simd_xor) GPU_SIM_1(simd_prefix_inclusive_sum) GPU_SIM_1(simd_prefix_exclusive_sum)
GPU_SIM_1(simd_prefix_inclusive_product) GPU_SIM_1(simd_prefix_exclusive_product) GPU_SIM_1(simd_broadcast_first)
GPU_SIM_1(quad_sum) GPU_SIM_1(quad_product) GPU_SIM_1(quad_min) GPU_SIM_1(quad_max)
#define GPU_SIM_SHUFFLE(name) template <class A> A name(A, ushort);
GPU_SIM_SHUFFLE(simd_shuffle) GPU_SIM_SHUFFLE(simd_broadcast) GPU_SIM_SHUFFLE(simd_shuffle_xor) GPU_SIM_SHUFFLE(simd_shuffle_up)
GPU_SIM_SHUFFLE(simd_shuffle_down) GPU_SIM_SHUFFLE(simd_shuffle_rotate_up) GPU_SIM_SHUFFLE(simd_shuffle_rotate_down)
GPU_SIM_SHUFFLE(quad_shuffle) GPU_SIM_SHUFFLE(quad_broadcast) GPU_SIM_SHUFFLE(quad_shuffle_xor)
template <class A> A simd_shuffle_and_fill_up(A, A, ushort);
template <class A> A simd_shuffle_and_fill_down(A, A, ushort);
struct simd_vote {
    typedef ulong vote_t;
    explicit simd_vote(vote_t);
    explicit operator vote_t() const;
    bool all() const;
    bool any() const;
};
simd_vote simd_ballot(bool);
simd_vote simd_active_threads_mask();
bool simd_any(bool);
bool simd_all(bool);
bool simd_is_first();

template <class T, int C, int R> struct simdgroup_matrix {
    simdgroup_matrix() = default;
    explicit simdgroup_matrix(T);
    __private vec<T, 2>& thread_elements() __private;
    T elements[2];
};
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
template <class T, int C, int R = C> simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T);
#define GPU_SIM_MATRIX(space)                                                                     \
    template <class T, int C, int R> void simdgroup_load(__private simdgroup_matrix<T, C, R>&, const space T*, ulong = C, ulong2 = 0, bool = false); \
    template <class T, int C, int R>                                                              \
    void simdgroup_store(const __private simdgroup_matrix<T, C, R>&, space T*, ulong = C, ulong2 = 0, bool = false);
GPU_SIM_MATRIX(__global)
GPU_SIM_MATRIX(__local)
template <class D, class A, class B, class S> void simdgroup_multiply_accumulate(
    __private simdgroup_matrix<D, 8, 8>&, const __private simdgroup_matrix<A, 8, 8>&, const __private simdgroup_matrix<B, 8, 8>&,
    const __private simdgroup_matrix<S, 8, 8>&);
template <class D, class A, class B> void simdgroup_multiply(
    __private simdgroup_matrix<D, 8, 8>&, const __private simdgroup_matrix<A, 8, 8>&, const __private simdgroup_matrix<B, 8, 8>&);

// ---- Atomic operations; the names of OpenCL's own types are in the way. Those of floats are for device memory alone.
enum memory_order { memory_order_relaxed };
template <class T> struct gpu_sim_atomic { T value; };
template <class T> using atomic = gpu_sim_atomic<T>;
typedef gpu_sim_atomic<int> gpu_sim_atomic_int;
typedef gpu_sim_atomic<uint> gpu_sim_atomic_uint;
typedef gpu_sim_atomic<float> gpu_sim_atomic_float;
typedef gpu_sim_atomic<bool> gpu_sim_atomic_bool;
#define GPU_SIM_ATOMIC(name)                                                                      \
    template <class T, class U> T gpu_sim_atomic_##name##_explicit(volatile __global gpu_sim_atomic<T>*, U, memory_order); \
    template <class U> int gpu_sim_atomic_##name##_explicit(volatile __local gpu_sim_atomic<int>*, U, memory_order); \
    template <class U> uint gpu_sim_atomic_##name##_explicit(volatile __local gpu_sim_atomic<uint>*, U, memory_order);
GPU_SIM_ATOMIC(store) GPU_SIM_ATOMIC(exchange) GPU_SIM_ATOMIC(fetch_add) GPU_SIM_ATOMIC(fetch_sub) GPU_SIM_ATOMIC(fetch_min)
GPU_SIM_ATOMIC(fetch_max) GPU_SIM_ATOMIC(fetch_and) GPU_SIM_ATOMIC(fetch_or) GPU_SIM_ATOMIC(fetch_xor)
template <class T> T gpu_sim_atomic_load_explicit(const volatile __global gpu_sim_atomic<T>*, memory_order);
template <class T> T gpu_sim_atomic_load_explicit(const volatile __local gpu_sim_atomic<T>*, memory_order);
template <class T, class U> bool gpu_sim_atomic_compare_exchange_weak_explicit(
    volatile __global gpu_sim_atomic<T>*, __private T*, U, memory_order, memory_order);
template <class T, class U> bool gpu_sim_atomic_compare_exchange_weak_explicit(
    volatile __local gpu_sim_atomic<T>*, __private T*, U, memory_order, memory_order);

}  // namespace metal

#define GPU_SIM_MATRICES(T)                                                                       \
    typedef metal::matrix<T, 2, 2> T##2x2;                                                        \
    typedef metal::matrix<T, 2, 3> T##2x3;                                                        \
    typedef metal::matrix<T, 2, 4> T##2x4;                                                        \
    typedef metal::matrix<T, 3, 2> T##3x2;                                                        \
    typedef metal::matrix<T, 3, 3> T##3x3;                                                        \
    typedef metal::matrix<T, 3, 4> T##3x4;                                                        \
    typedef metal::matrix<T, 4, 2> T##4x2;                                                        \
    typedef metal::matrix<T, 4, 3> T##4x3;                                                        \
    typedef metal::matrix<T, 4, 4> T##4x4;
GPU_SIM_MATRICES(half)
GPU_SIM_MATRICES(float)
