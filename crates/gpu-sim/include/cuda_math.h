// Numbers in CUDA C++: conversions, functions of floats, bits, bytes in words. Functions with a documented error bound on
// the device (__expf, rsqrtf, …) are here correctly rounded or nearly so: the simulator shows no approximation errors.

// ---- Bits of floats.
static inline int __float_as_int(float value) { int bits; __builtin_memcpy(&bits, &value, 4); return bits; }
static inline unsigned __float_as_uint(float value) { unsigned bits; __builtin_memcpy(&bits, &value, 4); return bits; }
static inline float __int_as_float(int bits) { float value; __builtin_memcpy(&value, &bits, 4); return value; }
static inline float __uint_as_float(unsigned bits) { float value; __builtin_memcpy(&value, &bits, 4); return value; }
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")

// ---- Smaller and larger. A NaN loses against a number.
static inline float fminf(float a, float b) { return a < b || b != b ? a : b; }
static inline float fmaxf(float a, float b) { return a > b || b != b ? a : b; }
#define GPU_SIM_ORDER(T)                                        \
    static inline T min(T a, T b) { return b < a ? b : a; }     \
    static inline T max(T a, T b) { return a < b ? b : a; }
GPU_SIM_ORDER(int)
GPU_SIM_ORDER(unsigned)
GPU_SIM_ORDER(long)
GPU_SIM_ORDER(unsigned long)
GPU_SIM_ORDER(long long)
GPU_SIM_ORDER(unsigned long long)
static inline unsigned min(int a, unsigned b) { return min((unsigned)a, b); }
static inline unsigned min(unsigned a, int b) { return min(a, (unsigned)b); }
static inline unsigned max(int a, unsigned b) { return max((unsigned)a, b); }
static inline unsigned max(unsigned a, int b) { return max(a, (unsigned)b); }
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline int abs(int value) { return value < 0 ? -value : value; }

// ---- Functions of one float.
#define GPU_SIM_FUNCTION(name) static inline float name(float x) { return __builtin_##name(x); }
GPU_SIM_FUNCTION(fabsf)
GPU_SIM_FUNCTION(sqrtf)
GPU_SIM_FUNCTION(expf)
GPU_SIM_FUNCTION(exp2f)
GPU_SIM_FUNCTION(expm1f)
GPU_SIM_FUNCTION(logf)
GPU_SIM_FUNCTION(log2f)
GPU_SIM_FUNCTION(log10f)
GPU_SIM_FUNCTION(log1pf)
GPU_SIM_FUNCTION(sinf)
GPU_SIM_FUNCTION(cosf)
GPU_SIM_FUNCTION(tanf)
GPU_SIM_FUNCTION(tanhf)
GPU_SIM_FUNCTION(erff)
GPU_SIM_FUNCTION(floorf)
GPU_SIM_FUNCTION(ceilf)
GPU_SIM_FUNCTION(truncf)
GPU_SIM_FUNCTION(rintf)
GPU_SIM_FUNCTION(roundf)
static inline float nearbyintf(float x) { return __builtin_rintf(x); }
static inline float powf(float x, float y) { return __builtin_powf(x, y); }
static inline float fmodf(float x, float y) { return __builtin_fmodf(x, y); }
static inline float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
static inline float ldexpf(float x, int exponent) { return __builtin_ldexpf(x, exponent); }
static inline float copysignf(float x, float sign) { return __builtin_copysignf(x, sign); }
static inline void sincosf(float x, float* sine, float* cosine) { *sine = sinf(x); *cosine = cosf(x); }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline bool isnan(float x) { return x != x; }
static inline bool isinf(float x) { return fabsf(x) == INFINITY; }
static inline bool isfinite(float x) { return fabsf(x) < INFINITY; }
static inline bool signbit(float x) { return __float_as_int(x) < 0; }

static inline float __expf(float x) { return expf(x); }
static inline float __exp10f(float x) { return powf(10.0f, x); }
static inline float __logf(float x) { return logf(x); }
static inline float __log2f(float x) { return log2f(x); }
static inline float __log10f(float x) { return log10f(x); }
static inline float __powf(float x, float y) { return powf(x, y); }
static inline float __sinf(float x) { return sinf(x); }
static inline float __cosf(float x) { return cosf(x); }
static inline float __tanf(float x) { return tanf(x); }
static inline void __sincosf(float x, float* sine, float* cosine) { sincosf(x, sine, cosine); }
static inline float __fdividef(float x, float y) { return x / y; }
static inline float __saturatef(float x) { return fminf(fmaxf(x, 0.0f), 1.0f); }

// ---- Operations that no compiler may contract.
static inline float __fadd_rn(float x, float y) { return x + y; }
static inline float __fsub_rn(float x, float y) { return x - y; }
static inline float __fmul_rn(float x, float y) { return x * y; }
static inline float __fdiv_rn(float x, float y) { return x / y; }
static inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
static inline float __frcp_rn(float x) { return 1.0f / x; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __frsqrt_rn(float x) { return rsqrtf(x); }

// ---- Conversions. To an integer they saturate, and a NaN becomes 0.
namespace gpu_sim {
static inline int to_int(float x) {
    return x != x ? 0 : x >= 2147483648.0f ? 0x7fffffff : x < -2147483648.0f ? -0x7fffffff - 1 : (int)x;
}
static inline u32 to_uint(float x) { return x != x || x <= 0 ? 0 : x >= 4294967296.0f ? 0xffffffffu : (u32)x; }
}  // namespace gpu_sim
static inline int __float2int_rn(float x) { return gpu_sim::to_int(rintf(x)); }
static inline int __float2int_rz(float x) { return gpu_sim::to_int(truncf(x)); }
static inline int __float2int_rd(float x) { return gpu_sim::to_int(floorf(x)); }
static inline int __float2int_ru(float x) { return gpu_sim::to_int(ceilf(x)); }
static inline unsigned __float2uint_rn(float x) { return gpu_sim::to_uint(rintf(x)); }
static inline unsigned __float2uint_rz(float x) { return gpu_sim::to_uint(truncf(x)); }
static inline unsigned __float2uint_rd(float x) { return gpu_sim::to_uint(floorf(x)); }
static inline unsigned __float2uint_ru(float x) { return gpu_sim::to_uint(ceilf(x)); }
static inline float __int2float_rn(int x) { return (float)x; }
static inline float __uint2float_rn(unsigned x) { return (float)x; }

// ---- Bits of integers.
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz((unsigned)x); }
static inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll((unsigned long long)x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned __brev(unsigned x) {
    unsigned result = 0;
    for (int i = 0; i < 32; i++) result |= (x >> i & 1) << (31 - i);
    return result;
}
static inline int __mulhi(int x, int y) { return (int)((long long)x * y >> 32); }
static inline unsigned __umulhi(unsigned x, unsigned y) { return (unsigned)((unsigned long long)x * y >> 32); }
static inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return (unsigned long long)((unsigned __int128)x * y >> 64);
}
static inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned shift) {
    return (unsigned)((((unsigned long long)hi << 32 | lo) << (shift & 31)) >> 32);
}
static inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned shift) {
    return (unsigned)(((unsigned long long)hi << 32 | lo) >> (shift & 31));
}
// Each nibble of the selector picks a byte of y:x; its upper bit asks for the byte's sign instead.
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    unsigned long long bytes = (unsigned long long)y << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) {
        unsigned pick = selector >> 4 * i & 15, byte = (unsigned)(bytes >> 8 * (pick & 7)) & 255;
        result |= (pick & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * i;
    }
    return result;
}

// ---- Dot products of four bytes.
static inline int __dp4a(int a, int b, int c) {
#ifdef __SSE4_1__
    // Kernels of quantised weights spend most of their time here: 122 million a second by the loop below.
    typedef char Bytes __attribute__((vector_size(16)));
    typedef short Words __attribute__((vector_size(16)));
    typedef int Four __attribute__((vector_size(16)));
    Four p = __builtin_ia32_pmaddwd128((Words)__builtin_ia32_pmovsxbw128((Bytes)(Four{a, 0, 0, 0})),
                                       (Words)__builtin_ia32_pmovsxbw128((Bytes)(Four{b, 0, 0, 0})));
    return c + p[0] + p[1];
#else
    for (int i = 0; i < 4; i++) c += (int)(signed char)(a >> 8 * i) * (int)(signed char)(b >> 8 * i);
    return c;
#endif
}
static inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    for (int i = 0; i < 4; i++) c += (a >> 8 * i & 255) * (b >> 8 * i & 255);
    return c;
}

// ---- Four bytes at once.
namespace gpu_sim {
template <class F>
static inline u32 signed_bytes(u32 a, u32 b, F f) {
    u32 result = 0;
    for (int i = 0; i < 4; i++) result |= ((u32)f((int)(signed char)(a >> 8 * i), (int)(signed char)(b >> 8 * i)) & 255) << 8 * i;
    return result;
}
template <class F>
static inline u32 unsigned_bytes(u32 a, u32 b, F f) {
    u32 result = 0;
    for (int i = 0; i < 4; i++) result |= ((u32)f((int)(a >> 8 * i & 255), (int)(b >> 8 * i & 255)) & 255) << 8 * i;
    return result;
}
static inline int clamp_byte(int x) { return x > 127 ? 127 : x < -128 ? -128 : x; }
}  // namespace gpu_sim
#define GPU_SIM_BYTES(name, kind, expression) \
    static inline unsigned name(unsigned a, unsigned b) { return gpu_sim::kind(a, b, [](int a, int b) { return expression; }); }
GPU_SIM_BYTES(__vadd4, unsigned_bytes, a + b)
GPU_SIM_BYTES(__vsub4, unsigned_bytes, a - b)
GPU_SIM_BYTES(__vaddss4, signed_bytes, gpu_sim::clamp_byte(a + b))
GPU_SIM_BYTES(__vsubss4, signed_bytes, gpu_sim::clamp_byte(a - b))
GPU_SIM_BYTES(__vmaxs4, signed_bytes, a > b ? a : b)
GPU_SIM_BYTES(__vmins4, signed_bytes, a < b ? a : b)
GPU_SIM_BYTES(__vmaxu4, unsigned_bytes, a > b ? a : b)
GPU_SIM_BYTES(__vminu4, unsigned_bytes, a < b ? a : b)
GPU_SIM_BYTES(__vcmpeq4, unsigned_bytes, a == b ? 255 : 0)
GPU_SIM_BYTES(__vcmpne4, unsigned_bytes, a != b ? 255 : 0)
GPU_SIM_BYTES(__vcmpgts4, signed_bytes, a > b ? 255 : 0)
GPU_SIM_BYTES(__vcmpges4, signed_bytes, a >= b ? 255 : 0)
GPU_SIM_BYTES(__vcmpgtu4, unsigned_bytes, a > b ? 255 : 0)
GPU_SIM_BYTES(__vcmpgeu4, unsigned_bytes, a >= b ? 255 : 0)
