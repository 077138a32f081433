// Operations of the 32 lanes of a simdgroup. All lanes that the simdgroup began with must come, to the same place in the
// source: what an operation gives to some of them alone differs between devices.
namespace gpu_sim::types {

template <class A> using value_t = typename components<A>::vector;
// The types that pass between lanes: of 8, 16 and 32 bits.
template <class A> constexpr bool passes =
    components<A>::count > 0 && sizeof(typename components<A>::type) <= 4 && !is_same_v<typename components<A>::type, bool>;

}  // namespace gpu_sim::types

namespace gpu_sim {

// ---- Reductions, scans, shuffles and votes.
template <class T> static T product(T a, T b) { return a * b; }
template <class T> static T least(T a, T b) { return metal::min(a, b); }
template <class T> static T most(T a, T b) { return metal::max(a, b); }
template <class T, T (*F)(T, T), int First, bool Inclusive>
GPU_SIM_UNCHECKED void scan_all(Engine*, void* const* lanes, uint present) {
    T sum = (T)First;
    for (uint left = present; left; left &= left - 1) {
        Reduce<T>& mine = *(Reduce<T>*)lanes[__builtin_ctz(left)];
        T with = F(sum, mine.value);
        mine.result = Inclusive ? with : sum;
        sum = with;
    }
}
template <class T>
static GPU_SIM_INLINE T shuffle(T value, uint source, Site site) {
    static const Collective collective = {shuffle_all<T>, "a shuffle", SAME, 0};
    if (source > 31) fail("a shuffle reads from a lane that there is not", called(site));
    Shuffle<T> mine = {value, value, (int)source, called(site)};
    converge(collective, ~0u, &mine, site);
    return mine.result;
}
static GPU_SIM_INLINE uint vote(bool predicate, Site site) {
    static const Collective collective = {vote_all, "a vote", SAME, 0};
    Vote mine = {predicate, 0};
    converge(collective, ~0u, &mine, site);
    return mine.result;
}

// ---- Matrices of 8 rows and columns, of which each lane holds two elements beside each other. Which is not
// documented; the places are those that are seen on Apple's devices, and a kernel should not rely on them.
struct Places {
    static GPU_SIM_INLINE uint row(uint lane) { return lane / 16 * 4 + lane / 2 % 4; }
    static GPU_SIM_INLINE uint column(uint lane) { return lane / 8 % 2 * 4 + lane % 2 * 2; }
};

// All lanes are here: seen in checked mode, where a lane also looks at elements of its neighbour, so that nobody reads
// only what he wrote himself.
static GPU_SIM_INLINE void together(Site site) {
#ifdef GPU_SIM_CHECKED
    static const Collective collective = {nothing, "an operation on a simdgroup_matrix", WHOLE | SAME, 0};
    converge(collective, ~0u, nullptr, site);
#endif
}
static GPU_SIM_INLINE ulong place(uint lane, int i, ulong per_row, const ulong2& origin, bool transposed) {
    ulong r = Places::row(lane), c = Places::column(lane) + i;
    return transposed ? (origin[1] + c) * per_row + origin[0] + r : (origin[1] + r) * per_row + origin[0] + c;
}
// Products are summed in float, and rounded once; in which order a device sums is not known.
template <class D, class A, class B, class S>
struct MatrixProduct {
    types::vec<A, 2> a;
    types::vec<B, 2> b;
    types::vec<S, 2> sum;
    types::vec<D, 2> result;
};
typedef float MatrixRow __attribute__((vector_size(32)));
template <class D, class A, class B, class S>
GPU_SIM_UNCHECKED void multiply_all(Engine*, void* const* lanes, uint) {
    float a[8][8];
    MatrixRow b[8], sum[8];
    for (uint lane = 0; lane < 32; lane++) {
        const MatrixProduct<D, A, B, S>& mine = *(const MatrixProduct<D, A, B, S>*)lanes[lane];
        for (int i = 0; i < 2; i++) {
            uint r = Places::row(lane), c = Places::column(lane) + i;
            a[r][c] = (float)mine.a[i];
            b[r][c] = (float)mine.b[i];
            sum[r][c] = (float)mine.sum[i];
        }
    }
    for (int r = 0; r < 8; r++)
        for (int k = 0; k < 8; k++) sum[r] += a[r][k] * b[k];
    for (uint lane = 0; lane < 32; lane++) {
        MatrixProduct<D, A, B, S>& mine = *(MatrixProduct<D, A, B, S>*)lanes[lane];
        for (int i = 0; i < 2; i++) mine.result[i] = (D)sum[Places::row(lane)][Places::column(lane) + i];
    }
}

}  // namespace gpu_sim

namespace metal {

// ---- Reductions and scans.
#define GPU_SIM_REDUCE(name, f)                                                                   \
    template <class A> static GPU_SIM_INLINE gpu_sim::types::value_t<A> name(const A& value, GPU_SIM_HERE) {      \
        static_assert(gpu_sim::types::passes<A>, #name ": no type that passes between lanes");                    \
        typedef gpu_sim::types::value_t<A> T;                                                                     \
        static const gpu_sim::Collective collective = {gpu_sim::reduce_all<T, f<T>>, #name, gpu_sim::SAME, 0}; \
        gpu_sim::Reduce<T> mine = {value, value};                                                 \
        gpu_sim::converge(collective, ~0u, &mine, site);                                                 \
        return mine.result;                                                                       \
    }
GPU_SIM_REDUCE(simd_sum, gpu_sim::sum)
GPU_SIM_REDUCE(simd_product, gpu_sim::product)
GPU_SIM_REDUCE(simd_min, gpu_sim::least)
GPU_SIM_REDUCE(simd_max, gpu_sim::most)
GPU_SIM_REDUCE(simd_and, gpu_sim::both)
GPU_SIM_REDUCE(simd_or, gpu_sim::either)
GPU_SIM_REDUCE(simd_xor, gpu_sim::differ)
#undef GPU_SIM_REDUCE

#define GPU_SIM_SCAN(name, f, first, inclusive)                                                   \
    template <class A> static GPU_SIM_INLINE gpu_sim::types::value_t<A> name(const A& value, GPU_SIM_HERE) {      \
        static_assert(gpu_sim::types::passes<A>, #name ": no type that passes between lanes");                    \
        typedef gpu_sim::types::value_t<A> T;                                                                     \
        static const gpu_sim::Collective collective = {gpu_sim::scan_all<T, f<T>, first, inclusive>, #name, gpu_sim::SAME, 0}; \
        gpu_sim::Reduce<T> mine = {value, value};                                                 \
        gpu_sim::converge(collective, ~0u, &mine, site);                                                 \
        return mine.result;                                                                       \
    }
GPU_SIM_SCAN(simd_prefix_inclusive_sum, gpu_sim::sum, 0, true)
GPU_SIM_SCAN(simd_prefix_exclusive_sum, gpu_sim::sum, 0, false)
GPU_SIM_SCAN(simd_prefix_inclusive_product, gpu_sim::product, 1, true)
GPU_SIM_SCAN(simd_prefix_exclusive_product, gpu_sim::product, 1, false)
#undef GPU_SIM_SCAN

// ---- Shuffles.
// `source` is what lane `lane` reads; lanes that would read outside keep their own.
#define GPU_SIM_SHUFFLE(name, source)                                                             \
    template <class A>                                                                            \
    static GPU_SIM_INLINE gpu_sim::types::value_t<A> name(const A& value, ushort by, GPU_SIM_HERE) { \
        static_assert(gpu_sim::types::passes<A>, #name ": no type that passes between lanes");                    \
        uint lane = gpu_sim::lane();                                                              \
        return gpu_sim::shuffle<gpu_sim::types::value_t<A>>(value, source, site);                 \
    }
GPU_SIM_SHUFFLE(simd_shuffle, ((void)lane, by))
GPU_SIM_SHUFFLE(simd_broadcast, ((void)lane, by))
GPU_SIM_SHUFFLE(simd_shuffle_xor, lane ^ by)
GPU_SIM_SHUFFLE(simd_shuffle_up, lane < by ? lane : lane - by)
GPU_SIM_SHUFFLE(simd_shuffle_down, lane + by > 31 ? lane : lane + by)
GPU_SIM_SHUFFLE(simd_shuffle_rotate_up, (lane - by) % 32)
GPU_SIM_SHUFFLE(simd_shuffle_rotate_down, (lane + by) % 32)
GPU_SIM_SHUFFLE(quad_shuffle, by > 3 ? 32 : lane / 4 * 4 + by)
GPU_SIM_SHUFFLE(quad_broadcast, by > 3 ? 32 : lane / 4 * 4 + by)
GPU_SIM_SHUFFLE(quad_shuffle_xor, by > 3 ? 32 : lane ^ by)
#undef GPU_SIM_SHUFFLE
// The lanes that would read outside take `fill` from the other end.
template <class A>
static GPU_SIM_INLINE gpu_sim::types::value_t<A> simd_shuffle_and_fill_up(const A& value, const gpu_sim::types::value_t<A>& fill, ushort by, GPU_SIM_HERE) {
    uint lane = gpu_sim::lane();
    gpu_sim::types::value_t<A> inside = gpu_sim::shuffle<gpu_sim::types::value_t<A>>(value, (lane - by) % 32, site);
    gpu_sim::types::value_t<A> outside = gpu_sim::shuffle<gpu_sim::types::value_t<A>>(fill, (lane - by) % 32, site);
    return lane < by ? outside : inside;
}
template <class A>
static GPU_SIM_INLINE gpu_sim::types::value_t<A> simd_shuffle_and_fill_down(const A& value, const gpu_sim::types::value_t<A>& fill, ushort by, GPU_SIM_HERE) {
    uint lane = gpu_sim::lane();
    gpu_sim::types::value_t<A> inside = gpu_sim::shuffle<gpu_sim::types::value_t<A>>(value, (lane + by) % 32, site);
    gpu_sim::types::value_t<A> outside = gpu_sim::shuffle<gpu_sim::types::value_t<A>>(fill, (lane + by) % 32, site);
    return lane + by > 31 ? outside : inside;
}
template <class A> static GPU_SIM_INLINE gpu_sim::types::value_t<A> simd_broadcast_first(const A& value, GPU_SIM_HERE) {
    static_assert(gpu_sim::types::passes<A>, "simd_broadcast_first: no type that passes between lanes");
    return gpu_sim::shuffle<gpu_sim::types::value_t<A>>(value, 0, site);
}
#define GPU_SIM_QUAD(name, f)                                                                     \
    template <class A> static GPU_SIM_INLINE gpu_sim::types::value_t<A> name(const A& value, GPU_SIM_HERE) {      \
        gpu_sim::types::value_t<A> two = f<gpu_sim::types::value_t<A>>(value, quad_shuffle_xor(value, 1, site)); \
        return f<gpu_sim::types::value_t<A>>(two, quad_shuffle_xor(two, 2, site));                                \
    }
GPU_SIM_QUAD(quad_sum, gpu_sim::sum)
GPU_SIM_QUAD(quad_product, gpu_sim::product)
GPU_SIM_QUAD(quad_min, gpu_sim::least)
GPU_SIM_QUAD(quad_max, gpu_sim::most)
#undef GPU_SIM_QUAD

// ---- Votes.
struct simd_vote {
    typedef ulong vote_t;
    explicit constexpr simd_vote(vote_t lanes) : lanes(lanes) {}
    explicit constexpr operator vote_t() const { return lanes; }
    bool all() const { return lanes == 0xffffffffu; }
    bool any() const { return lanes != 0; }

private:
    vote_t lanes;
};
static GPU_SIM_INLINE simd_vote simd_ballot(bool predicate, GPU_SIM_HERE) {
    return simd_vote(gpu_sim::vote(predicate, site));
}
static GPU_SIM_INLINE simd_vote simd_active_threads_mask(GPU_SIM_HERE) { return simd_vote(gpu_sim::vote(true, site)); }
static GPU_SIM_INLINE bool simd_any(bool predicate, GPU_SIM_HERE) { return gpu_sim::vote(predicate, site) != 0; }
static GPU_SIM_INLINE bool simd_all(bool predicate, GPU_SIM_HERE) { return gpu_sim::vote(!predicate, site) == 0; }
static GPU_SIM_INLINE bool simd_is_first(GPU_SIM_HERE) {
    return gpu_sim::vote(true, site) != 0 && gpu_sim::lane() == 0;
}

// ---- Matrices.
template <class T, int C, int R>
struct simdgroup_matrix {
    static_assert(C == 8 && R == 8, "a simdgroup_matrix has 8 rows and 8 columns");
    static_assert(is_floating_point_v<T>, "a simdgroup_matrix is of half, bfloat or float");
    typedef vec<T, 2> storage_type;
    simdgroup_matrix() = default;
    // A diagonal matrix.
    GPU_SIM_INLINE explicit simdgroup_matrix(T diagonal) {
        uint lane = gpu_sim::lane();
        for (int i = 0; i < 2; i++) elements[i] = gpu_sim::Places::row(lane) == gpu_sim::Places::column(lane) + i ? diagonal : (T)0;
    }
    GPU_SIM_INLINE storage_type& thread_elements() { return elements; }
    GPU_SIM_INLINE const storage_type& thread_elements() const { return elements; }

    storage_type elements;
};
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;

template <class T, int C, int R = C>
static GPU_SIM_INLINE simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T value) {
    simdgroup_matrix<T, C, R> filled;
    filled.elements = vec<T, 2>(value);
    return filled;
}

template <class T, int C, int R>
static GPU_SIM_INLINE void simdgroup_load(simdgroup_matrix<T, C, R>& to, const T* from, ulong per_row = C, ulong2 origin = 0,
                                          bool transposed = false, GPU_SIM_HERE) {
    gpu_sim::together(site);
    uint lane = gpu_sim::lane();
    for (int i = 0; i < 2; i++) to.elements[i] = from[gpu_sim::place(lane, i, per_row, origin, transposed)];
#ifdef GPU_SIM_CHECKED
    for (int i = 0; i < 2; i++) gpu_sim::look(from + gpu_sim::place((lane + 1) % 32, i, per_row, origin, transposed), sizeof(T), site);
#endif
}
template <class T, int C, int R>
static GPU_SIM_INLINE void simdgroup_store(const simdgroup_matrix<T, C, R>& from, T* to, ulong per_row = C, ulong2 origin = 0,
                                           bool transposed = false, GPU_SIM_HERE) {
    gpu_sim::together(site);
    uint lane = gpu_sim::lane();
    for (int i = 0; i < 2; i++) to[gpu_sim::place(lane, i, per_row, origin, transposed)] = from.elements[i];
}

template <class D, class A, class B, class S>
static GPU_SIM_INLINE void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                                                         const simdgroup_matrix<B, 8, 8>& b, const simdgroup_matrix<S, 8, 8>& sum,
                                                         GPU_SIM_HERE) {
    static const gpu_sim::Collective collective = {gpu_sim::multiply_all<D, A, B, S>, "an operation on a simdgroup_matrix", gpu_sim::WHOLE | gpu_sim::SAME, 0};
    gpu_sim::MatrixProduct<D, A, B, S> mine = {a.elements, b.elements, sum.elements, vec<D, 2>()};
    gpu_sim::converge(collective, ~0u, &mine, site);
    d.elements = mine.result;
}
template <class D, class A, class B>
static GPU_SIM_INLINE void simdgroup_multiply(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                                              const simdgroup_matrix<B, 8, 8>& b, GPU_SIM_HERE) {
    simdgroup_multiply_accumulate(d, a, b, make_filled_simdgroup_matrix<D, 8, 8>((D)0), site);
}

}  // namespace metal
