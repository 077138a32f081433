// Metal's thread-related built-ins: kernel arguments, barriers, atomic operations.
namespace gpu_sim {

// ---- What an entry point passes to its kernel. Buffers are passed by their addresses, in the order of their numbers.
template <class T> struct Buffer;
template <class T> struct Buffer<T*> {
    static constexpr Parameter parameter = {MEMORY, 0};
    static inline T* of(void* at) { return (T*)at; }
};
template <class T> struct Buffer<T&> {
    static constexpr Parameter parameter = {MEMORY, sizeof(T)};
    static inline T& of(void* at) { return *(T*)at; }
};
constexpr Parameter NO_PARAMETER = {NOTHING, 0};

struct MetalKernel {
    Kernel kernel;
    MetalKernel(const char* name, void (*entry)(void* const*), const Parameter* parameters, u64 count, u32 threads)
        : kernel{name, entry, parameters, count, kernels, threads} {
        kernels = &kernel;
    }
};

// ---- Attributes of a kernel's parameters. Grids are made of whole threadgroups.
namespace attributes {
GPU_SIM_UNCHECKED Index times(Index a, Index b) { return {a.x * b.x, a.y * b.y, a.z * b.z}; }
GPU_SIM_UNCHECKED Index thread_position_in_threadgroup() { return engine->thread->index; }
GPU_SIM_UNCHECKED Index threadgroup_position_in_grid() { return engine->block; }
GPU_SIM_UNCHECKED Index threads_per_threadgroup() { return engine->block_size; }
GPU_SIM_UNCHECKED Index dispatch_threads_per_threadgroup() { return engine->block_size; }
GPU_SIM_UNCHECKED Index threadgroups_per_grid() { return engine->grid; }
GPU_SIM_UNCHECKED Index threads_per_grid() { return times(engine->grid, engine->block_size); }
GPU_SIM_UNCHECKED Index thread_position_in_grid() {
    Index at = times(engine->block, engine->block_size), in = engine->thread->index;
    return {at.x + in.x, at.y + in.y, at.z + in.z};
}
GPU_SIM_UNCHECKED Index grid_origin() { return {0, 0, 0}; }
GPU_SIM_UNCHECKED u32 threads() { return engine->block_size.x * engine->block_size.y * engine->block_size.z; }
GPU_SIM_UNCHECKED u32 thread_index_in_threadgroup() { return engine->thread->linear; }
GPU_SIM_UNCHECKED u32 thread_index_in_simdgroup() { return engine->thread->lane; }
GPU_SIM_UNCHECKED u32 thread_index_in_quadgroup() { return engine->thread->lane % 4; }
GPU_SIM_UNCHECKED u32 simdgroup_index_in_threadgroup() { return engine->thread->warp; }
GPU_SIM_UNCHECKED u32 quadgroup_index_in_threadgroup() { return engine->thread->linear / 4; }
GPU_SIM_UNCHECKED u32 threads_per_simdgroup() { return 32; }
GPU_SIM_UNCHECKED u32 thread_execution_width() { return 32; }
GPU_SIM_UNCHECKED u32 simdgroups_per_threadgroup() { return (threads() + 31) / 32; }
GPU_SIM_UNCHECKED u32 dispatch_simdgroups_per_threadgroup() { return (threads() + 31) / 32; }
GPU_SIM_UNCHECKED u32 quadgroups_per_threadgroup() { return (threads() + 3) / 4; }
GPU_SIM_UNCHECKED u32 dispatch_quadgroups_per_threadgroup() { return (threads() + 3) / 4; }
}  // namespace attributes

template <class T> constexpr bool is_index = metal::is_same_v<T, uint> || metal::is_same_v<T, ushort>;
template <class Q>
GPU_SIM_UNCHECKED metal::remove_cv_t<Q> built_in(Index index) {
    typedef metal::remove_cv_t<Q> T;
    static_assert(is_index<typename gpu_sim::types::components<T>::type>, "a position is of uint or ushort, or of 2 or 3 of them");
    static_assert(gpu_sim::types::components<T>::count <= 3, "a position has at most 3 components");
    if constexpr (gpu_sim::types::components<T>::count == 1) return (T)index.x;
    else if constexpr (gpu_sim::types::components<T>::count == 2) return T(index.x, index.y);
    else return T(index.x, index.y, index.z);
}
template <class Q>
GPU_SIM_UNCHECKED metal::remove_cv_t<Q> built_in(u32 index) {
    typedef metal::remove_cv_t<Q> T;
    static_assert(is_index<T>, "an index in a group, or the number of its parts, is a uint or a ushort");
    return (T)index;
}

template <class T>
static GPU_SIM_INLINE T* touched(const volatile T* at, Touch touch = ATOMIC) {
    T* value = const_cast<T*>(at);
    touch_atomic(value, touch);
    return value;
}

}  // namespace gpu_sim

namespace metal {

// ---- Barriers. They order what is in the memory that they name, and nothing else.
enum class mem_flags : uint { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
static GPU_SIM_INLINE mem_flags operator|(mem_flags a, mem_flags b) { return (mem_flags)((uint)a | (uint)b); }
static GPU_SIM_INLINE mem_flags operator&(mem_flags a, mem_flags b) { return (mem_flags)((uint)a & (uint)b); }
static_assert((uint)mem_flags::mem_device == gpu_sim::DEVICE_MEMORY && (uint)mem_flags::mem_threadgroup == gpu_sim::SHARED_MEMORY, "");
static GPU_SIM_INLINE void threadgroup_barrier(mem_flags flags, GPU_SIM_HERE) {
    gpu_sim::barrier(0, (gpu_sim::u32)flags & gpu_sim::ALL_MEMORY, site);
}
static GPU_SIM_INLINE void simdgroup_barrier(mem_flags flags, GPU_SIM_HERE) {
    static const gpu_sim::Collective collectives[4] = {{gpu_sim::nothing, "simdgroup_barrier", gpu_sim::SAME, 0},
                                                 {gpu_sim::nothing, "simdgroup_barrier", gpu_sim::SAME, 1},
                                                 {gpu_sim::nothing, "simdgroup_barrier", gpu_sim::SAME, 2},
                                                 {gpu_sim::nothing, "simdgroup_barrier", gpu_sim::SAME, 3}};
    gpu_sim::converge(collectives[(uint)flags & gpu_sim::ALL_MEMORY], ~0u, nullptr, site);
}

// ---- Atomic operations of 32 bits, in whatever order.
enum memory_order { memory_order_relaxed };
template <class T> struct atomic { T value; };
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<float> atomic_float;
typedef atomic<bool> atomic_bool;
template <class T> static GPU_SIM_INLINE T atomic_load_explicit(const volatile atomic<T>* at, memory_order) {
    return gpu_sim::change<T, gpu_sim::first<T>>(gpu_sim::touched(&at->value), T());
}
template <class T>
static GPU_SIM_INLINE void atomic_store_explicit(volatile atomic<T>* at, remove_cv_t<T> value, memory_order) {
    gpu_sim::change<T, gpu_sim::second<T>>(gpu_sim::touched(&at->value, gpu_sim::ATOMIC_WRITE), value);
}
template <class T> static GPU_SIM_INLINE bool atomic_compare_exchange_weak_explicit(
    volatile atomic<T>* at, remove_cv_t<T>* expected, remove_cv_t<T> value, memory_order, memory_order) {
    T wanted = *expected, old = gpu_sim::change_if(gpu_sim::touched(&at->value), wanted, value);
    if (old == wanted) return true;
    *expected = old;
    return false;
}
#define GPU_SIM_ATOMIC(name, f)                                                                   \
    template <class T>                                                                            \
    static GPU_SIM_INLINE T atomic_##name##_explicit(volatile atomic<T>* at, remove_cv_t<T> value, memory_order) { \
        return gpu_sim::change<T, gpu_sim::f<T>>(gpu_sim::touched(&at->value), value);                             \
    }
GPU_SIM_ATOMIC(exchange, second)
GPU_SIM_ATOMIC(fetch_add, sum)
GPU_SIM_ATOMIC(fetch_sub, difference)
GPU_SIM_ATOMIC(fetch_min, smaller)
GPU_SIM_ATOMIC(fetch_max, larger)
GPU_SIM_ATOMIC(fetch_and, both)
GPU_SIM_ATOMIC(fetch_or, either)
GPU_SIM_ATOMIC(fetch_xor, differ)
#undef GPU_SIM_ATOMIC

}  // namespace metal
