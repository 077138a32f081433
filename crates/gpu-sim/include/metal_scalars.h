// The scalars of Metal, and what is asked of types.
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef unsigned long size_t;
typedef long ptrdiff_t;
// With 16 bits in each operation: the compiler is told to round every one of them.
typedef _Float16 half;
#define GPU_SIM_INLINE inline __attribute__((always_inline))
constexpr half operator""h(long double value) { return (half)value; }
constexpr half operator""H(long double value) { return (half)value; }

// ---- bfloat: the upper half of a float. Each operation is made with floats and rounded to nearest even.
struct bfloat {
    unsigned short bits;
    bfloat() = default;
    constexpr bfloat(float value) : bits(round(__builtin_bit_cast(unsigned, value))) {}
    constexpr bfloat(half value) : bfloat((float)value) {}
    constexpr bfloat(int value) : bfloat((float)value) {}
    constexpr bfloat(uint value) : bfloat((float)value) {}
    constexpr bfloat(long value) : bfloat((float)value) {}
    constexpr bfloat(ulong value) : bfloat((float)value) {}
    constexpr operator float() const { return __builtin_bit_cast(float, (unsigned)bits << 16); }

private:
    static constexpr unsigned short round(unsigned u) {
        if ((u & 0x7fffffffu) > 0x7f800000u) return (unsigned short)(u >> 16 | 0x40);
        return (unsigned short)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
    }
};
#define GPU_SIM_BFLOAT_AND(T, op)                                                                 \
    static constexpr bfloat operator op(bfloat a, T b) { return bfloat((float)a op(float) b); }   \
    static constexpr bfloat operator op(T a, bfloat b) { return bfloat((float)a op(float) b); }
#define GPU_SIM_BFLOAT(op)                                                                        \
    static constexpr bfloat operator op(bfloat a, bfloat b) { return bfloat((float)a op(float) b); } \
    GPU_SIM_BFLOAT_AND(int, op)                                                                   \
    GPU_SIM_BFLOAT_AND(uint, op)                                                                  \
    GPU_SIM_BFLOAT_AND(long, op)                                                                  \
    GPU_SIM_BFLOAT_AND(ulong, op)                                                                 \
    static constexpr float operator op(bfloat a, float b) { return (float)a op b; }               \
    static constexpr float operator op(float a, bfloat b) { return a op(float) b; }               \
    static constexpr bfloat& operator op##=(bfloat& a, float b) { return a = bfloat((float)a op b); }
GPU_SIM_BFLOAT(+)
GPU_SIM_BFLOAT(-)
GPU_SIM_BFLOAT(*)
GPU_SIM_BFLOAT(/)
#undef GPU_SIM_BFLOAT
#undef GPU_SIM_BFLOAT_AND
static constexpr bfloat operator-(bfloat a) { return bfloat(-(float)a); }
constexpr bfloat operator""bf(long double value) { return bfloat((float)value); }
constexpr bfloat operator""BF(long double value) { return bfloat((float)value); }

namespace gpu_sim::types {

// ---- Type traits.
template <class A, class B> struct is_same { static constexpr bool value = false; };
template <class A> struct is_same<A, A> { static constexpr bool value = true; };
template <class A, class B> constexpr bool is_same_v = is_same<A, B>::value;
template <bool, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { typedef T type; };
template <bool B, class T = void> using enable_if_t = typename enable_if<B, T>::type;
template <bool, class A, class B> struct conditional { typedef A type; };
template <class A, class B> struct conditional<false, A, B> { typedef B type; };
template <bool C, class A, class B> using conditional_t = typename conditional<C, A, B>::type;
template <class A, class B> struct is_convertible {
    static A from();
    static char to(B);
    template <class F, class = decltype(to(F::from()))> static constexpr bool test(int) { return true; }
    template <class F> static constexpr bool test(...) { return false; }
    static constexpr bool value = test<is_convertible>(0);
};
template <class A, class B> constexpr bool is_convertible_v = is_convertible<A, B>::value;
template <class T> struct remove_const { typedef T type; };
template <class T> struct remove_const<const T> { typedef T type; };
template <class T> struct remove_cv { typedef T type; };
template <class T> struct remove_cv<const T> { typedef T type; };
template <class T> struct remove_cv<volatile T> { typedef T type; };
template <class T> struct remove_cv<const volatile T> { typedef T type; };
template <class T> using remove_cv_t = typename remove_cv<T>::type;
template <class T> struct remove_reference { typedef T type; };
template <class T> struct remove_reference<T&> { typedef T type; };
template <class T> struct remove_reference<T&&> { typedef T type; };
template <class T> using remove_reference_t = typename remove_reference<T>::type;
template <class T> struct is_floating_point {
    static constexpr bool value = is_same_v<T, float> || is_same_v<T, half> || is_same_v<T, bfloat>;
};
template <class T> constexpr bool is_floating_point_v = is_floating_point<T>::value;
template <class T> struct is_integral {
    static constexpr bool value = is_same_v<T, bool> || is_same_v<T, char> || is_same_v<T, signed char> ||
        is_same_v<T, uchar> || is_same_v<T, short> || is_same_v<T, ushort> || is_same_v<T, int> || is_same_v<T, uint> ||
        is_same_v<T, long> || is_same_v<T, ulong>;
};
template <class T> constexpr bool is_integral_v = is_integral<T>::value;
template <class T> struct make_unsigned {
    typedef conditional_t<sizeof(T) == 1, uchar, conditional_t<sizeof(T) == 2, ushort, conditional_t<sizeof(T) == 4, uint, ulong>>> type;
};
template <class T> using make_unsigned_t = typename make_unsigned<T>::type;
template <class T> struct make_signed {
    typedef conditional_t<sizeof(T) == 1, char, conditional_t<sizeof(T) == 2, short, conditional_t<sizeof(T) == 4, int, long>>> type;
};
template <class T> using make_signed_t = typename make_signed<T>::type;
template <class T> constexpr bool is_unsigned_v = is_integral_v<T> && (T)-1 > (T)0;
template <class T> constexpr bool is_signed_v = is_integral_v<T> && !is_unsigned_v<T>;

}  // namespace gpu_sim::types

namespace metal {

using gpu_sim::types::is_same;
using gpu_sim::types::is_same_v;
using gpu_sim::types::is_convertible;
using gpu_sim::types::is_convertible_v;
using gpu_sim::types::enable_if;
using gpu_sim::types::enable_if_t;
using gpu_sim::types::conditional;
using gpu_sim::types::conditional_t;
using gpu_sim::types::remove_const;
using gpu_sim::types::remove_cv;
using gpu_sim::types::remove_cv_t;
using gpu_sim::types::remove_reference;
using gpu_sim::types::remove_reference_t;
using gpu_sim::types::is_floating_point;
using gpu_sim::types::is_floating_point_v;
using gpu_sim::types::is_integral;
using gpu_sim::types::is_integral_v;
using gpu_sim::types::make_unsigned;
using gpu_sim::types::make_unsigned_t;
using gpu_sim::types::make_signed;
using gpu_sim::types::make_signed_t;
using gpu_sim::types::is_unsigned_v;
using gpu_sim::types::is_signed_v;

}  // namespace metal
