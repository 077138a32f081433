// What the 32 lanes of a simdgroup do together. All lanes that the simdgroup began with must come, to the same place in the
// text: what an operation gives to some of them alone differs between devices.
namespace metal {

template <class A> using value_t = typename components<A>::vector;
// The types that pass between lanes: of 8, 16 and 32 bits.
template <class A> constexpr bool passes =
    components<A>::count > 0 && sizeof(typename components<A>::type) <= 4 && !is_same_v<typename components<A>::type, bool>;

// ---- Reductions and scans.
template <class T> static T product(T a, T b) { return a * b; }
template <class T> static T smaller(T a, T b) { return min(a, b); }
template <class T> static T larger(T a, T b) { return max(a, b); }
#define GPU_SIM_REDUCE(name, f)                                                                   \
    template <class A> static GPU_SIM_INLINE value_t<A> name(const A& value, GPU_SIM_HERE) {      \
        static_assert(passes<A>, #name ": no type that passes between lanes");                    \
        typedef value_t<A> T;                                                                     \
        static const gpu_sim::Meeting meeting = {gpu_sim::reduce_all<T, f<T>>, #name, gpu_sim::SAME, 0}; \
        gpu_sim::Reduce<T> mine = {value, value};                                                 \
        gpu_sim::meet(meeting, ~0u, &mine, site);                                                 \
        return mine.result;                                                                       \
    }
GPU_SIM_REDUCE(simd_sum, gpu_sim::sum)
GPU_SIM_REDUCE(simd_product, product)
GPU_SIM_REDUCE(simd_min, smaller)
GPU_SIM_REDUCE(simd_max, larger)
GPU_SIM_REDUCE(simd_and, gpu_sim::both)
GPU_SIM_REDUCE(simd_or, gpu_sim::either)
GPU_SIM_REDUCE(simd_xor, gpu_sim::differ)
#undef GPU_SIM_REDUCE

template <class T, T (*F)(T, T), int First, bool Inclusive>
GPU_SIM_UNCHECKED void scan_all(gpu_sim::Engine*, void* const* lanes, uint present) {
    T sum = (T)First;
    for (uint left = present; left; left &= left - 1) {
        gpu_sim::Reduce<T>& mine = *(gpu_sim::Reduce<T>*)lanes[__builtin_ctz(left)];
        T with = F(sum, mine.value);
        mine.result = Inclusive ? with : sum;
        sum = with;
    }
}
#define GPU_SIM_SCAN(name, f, first, inclusive)                                                   \
    template <class A> static GPU_SIM_INLINE value_t<A> name(const A& value, GPU_SIM_HERE) {      \
        static_assert(passes<A>, #name ": no type that passes between lanes");                    \
        typedef value_t<A> T;                                                                     \
        static const gpu_sim::Meeting meeting = {scan_all<T, f<T>, first, inclusive>, #name, gpu_sim::SAME, 0}; \
        gpu_sim::Reduce<T> mine = {value, value};                                                 \
        gpu_sim::meet(meeting, ~0u, &mine, site);                                                 \
        return mine.result;                                                                       \
    }
GPU_SIM_SCAN(simd_prefix_inclusive_sum, gpu_sim::sum, 0, true)
GPU_SIM_SCAN(simd_prefix_exclusive_sum, gpu_sim::sum, 0, false)
GPU_SIM_SCAN(simd_prefix_inclusive_product, product, 1, true)
GPU_SIM_SCAN(simd_prefix_exclusive_product, product, 1, false)
#undef GPU_SIM_SCAN

// ---- Shuffles.
template <class T>
static GPU_SIM_INLINE T shuffle(T value, uint source, gpu_sim::Site site) {
    static const gpu_sim::Meeting meeting = {gpu_sim::shuffle_all<T>, "a shuffle", gpu_sim::SAME, 0};
    if (source > 31) gpu_sim::fail("a shuffle reads from a lane that there is not", gpu_sim::called(site));
    gpu_sim::Shuffle<T> mine = {value, value, (int)source, gpu_sim::called(site)};
    gpu_sim::meet(meeting, ~0u, &mine, site);
    return mine.result;
}
// `source` is what lane `lane` reads; lanes that would read outside keep their own.
#define GPU_SIM_SHUFFLE(name, source)                                                             \
    template <class A> static GPU_SIM_INLINE value_t<A> name(const A& value, ushort by, GPU_SIM_HERE) { \
        static_assert(passes<A>, #name ": no type that passes between lanes");                    \
        uint lane = gpu_sim::lane();                                                              \
        return shuffle<value_t<A>>(value, source, site);                                          \
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
template <class A> static GPU_SIM_INLINE value_t<A> simd_shuffle_and_fill_up(const A& value, const value_t<A>& fill, ushort by, GPU_SIM_HERE) {
    uint lane = gpu_sim::lane();
    value_t<A> inside = shuffle<value_t<A>>(value, (lane - by) % 32, site);
    value_t<A> outside = shuffle<value_t<A>>(fill, (lane - by) % 32, site);
    return lane < by ? outside : inside;
}
template <class A> static GPU_SIM_INLINE value_t<A> simd_shuffle_and_fill_down(const A& value, const value_t<A>& fill, ushort by, GPU_SIM_HERE) {
    uint lane = gpu_sim::lane();
    value_t<A> inside = shuffle<value_t<A>>(value, (lane + by) % 32, site);
    value_t<A> outside = shuffle<value_t<A>>(fill, (lane + by) % 32, site);
    return lane + by > 31 ? outside : inside;
}
template <class A> static GPU_SIM_INLINE value_t<A> simd_broadcast_first(const A& value, GPU_SIM_HERE) {
    static_assert(passes<A>, "simd_broadcast_first: no type that passes between lanes");
    return shuffle<value_t<A>>(value, 0, site);
}
#define GPU_SIM_QUAD(name, f)                                                                     \
    template <class A> static GPU_SIM_INLINE value_t<A> name(const A& value, GPU_SIM_HERE) {      \
        value_t<A> two = f<value_t<A>>(value, quad_shuffle_xor(value, 1, site));                  \
        return f<value_t<A>>(two, quad_shuffle_xor(two, 2, site));                                \
    }
GPU_SIM_QUAD(quad_sum, gpu_sim::sum)
GPU_SIM_QUAD(quad_product, product)
GPU_SIM_QUAD(quad_min, smaller)
GPU_SIM_QUAD(quad_max, larger)
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
static GPU_SIM_INLINE uint vote(bool predicate, gpu_sim::Site site) {
    static const gpu_sim::Meeting meeting = {gpu_sim::vote_all, "a vote", gpu_sim::SAME, 0};
    gpu_sim::Vote mine = {predicate, 0};
    gpu_sim::meet(meeting, ~0u, &mine, site);
    return mine.result;
}
static GPU_SIM_INLINE simd_vote simd_ballot(bool predicate, GPU_SIM_HERE) { return simd_vote(vote(predicate, site)); }
static GPU_SIM_INLINE simd_vote simd_active_threads_mask(GPU_SIM_HERE) { return simd_vote(vote(true, site)); }
static GPU_SIM_INLINE bool simd_any(bool predicate, GPU_SIM_HERE) { return vote(predicate, site) != 0; }
static GPU_SIM_INLINE bool simd_all(bool predicate, GPU_SIM_HERE) { return vote(!predicate, site) == 0; }
static GPU_SIM_INLINE bool simd_is_first(GPU_SIM_HERE) { return vote(true, site) != 0 && gpu_sim::lane() == 0; }

// ---- Matrices of 8 rows and columns, of which each lane holds two elements beside each other. Which is not documented; the
// places are those that are seen on Apple's devices, and a kernel should not rely on them.
template <class T, int C, int R>
struct simdgroup_matrix {
    static_assert(C == 8 && R == 8, "a simdgroup_matrix has 8 rows and 8 columns");
    static_assert(is_floating_point_v<T>, "a simdgroup_matrix is of half, bfloat or float");
    typedef vec<T, 2> storage_type;
    simdgroup_matrix() = default;
    // A diagonal matrix.
    GPU_SIM_INLINE explicit simdgroup_matrix(T diagonal) {
        uint lane = gpu_sim::lane();
        for (int i = 0; i < 2; i++) elements[i] = row(lane) == column(lane) + i ? diagonal : (T)0;
    }
    GPU_SIM_INLINE storage_type& thread_elements() { return elements; }
    GPU_SIM_INLINE const storage_type& thread_elements() const { return elements; }

    static GPU_SIM_INLINE uint row(uint lane) { return lane / 16 * 4 + lane / 2 % 4; }
    static GPU_SIM_INLINE uint column(uint lane) { return lane / 8 % 2 * 4 + lane % 2 * 2; }

    storage_type elements;
};
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;

template <class T, int C, int R = C> static GPU_SIM_INLINE simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T value) {
    simdgroup_matrix<T, C, R> filled;
    filled.elements = vec<T, 2>(value);
    return filled;
}

// All lanes are here: seen in checked mode, where a lane also looks at elements of its neighbour, so that nobody reads
// only what he wrote himself.
static GPU_SIM_INLINE void together(gpu_sim::Site site) {
#ifdef GPU_SIM_CHECKED
    static const gpu_sim::Meeting meeting = {gpu_sim::nothing, "an operation on a simdgroup_matrix", gpu_sim::WHOLE, 0};
    gpu_sim::meet(meeting, ~0u, nullptr, site);
#endif
}
template <class M> static GPU_SIM_INLINE ulong place(uint lane, int i, ulong per_row, const ulong2& origin, bool transposed) {
    ulong r = M::row(lane), c = M::column(lane) + i;
    return transposed ? (origin[1] + c) * per_row + origin[0] + r : (origin[1] + r) * per_row + origin[0] + c;
}
template <class T, int C, int R>
static GPU_SIM_INLINE void simdgroup_load(simdgroup_matrix<T, C, R>& to, const T* from, ulong per_row = C, ulong2 origin = 0,
                                          bool transposed = false, GPU_SIM_HERE) {
    typedef simdgroup_matrix<T, C, R> M;
    together(site);
    uint lane = gpu_sim::lane();
    for (int i = 0; i < 2; i++) to.elements[i] = from[place<M>(lane, i, per_row, origin, transposed)];
#ifdef GPU_SIM_CHECKED
    for (int i = 0; i < 2; i++) gpu_sim::look(from + place<M>((lane + 1) % 32, i, per_row, origin, transposed), sizeof(T), site);
#endif
}
template <class T, int C, int R>
static GPU_SIM_INLINE void simdgroup_store(const simdgroup_matrix<T, C, R>& from, T* to, ulong per_row = C, ulong2 origin = 0,
                                           bool transposed = false, GPU_SIM_HERE) {
    typedef simdgroup_matrix<T, C, R> M;
    together(site);
    uint lane = gpu_sim::lane();
    for (int i = 0; i < 2; i++) to[place<M>(lane, i, per_row, origin, transposed)] = from.elements[i];
}

// Products are summed in float, and rounded once; in which order a device sums is not known.
template <class D, class A, class B, class S>
struct Product {
    vec<A, 2> a;
    vec<B, 2> b;
    vec<S, 2> sum;
    vec<D, 2> result;
};
typedef float Row __attribute__((vector_size(32)));
template <class D, class A, class B, class S>
GPU_SIM_UNCHECKED void multiply_all(gpu_sim::Engine*, void* const* lanes, uint) {
    typedef simdgroup_matrix<float, 8, 8> M;
    float a[8][8];
    Row b[8], sum[8];
    for (uint lane = 0; lane < 32; lane++) {
        const Product<D, A, B, S>& mine = *(const Product<D, A, B, S>*)lanes[lane];
        for (int i = 0; i < 2; i++) {
            uint r = M::row(lane), c = M::column(lane) + i;
            a[r][c] = (float)mine.a[i];
            b[r][c] = (float)mine.b[i];
            sum[r][c] = (float)mine.sum[i];
        }
    }
    for (int r = 0; r < 8; r++)
        for (int k = 0; k < 8; k++) sum[r] += a[r][k] * b[k];
    for (uint lane = 0; lane < 32; lane++) {
        Product<D, A, B, S>& mine = *(Product<D, A, B, S>*)lanes[lane];
        for (int i = 0; i < 2; i++) mine.result[i] = (D)sum[M::row(lane)][M::column(lane) + i];
    }
}
template <class D, class A, class B, class S>
static GPU_SIM_INLINE void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                                                         const simdgroup_matrix<B, 8, 8>& b, const simdgroup_matrix<S, 8, 8>& sum,
                                                         GPU_SIM_HERE) {
    static const gpu_sim::Meeting meeting = {multiply_all<D, A, B, S>, "an operation on a simdgroup_matrix", gpu_sim::WHOLE, 0};
    Product<D, A, B, S> mine = {a.elements, b.elements, sum.elements, vec<D, 2>()};
    gpu_sim::meet(meeting, ~0u, &mine, site);
    d.elements = mine.result;
}
template <class D, class A, class B>
static GPU_SIM_INLINE void simdgroup_multiply(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                                              const simdgroup_matrix<B, 8, 8>& b, GPU_SIM_HERE) {
    simdgroup_multiply_accumulate(d, a, b, make_filled_simdgroup_matrix<D, 8, 8>((D)0), site);
}

}  // namespace metal
