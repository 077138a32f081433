// The vectors of Metal, with the swizzles that a source uses (the translator names them), and matrices. Here are types
// and their operators, and nothing else: what stands in this namespace is found for every call that passes one.
namespace gpu_sim::types {

// ---- Vectors. Those of 3 have the size of 4.
template <class T, int N> struct vec;

// Some components of a vector, in an order. (A swizzle of a swizzle, and a choice of two different ones, do not compile
// here.)
template <class T, int P, int... I>
struct swizzle {
    T v[P];
    GPU_SIM_INLINE operator vec<T, sizeof...(I)>() const { return vec<T, sizeof...(I)>(v[I]...); }
    GPU_SIM_INLINE swizzle& operator=(const vec<T, sizeof...(I)>& from) {
        int k = 0;
        ((v[I] = from[k++]), ...);
        return *this;
    }
    GPU_SIM_INLINE swizzle& operator=(const swizzle& from) { return *this = vec<T, sizeof...(I)>(from); }
};

// How many components a type has, and their type; scalars have one.
template <class A> struct components {
    static constexpr int count = is_integral_v<A> || is_floating_point_v<A> ? 1 : 0;
    static constexpr bool is_vector = false;
    typedef A type;
    typedef A vector;
};
template <class T, int N> struct components<vec<T, N>> {
    static constexpr int count = N;
    static constexpr bool is_vector = true;
    typedef T type;
    typedef vec<T, N> vector;
};
template <class T, int P, int... I> struct components<swizzle<T, P, I...>> : components<vec<T, sizeof...(I)>> {};
template <class A> constexpr bool is_scalar = components<A>::count == 1;
template <class A> constexpr bool is_vector = components<A>::is_vector;
// The vector type of a vector or a swizzle.
template <class A> using vector_t = enable_if_t<is_vector<A>, typename components<A>::vector>;

template <class T, int N> struct components_of { T v[N]; };
template <class T, int N> struct storage;
#define GPU_SIM_SWIZZLE(name, ...) swizzle<T, GPU_SIM_PARTS, __VA_ARGS__> name;
#define GPU_SIM_PARTS 2
template <class T> struct alignas(2 * sizeof(T)) storage<T, 2> {
    union {
        components_of<T, 2> all;
        struct { T x, y; };
        struct { T r, g; };
        GPU_SIM_SWIZZLES_2(GPU_SIM_SWIZZLE)
    };
};
#undef GPU_SIM_PARTS
#define GPU_SIM_PARTS 3
template <class T> struct alignas(4 * sizeof(T)) storage<T, 3> {
    union {
        components_of<T, 3> all;
        struct { T x, y, z; };
        struct { T r, g, b; };
        GPU_SIM_SWIZZLES_3(GPU_SIM_SWIZZLE)
    };
};
#undef GPU_SIM_PARTS
#define GPU_SIM_PARTS 4
template <class T> struct alignas(4 * sizeof(T)) storage<T, 4> {
    union {
        components_of<T, 4> all;
        struct { T x, y, z, w; };
        struct { T r, g, b, a; };
        GPU_SIM_SWIZZLES_4(GPU_SIM_SWIZZLE)
    };
};
#undef GPU_SIM_PARTS
#undef GPU_SIM_SWIZZLE

template <class T, int N>
struct vec : storage<T, N> {
    using storage<T, N>::all;
    vec() = default;
    vec(const vec&) = default;
    // A scalar becomes all components; another vector only where it is said.
    template <class S, class = enable_if_t<is_scalar<S>>>
    GPU_SIM_INLINE constexpr vec(S s) { for (int i = 0; i < N; i++) all.v[i] = (T)s; }
    template <class A, class = enable_if_t<is_vector<A> && components<A>::count == N && !is_same_v<typename components<A>::vector, vec>>, class = void>
    GPU_SIM_INLINE explicit vec(const A& a) {
        typename components<A>::vector from = a;
        for (int i = 0; i < N; i++) all.v[i] = (T)from.all.v[i];
    }
    template <class... A, class = enable_if_t<(sizeof...(A) > 1) && ((components<A>::count + ...) == N)>>
    GPU_SIM_INLINE vec(const A&... a) {
        int k = 0;
        (put(k, a), ...);
    }
    GPU_SIM_INLINE vec& operator=(const vec& from) {
        all = from.all;
        return *this;
    }
    GPU_SIM_INLINE T& operator[](int i) { return all.v[i]; }
    GPU_SIM_INLINE const T& operator[](int i) const { return all.v[i]; }

private:
    template <class A> GPU_SIM_INLINE void put(int& k, const A& a) {
        if constexpr (is_scalar<A>) {
            all.v[k++] = (T)a;
        } else {
            typename components<A>::vector from = a;
            for (int i = 0; i < components<A>::count; i++) all.v[k++] = (T)from.all.v[i];
        }
    }
};

// The type of an operation on two, of which one is a vector: a scalar becomes one unless it would lose digits.
template <class S, class T> constexpr bool fits =
    is_scalar<S> && (!is_floating_point_v<S> || (is_floating_point_v<T> && sizeof(S) <= sizeof(T)));
template <class A, class B> constexpr bool mixes() {
    if (is_vector<A> && is_vector<B>) return is_same_v<typename components<A>::vector, typename components<B>::vector>;
    if (is_vector<A>) return fits<B, typename components<A>::type>;
    return is_vector<B> && fits<A, typename components<B>::type>;
}
template <class A, class B>
using mixed_t = enable_if_t<mixes<A, B>(), typename components<conditional_t<is_vector<A>, A, B>>::vector>;
template <class V> using bools_t = vec<bool, components<V>::count>;

#define GPU_SIM_OPERATOR(op)                                                                      \
    template <class A, class B, class V = mixed_t<A, B>>                                          \
    static GPU_SIM_INLINE V operator op(const A& a, const B& b) {                                 \
        V x(a), y(b), result;                                                                     \
        for (int i = 0; i < components<V>::count; i++)                                            \
            result.all.v[i] = (typename components<V>::type)(x.all.v[i] op y.all.v[i]);           \
        return result;                                                                            \
    }                                                                                             \
    template <class A, class B, class V = enable_if_t<is_vector<A>, mixed_t<A, B>>>               \
    static GPU_SIM_INLINE A& operator op##=(A& a, const B& b) {                                   \
        a = a op b;                                                                               \
        return a;                                                                                 \
    }
GPU_SIM_OPERATOR(+)
GPU_SIM_OPERATOR(-)
GPU_SIM_OPERATOR(*)
GPU_SIM_OPERATOR(/)
GPU_SIM_OPERATOR(%)
GPU_SIM_OPERATOR(&)
GPU_SIM_OPERATOR(|)
GPU_SIM_OPERATOR(^)
GPU_SIM_OPERATOR(<<)
GPU_SIM_OPERATOR(>>)
#undef GPU_SIM_OPERATOR
#define GPU_SIM_COMPARISON(op)                                                                    \
    template <class A, class B, class V = mixed_t<A, B>>                                          \
    static GPU_SIM_INLINE bools_t<V> operator op(const A& a, const B& b) {                        \
        V x(a), y(b);                                                                             \
        bools_t<V> result;                                                                        \
        for (int i = 0; i < components<V>::count; i++) result.all.v[i] = x.all.v[i] op y.all.v[i]; \
        return result;                                                                            \
    }
GPU_SIM_COMPARISON(==)
GPU_SIM_COMPARISON(!=)
GPU_SIM_COMPARISON(<)
GPU_SIM_COMPARISON(>)
GPU_SIM_COMPARISON(<=)
GPU_SIM_COMPARISON(>=)
GPU_SIM_COMPARISON(&&)
GPU_SIM_COMPARISON(||)
#undef GPU_SIM_COMPARISON
#define GPU_SIM_UNARY(op, R)                                                                      \
    template <class A, class V = vector_t<A>>                                                     \
    static GPU_SIM_INLINE R operator op(const A& a) {                                             \
        V x(a);                                                                                   \
        R result;                                                                                 \
        for (int i = 0; i < components<V>::count; i++)                                            \
            result.all.v[i] = (typename components<R>::type)(op x.all.v[i]);                      \
        return result;                                                                            \
    }
GPU_SIM_UNARY(-, V)
GPU_SIM_UNARY(+, V)
GPU_SIM_UNARY(~, V)
GPU_SIM_UNARY(!, bools_t<V>)
#undef GPU_SIM_UNARY
#define GPU_SIM_STEP(op)                                                                          \
    template <class A, class V = vector_t<A>>                                                     \
    static GPU_SIM_INLINE A& operator op##op(A& a) { return a op##= 1; }                          \
    template <class A, class V = vector_t<A>>                                                     \
    static GPU_SIM_INLINE V operator op##op(A& a, int) {                                          \
        V before(a);                                                                              \
        a op##= 1;                                                                                \
        return before;                                                                            \
    }
GPU_SIM_STEP(+)
GPU_SIM_STEP(-)
#undef GPU_SIM_STEP

// Vectors that are aligned as their components are.
template <class T, int N>
struct packed_vec {
    T v[N];
    packed_vec() = default;
    template <class S, class = enable_if_t<is_scalar<S>>> GPU_SIM_INLINE packed_vec(S s) : packed_vec(vec<T, N>(s)) {}
    GPU_SIM_INLINE packed_vec(const vec<T, N>& from) { for (int i = 0; i < N; i++) v[i] = from[i]; }
    template <class... A, class = enable_if_t<(sizeof...(A) > 1) && ((components<A>::count + ...) == N)>>
    GPU_SIM_INLINE packed_vec(const A&... a) : packed_vec(vec<T, N>(a...)) {}
    GPU_SIM_INLINE operator vec<T, N>() const {
        vec<T, N> all;
        for (int i = 0; i < N; i++) all[i] = v[i];
        return all;
    }
    GPU_SIM_INLINE T& operator[](int i) { return v[i]; }
    GPU_SIM_INLINE const T& operator[](int i) const { return v[i]; }
};
template <class T, int N> struct components<packed_vec<T, N>> : components<vec<T, N>> {};

// ---- Matrices of C columns with R rows.
template <class T, int C, int R>
struct matrix {
    vec<T, R> columns[C];
    matrix() = default;
    GPU_SIM_INLINE explicit matrix(T diagonal) {
        for (int c = 0; c < C; c++)
            for (int r = 0; r < R; r++) columns[c][r] = c == r ? diagonal : (T)0;
    }
    template <class U, class = enable_if_t<!is_same_v<U, T>>>
    GPU_SIM_INLINE explicit matrix(const matrix<U, C, R>& from) {
        for (int c = 0; c < C; c++) columns[c] = vec<T, R>(from.columns[c]);
    }
    template <class... A, class = enable_if_t<sizeof...(A) == C && (... && is_vector<A>)>>
    GPU_SIM_INLINE matrix(const A&... a) {
        int c = 0;
        ((columns[c++] = a), ...);
    }
    GPU_SIM_INLINE vec<T, R>& operator[](int c) { return columns[c]; }
    GPU_SIM_INLINE const vec<T, R>& operator[](int c) const { return columns[c]; }
};
template <class T, int C, int R>
static GPU_SIM_INLINE vec<T, R> operator*(const matrix<T, C, R>& m, const vec<T, C>& x) {
    vec<T, R> sum = m[0] * x[0];
    for (int c = 1; c < C; c++) sum += m[c] * x[c];
    return sum;
}
template <class T, int C, int R>
static GPU_SIM_INLINE vec<T, C> operator*(const vec<T, R>& x, const matrix<T, C, R>& m) {
    vec<T, C> result;
    for (int c = 0; c < C; c++) {
        T sum = x[0] * m[c][0];
        for (int r = 1; r < R; r++) sum = (T)(sum + x[r] * m[c][r]);
        result[c] = sum;
    }
    return result;
}
template <class T, int C, int K, int R>
static GPU_SIM_INLINE matrix<T, K, R> operator*(const matrix<T, C, R>& a, const matrix<T, K, C>& b) {
    matrix<T, K, R> result;
    for (int k = 0; k < K; k++) result[k] = a * b[k];
    return result;
}
#define GPU_SIM_COLUMNS(expression)                            \
    matrix<T, C, R> result;                                    \
    for (int c = 0; c < C; c++) result[c] = expression;        \
    return result;
template <class T, int C, int R>
static GPU_SIM_INLINE matrix<T, C, R> operator*(const matrix<T, C, R>& a, T s) { GPU_SIM_COLUMNS(a[c] * s) }
template <class T, int C, int R>
static GPU_SIM_INLINE matrix<T, C, R> operator*(T s, const matrix<T, C, R>& a) { GPU_SIM_COLUMNS(s * a[c]) }
template <class T, int C, int R>
static GPU_SIM_INLINE matrix<T, C, R> operator+(const matrix<T, C, R>& a, const matrix<T, C, R>& b) { GPU_SIM_COLUMNS(a[c] + b[c]) }
template <class T, int C, int R>
static GPU_SIM_INLINE matrix<T, C, R> operator-(const matrix<T, C, R>& a, const matrix<T, C, R>& b) { GPU_SIM_COLUMNS(a[c] - b[c]) }
#undef GPU_SIM_COLUMNS

}  // namespace gpu_sim::types

namespace metal {

using gpu_sim::types::vec;
using gpu_sim::types::matrix;
template <class T, int C, int R>
static GPU_SIM_INLINE matrix<T, R, C> transpose(const matrix<T, C, R>& m) {
    matrix<T, R, C> result;
    for (int c = 0; c < C; c++)
        for (int r = 0; r < R; r++) result[r][c] = m[c][r];
    return result;
}

}  // namespace metal

// ---- Names, which are global.
using metal::vec;
#define GPU_SIM_VECTORS(T)                                                                        \
    typedef metal::vec<T, 2> T##2;                                                                \
    typedef metal::vec<T, 3> T##3;                                                                \
    typedef metal::vec<T, 4> T##4;                                                                \
    typedef gpu_sim::types::packed_vec<T, 2> packed_##T##2;                                                \
    typedef gpu_sim::types::packed_vec<T, 3> packed_##T##3;                                                \
    typedef gpu_sim::types::packed_vec<T, 4> packed_##T##4;
GPU_SIM_VECTORS(bool)
GPU_SIM_VECTORS(char)
GPU_SIM_VECTORS(uchar)
GPU_SIM_VECTORS(short)
GPU_SIM_VECTORS(ushort)
GPU_SIM_VECTORS(int)
GPU_SIM_VECTORS(uint)
GPU_SIM_VECTORS(long)
GPU_SIM_VECTORS(ulong)
GPU_SIM_VECTORS(half)
GPU_SIM_VECTORS(bfloat)
GPU_SIM_VECTORS(float)
#undef GPU_SIM_VECTORS
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
#undef GPU_SIM_MATRICES

// The same bits as another type.
namespace gpu_sim {
template <class T> static GPU_SIM_INLINE T bits(T value) { return value; }
template <class T, int N>
static GPU_SIM_INLINE types::components_of<T, N> bits(const types::vec<T, N>& value) { return value.all; }
template <class T, class U> static GPU_SIM_INLINE T of_bits(const U& from) {
    if constexpr (types::is_vector<T>) {
        T result;
        static_assert(sizeof(result.all) == sizeof(U), "as_type: the types have different sizes");
        result.all = __builtin_bit_cast(types::components_of<typename types::components<T>::type, types::components<T>::count>, from);
        return result;
    } else {
        static_assert(sizeof(T) == sizeof(U), "as_type: the types have different sizes");
        return __builtin_bit_cast(T, from);
    }
}
}  // namespace gpu_sim
template <class T, class U>
static GPU_SIM_INLINE T as_type(const U& value) {
    static_assert(gpu_sim::types::components<U>::count > 0, "as_type: a number or a vector");
    return gpu_sim::of_bits<T>(gpu_sim::bits((typename gpu_sim::types::components<U>::vector)value));
}
