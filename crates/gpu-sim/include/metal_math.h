// Functions of numbers. Functions with an error bound on the device (exp, rsqrt, …) are here correctly rounded or
// nearly so: the simulator shows no approximation errors, and neither what fast math makes of NaNs. Those of half are
// made with float and rounded once.
#define INFINITY (__builtin_inff())
#define NAN (__builtin_nanf(""))
#define HUGE_VALF (__builtin_inff())
#define FLT_MAX 3.402823466e+38f
#define MAXFLOAT FLT_MAX
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define FLT_DIG 6
#define FLT_MANT_DIG 24
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

namespace gpu_sim::types {
template <class T> using scalar_t = enable_if_t<is_scalar<T>, T>;
template <class T> using integer_t = enable_if_t<is_integral_v<T>, T>;
}  // namespace gpu_sim::types

namespace metal {

template <class T> struct numeric_limits;
#define GPU_SIM_LIMITS(T, least, most)                                                            \
    template <> struct numeric_limits<T> {                                                        \
        static constexpr T max() { return most; }                                                 \
        static constexpr T min() { return least; }                                                \
        static constexpr T lowest() { return least; }                                             \
    };
GPU_SIM_LIMITS(char, CHAR_MIN, CHAR_MAX)
GPU_SIM_LIMITS(uchar, 0, UCHAR_MAX)
GPU_SIM_LIMITS(short, SHRT_MIN, SHRT_MAX)
GPU_SIM_LIMITS(ushort, 0, USHRT_MAX)
GPU_SIM_LIMITS(int, INT_MIN, INT_MAX)
GPU_SIM_LIMITS(uint, 0, UINT_MAX)
GPU_SIM_LIMITS(long, LONG_MIN, LONG_MAX)
GPU_SIM_LIMITS(ulong, 0, ULONG_MAX)
#undef GPU_SIM_LIMITS
#define GPU_SIM_LIMITS(T, least, most, step)                                                      \
    template <> struct numeric_limits<T> {                                                        \
        static constexpr T max() { return most; }                                                 \
        static constexpr T min() { return least; }                                                \
        static constexpr T lowest() { return -(most); }                                           \
        static constexpr T epsilon() { return step; }                                             \
        static constexpr T infinity() { return (T)INFINITY; }                                     \
        static constexpr T quiet_NaN() { return (T)NAN; }                                         \
    };
GPU_SIM_LIMITS(float, FLT_MIN, FLT_MAX, FLT_EPSILON)
GPU_SIM_LIMITS(half, HALF_MIN, HALF_MAX, HALF_EPSILON)
#undef GPU_SIM_LIMITS
template <> struct numeric_limits<bfloat> {
    static constexpr bfloat max() { return bfloat(3.38953139e38f); }
    static constexpr bfloat min() { return bfloat(FLT_MIN); }
    static constexpr bfloat lowest() { return bfloat(-3.38953139e38f); }
    static constexpr bfloat epsilon() { return bfloat(0.0078125f); }
    static constexpr bfloat infinity() { return bfloat(INFINITY); }
    static constexpr bfloat quiet_NaN() { return bfloat(NAN); }
};

// ---- A function of each component.
#define GPU_SIM_EACH_1(name, R)                                                                   \
    template <class A, class V = gpu_sim::types::vector_t<A>>                                                     \
    static GPU_SIM_INLINE R name(const A& a) {                                                    \
        V x(a);                                                                                   \
        R result;                                                                                 \
        for (int i = 0; i < gpu_sim::types::components<V>::count; i++) result[i] = name(x[i]);                    \
        return result;                                                                            \
    }
#define GPU_SIM_EACH_2(name)                                                                      \
    template <class A, class B, class V = gpu_sim::types::mixed_t<A, B>>                                          \
    static GPU_SIM_INLINE V name(const A& a, const B& b) {                                        \
        V x(a), y(b), result;                                                                     \
        for (int i = 0; i < gpu_sim::types::components<V>::count; i++) result[i] = name(x[i], y[i]);              \
        return result;                                                                            \
    }
#define GPU_SIM_EACH_3(name)                                                                      \
    template <class A, class B, class C, class V = gpu_sim::types::mixed_t<conditional_t<gpu_sim::types::is_vector<A>, A, C>, B>, \
              class = enable_if_t<gpu_sim::types::is_vector<A> || gpu_sim::types::is_vector<C>>>  \
    static GPU_SIM_INLINE V name(const A& a, const B& b, const C& c) {                            \
        V x(a), y(b), z(c), result;                                                               \
        for (int i = 0; i < gpu_sim::types::components<V>::count; i++) result[i] = name(x[i], y[i], z[i]);        \
        return result;                                                                            \
    }
#define GPU_SIM_FLOAT_1(name, expression)                                                         \
    static GPU_SIM_INLINE float name(float x) { return expression; }                              \
    static GPU_SIM_INLINE half name(half h) { float x = h; return (half)(expression); }           \
    static GPU_SIM_INLINE bfloat name(bfloat b) { float x = b; return bfloat(expression); }       \
    GPU_SIM_EACH_1(name, V)
#define GPU_SIM_FLOAT_2(name, expression)                                                         \
    static GPU_SIM_INLINE float name(float x, float y) { return expression; }                     \
    static GPU_SIM_INLINE half name(half a, half b) { float x = a, y = b; return (half)(expression); } \
    static GPU_SIM_INLINE bfloat name(bfloat a, bfloat b) { float x = a, y = b; return bfloat(expression); } \
    GPU_SIM_EACH_2(name)
#define GPU_SIM_FUNCTIONS                                                                         \
    GPU_SIM_FLOAT_1(exp, __builtin_expf(x))                                                       \
    GPU_SIM_FLOAT_1(exp2, __builtin_exp2f(x))                                                     \
    GPU_SIM_FLOAT_1(exp10, __builtin_powf(10.0f, x))                                              \
    GPU_SIM_FLOAT_1(log, __builtin_logf(x))                                                       \
    GPU_SIM_FLOAT_1(log2, __builtin_log2f(x))                                                     \
    GPU_SIM_FLOAT_1(log10, __builtin_log10f(x))                                                   \
    GPU_SIM_FLOAT_1(sqrt, __builtin_sqrtf(x))                                                     \
    GPU_SIM_FLOAT_1(rsqrt, 1.0f / __builtin_sqrtf(x))                                             \
    GPU_SIM_FLOAT_1(sin, __builtin_sinf(x))                                                       \
    GPU_SIM_FLOAT_1(cos, __builtin_cosf(x))                                                       \
    GPU_SIM_FLOAT_1(tan, __builtin_tanf(x))                                                       \
    GPU_SIM_FLOAT_1(asin, __builtin_asinf(x))                                                     \
    GPU_SIM_FLOAT_1(acos, __builtin_acosf(x))                                                     \
    GPU_SIM_FLOAT_1(atan, __builtin_atanf(x))                                                     \
    GPU_SIM_FLOAT_1(sinh, __builtin_sinhf(x))                                                     \
    GPU_SIM_FLOAT_1(cosh, __builtin_coshf(x))                                                     \
    GPU_SIM_FLOAT_1(tanh, __builtin_tanhf(x))                                                     \
    GPU_SIM_FLOAT_1(floor, __builtin_floorf(x))                                                   \
    GPU_SIM_FLOAT_1(ceil, __builtin_ceilf(x))                                                     \
    GPU_SIM_FLOAT_1(trunc, __builtin_truncf(x))                                                   \
    GPU_SIM_FLOAT_1(rint, __builtin_rintf(x))                                                     \
    GPU_SIM_FLOAT_1(round, __builtin_roundf(x))                                                   \
    GPU_SIM_FLOAT_1(fract, x - __builtin_floorf(x))                                               \
    GPU_SIM_FLOAT_1(fabs, __builtin_fabsf(x))                                                     \
    GPU_SIM_FLOAT_2(pow, __builtin_powf(x, y))                                                    \
    GPU_SIM_FLOAT_2(powr, __builtin_powf(x, y))                                                   \
    GPU_SIM_FLOAT_2(fmod, __builtin_fmodf(x, y))                                                  \
    GPU_SIM_FLOAT_2(atan2, __builtin_atan2f(x, y))                                                \
    GPU_SIM_FLOAT_2(divide, x / y)                                                                \
    GPU_SIM_FLOAT_2(fmin, x < y || y != y ? x : y)                                                \
    GPU_SIM_FLOAT_2(fmax, x > y || y != y ? x : y)
GPU_SIM_FUNCTIONS
namespace precise { GPU_SIM_FUNCTIONS }
namespace fast { GPU_SIM_FUNCTIONS }
#undef GPU_SIM_FUNCTIONS
GPU_SIM_FLOAT_1(sign, x > 0 ? 1.0f : x < 0 ? -1.0f : x == 0 ? x : 0.0f)
GPU_SIM_FLOAT_1(saturate, x > 0 ? x < 1 ? x : 1.0f : 0.0f)
GPU_SIM_FLOAT_2(copysign, __builtin_copysignf(x, y))
GPU_SIM_FLOAT_2(fdim, x > y ? x - y : 0.0f)
GPU_SIM_FLOAT_2(step, y < x ? 0.0f : 1.0f)
static GPU_SIM_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
// A product of halves is exact in double, and so is the sum where it matters.
static GPU_SIM_INLINE half fma(half a, half b, half c) { return (half)__builtin_fma((double)a, (double)b, (double)c); }
// The neighbour on the lost side of a number that was rounded to nearest, if that is odd and this is not: what a later
// rounding takes for a tie then is one.
template <typename T, typename Bits> static GPU_SIM_INLINE T gpu_sim_to_odd(T rounded, double lost) {
    Bits bits = __builtin_bit_cast(Bits, rounded);
    if (lost != 0 && !(bits & 1)) bits += (lost > 0) != (bool)__builtin_signbit(rounded) ? 1 : -1;
    return __builtin_bit_cast(T, bits);
}
// The numbers of bfloat lie too far apart for that.
static GPU_SIM_INLINE bfloat fma(bfloat a, bfloat b, bfloat c) {
    double product = (double)(float)a * (double)(float)b, addend = (float)c, sum = product + addend;
    if (!__builtin_isfinite(sum)) return bfloat((float)sum);
    double back = sum - product;
    sum = gpu_sim_to_odd<double, unsigned long long>(sum, (product - (sum - back)) + (addend - back));
    float rounded = (float)sum;
    return bfloat(gpu_sim_to_odd<float, unsigned>(rounded, sum - (double)rounded));
}
GPU_SIM_EACH_3(fma)
#define GPU_SIM_FLOAT_TEST(name, expression)                                                      \
    static GPU_SIM_INLINE bool name(float x) { return expression; }                               \
    static GPU_SIM_INLINE bool name(half h) { float x = h; return expression; }                   \
    static GPU_SIM_INLINE bool name(bfloat b) { float x = b; return expression; }                 \
    GPU_SIM_EACH_1(name, gpu_sim::types::bools_t<V>)
GPU_SIM_FLOAT_TEST(isnan, x != x)
GPU_SIM_FLOAT_TEST(isinf, __builtin_fabsf(x) == INFINITY)
GPU_SIM_FLOAT_TEST(isfinite, __builtin_fabsf(x) < INFINITY)
GPU_SIM_FLOAT_TEST(signbit, __builtin_signbit(x))
static GPU_SIM_INLINE float ldexp(float x, int e) { return __builtin_ldexpf(x, e); }
static GPU_SIM_INLINE half ldexp(half x, int e) { return (half)__builtin_ldexpf(x, e); }
static GPU_SIM_INLINE float frexp(float x, int& e) { return __builtin_frexpf(x, &e); }
static GPU_SIM_INLINE int ilogb(float x) { return __builtin_ilogbf(x); }
static GPU_SIM_INLINE float sincos(float x, float& cosine) { cosine = __builtin_cosf(x); return __builtin_sinf(x); }
static GPU_SIM_INLINE float modf(float x, float& whole) { whole = __builtin_truncf(x); return x - whole; }

// ---- Both kinds of numbers. What min and max make of a NaN is not defined in Metal; here y < x decides.
template <class T> static constexpr GPU_SIM_INLINE gpu_sim::types::scalar_t<T> min(T x, T y) { return y < x ? y : x; }
template <class T> static constexpr GPU_SIM_INLINE gpu_sim::types::scalar_t<T> max(T x, T y) { return x < y ? y : x; }
template <class T>
static constexpr GPU_SIM_INLINE gpu_sim::types::scalar_t<T> clamp(T x, T least, T most) {
    return min(max(x, least), most);
}
template <class T> static constexpr GPU_SIM_INLINE gpu_sim::types::scalar_t<T> abs(T x) { return x < (T)0 ? (T)-x : x; }
template <class T>
static constexpr GPU_SIM_INLINE gpu_sim::types::scalar_t<T> min3(T x, T y, T z) { return min(x, min(y, z)); }
template <class T>
static constexpr GPU_SIM_INLINE gpu_sim::types::scalar_t<T> max3(T x, T y, T z) { return max(x, max(y, z)); }
template <class T>
static constexpr GPU_SIM_INLINE gpu_sim::types::scalar_t<T> median3(T x, T y, T z) {
    return max(min(x, y), min(max(x, y), z));
}
template <class T>
static constexpr GPU_SIM_INLINE gpu_sim::types::scalar_t<T> mix(T x, T y, T a) { return (T)(x + (T)((T)(y - x) * a)); }
template <class T> static constexpr GPU_SIM_INLINE gpu_sim::types::scalar_t<T> smoothstep(T from, T to, T x) {
    T t = clamp((T)((x - from) / (to - from)), (T)0, (T)1);
    return (T)(t * t * ((T)3 - (T)2 * t));
}
template <class T>
static constexpr GPU_SIM_INLINE gpu_sim::types::scalar_t<T> select(T no, T yes, bool condition) {
    return condition ? yes : no;
}
GPU_SIM_EACH_1(abs, V)
GPU_SIM_EACH_2(min)
GPU_SIM_EACH_2(max)
GPU_SIM_EACH_3(clamp)
GPU_SIM_EACH_3(min3)
GPU_SIM_EACH_3(max3)
GPU_SIM_EACH_3(median3)
GPU_SIM_EACH_3(mix)
GPU_SIM_EACH_3(smoothstep)
template <class A, class B, class V = gpu_sim::types::mixed_t<A, B>>
static GPU_SIM_INLINE V select(const A& no, const B& yes, const gpu_sim::types::bools_t<V>& condition) {
    V x(no), y(yes), result;
    for (int i = 0; i < gpu_sim::types::components<V>::count; i++) result[i] = condition[i] ? y[i] : x[i];
    return result;
}
static GPU_SIM_INLINE bool any(bool x) { return x; }
static GPU_SIM_INLINE bool all(bool x) { return x; }
template <int N> static GPU_SIM_INLINE bool any(const vec<bool, N>& x) {
    bool result = false;
    for (int i = 0; i < N; i++) result |= x[i];
    return result;
}
template <int N> static GPU_SIM_INLINE bool all(const vec<bool, N>& x) {
    bool result = true;
    for (int i = 0; i < N; i++) result &= x[i];
    return result;
}

// ---- Geometry.
template <class A, class B, class V = gpu_sim::types::mixed_t<A, B>>
static GPU_SIM_INLINE typename gpu_sim::types::components<V>::type dot(const A& a, const B& b) {
    V x(a), y(b);
    typename gpu_sim::types::components<V>::type sum = x[0] * y[0];
    for (int i = 1; i < gpu_sim::types::components<V>::count; i++) sum = sum + x[i] * y[i];
    return sum;
}
template <class A, class V = gpu_sim::types::vector_t<A>>
static GPU_SIM_INLINE typename gpu_sim::types::components<V>::type length_squared(const A& a) { return dot(a, a); }
template <class A, class V = gpu_sim::types::vector_t<A>>
static GPU_SIM_INLINE typename gpu_sim::types::components<V>::type length(const A& a) { return sqrt(dot(a, a)); }
template <class A, class V = gpu_sim::types::vector_t<A>>
static GPU_SIM_INLINE V normalize(const A& a) { return V(a) * rsqrt(dot(a, a)); }

// ---- Integers.
template <class T>
static GPU_SIM_INLINE gpu_sim::types::integer_t<T> popcount(T x) {
    return (T)__builtin_popcountl((make_unsigned_t<T>)x);
}
template <class T> static GPU_SIM_INLINE gpu_sim::types::integer_t<T> clz(T x) {
    return x == 0 ? (T)(8 * sizeof(T)) : (T)(__builtin_clzl((make_unsigned_t<T>)x) - (64 - 8 * (int)sizeof(T)));
}
template <class T> static GPU_SIM_INLINE gpu_sim::types::integer_t<T> ctz(T x) {
    return x == 0 ? (T)(8 * sizeof(T)) : (T)__builtin_ctzl((make_unsigned_t<T>)x);
}
template <class T> static GPU_SIM_INLINE gpu_sim::types::integer_t<T> reverse_bits(T x) {
    make_unsigned_t<T> from = x, result = 0;
    for (uint i = 0; i < 8 * sizeof(T); i++) result |= (make_unsigned_t<T>)((from >> i & 1) << (8 * sizeof(T) - 1 - i));
    return (T)result;
}
template <class T> static GPU_SIM_INLINE gpu_sim::types::integer_t<T> rotate(T x, T by) {
    make_unsigned_t<T> from = x;
    uint bits = 8 * sizeof(T), left = (uint)by % bits;
    return left == 0 ? x : (T)(from << left | from >> (bits - left));
}
GPU_SIM_EACH_1(popcount, V)
GPU_SIM_EACH_1(clz, V)
GPU_SIM_EACH_1(ctz, V)
GPU_SIM_EACH_1(reverse_bits, V)
GPU_SIM_EACH_2(rotate)
template <class T> static GPU_SIM_INLINE gpu_sim::types::integer_t<T> mulhi(T x, T y) {
    typedef conditional_t<is_unsigned_v<T>, unsigned __int128, __int128> Wide;
    return (T)((Wide)x * (Wide)y >> 8 * sizeof(T));
}
template <class T>
static GPU_SIM_INLINE gpu_sim::types::integer_t<T> madhi(T x, T y, T z) { return (T)(mulhi(x, y) + z); }
static GPU_SIM_INLINE int mul24(int x, int y) { return (x << 8 >> 8) * (y << 8 >> 8); }
static GPU_SIM_INLINE uint mul24(uint x, uint y) { return (x & 0xffffffu) * (y & 0xffffffu); }
static GPU_SIM_INLINE int mad24(int x, int y, int z) { return mul24(x, y) + z; }
static GPU_SIM_INLINE uint mad24(uint x, uint y, uint z) { return mul24(x, y) + z; }
template <class T> static GPU_SIM_INLINE gpu_sim::types::integer_t<T> addsat(T x, T y) {
    T sum;
    if (!__builtin_add_overflow(x, y, &sum)) return sum;
    return y < (T)0 ? numeric_limits<T>::min() : numeric_limits<T>::max();
}
template <class T> static GPU_SIM_INLINE gpu_sim::types::integer_t<T> subsat(T x, T y) {
    T difference;
    if (!__builtin_sub_overflow(x, y, &difference)) return difference;
    return is_unsigned_v<T> || y > (T)0 ? numeric_limits<T>::min() : numeric_limits<T>::max();
}
template <class T>
static GPU_SIM_INLINE gpu_sim::types::integer_t<T> hadd(T x, T y) { return (T)(((__int128)x + (__int128)y) >> 1); }
template <class T>
static GPU_SIM_INLINE gpu_sim::types::integer_t<T> rhadd(T x, T y) { return (T)(((__int128)x + (__int128)y + 1) >> 1); }
template <class T> static GPU_SIM_INLINE make_unsigned_t<gpu_sim::types::integer_t<T>> absdiff(T x, T y) {
    return (make_unsigned_t<T>)(x < y ? (make_unsigned_t<T>)y - (make_unsigned_t<T>)x : (make_unsigned_t<T>)x - (make_unsigned_t<T>)y);
}
GPU_SIM_EACH_2(mulhi)
GPU_SIM_EACH_2(addsat)
GPU_SIM_EACH_2(subsat)
template <class T> static GPU_SIM_INLINE gpu_sim::types::integer_t<T> extract_bits(T x, uint offset, uint bits) {
    if (bits == 0) return 0;
    uint above = 8 * sizeof(T) - bits;
    return (T)((T)((make_unsigned_t<T>)x << (above - offset)) >> above);
}
template <class T>
static GPU_SIM_INLINE gpu_sim::types::integer_t<T> insert_bits(T base, T insert, uint offset, uint bits) {
    typedef make_unsigned_t<T> U;
    if (bits == 0) return base;
    U mask = (U)((U)~(U)0 >> (8 * sizeof(T) - bits) << offset);
    return (T)(((U)base & (U)~mask) | ((U)((U)insert << offset) & mask));
}

// ---- Packed numbers.
static GPU_SIM_INLINE float4 unpack_unorm4x8_to_float(uint x) {
    return float4((float)(x & 255), (float)(x >> 8 & 255), (float)(x >> 16 & 255), (float)(x >> 24)) / 255.0f;
}

}  // namespace metal
