// The simulator's interface for every kernel language: the running thread, collectives of lanes and of blocks, shared memory,
// kernel registration. Shared structs; the runtime's side is in src/engine/abi.rs.
#define GPU_SIM 1

namespace gpu_sim {

typedef __UINT32_TYPE__ u32;
typedef __UINT64_TYPE__ u64;
typedef __SIZE_TYPE__ size;

struct Index {
    u32 x, y, z;
};

// Where in the source something is called; in checked mode also the address in the code, which tells the callers too.
struct Site {
    const char* file;
    u32 line;
    const void* code;
};
#define GPU_SIM_HERE gpu_sim::Site site = {__builtin_FILE(), (gpu_sim::u32)__builtin_LINE(), nullptr}

// In checked mode the compiler calls a hook before each load and store (check.h), but not in the functions of this
// prelude that look at the engine or at what other threads hold. They are called, so that their return address is in
// the kernel.
#ifdef GPU_SIM_CHECKED
#define GPU_SIM_UNCHECKED \
    static __attribute__((noinline, no_sanitize("thread"), no_sanitize("undefined"), unused))
#define GPU_SIM_CALLED(site) (site.code = __builtin_return_address(0))
#define GPU_SIM_BODY static __attribute__((noinline))
#else
#define GPU_SIM_UNCHECKED static inline
#define GPU_SIM_CALLED(site) ((void)0)
#define GPU_SIM_BODY static
#endif

struct Thread {
    Index index;
    u32 linear, lane, warp;
};

struct Engine;

// A collective operation of a warp, to which each lane brings something. The last to come runs `complete` for all of them.
struct Collective {
    // `lanes[i]` is what lane i brought, for each bit of `present`.
    void (*complete)(Engine* engine, void* const* lanes, u32 present);
    // For messages: "a shuffle".
    const char* what;
    // The lanes that must come: bits of `Lanes`.
    u32 lanes;
    // In which memory the others may read after it what a lane wrote before it: bits of `Memory`.
    u32 orders;
};
// WHOLE: all 32 lanes. SAME: all with which the warp began, and none may be in another operation meanwhile. Both: at one place in
// the source, which checked mode enforces.
enum Lanes : u32 { WHOLE = 1, SAME = 2 };
enum Memory : u32 { DEVICE_MEMORY = 1, SHARED_MEMORY = 2, ALL_MEMORY = 3 };

// CONSTANT: a read of what no launch writes. ATOMIC reads and writes, ATOMIC_WRITE writes only.
enum Touch : u32 { READ, WRITE, ATOMIC, CONSTANT, ATOMIC_WRITE };

// Steps of a barrier in shared memory: it begins with a count of arrivals, ends; a thread arrives, arrives and
// announces bytes, or waits for the end of the phase of a parity.
enum PhaseStep : u32 { PHASE_INIT, PHASE_INVAL, PHASE_ARRIVE, PHASE_EXPECT, PHASE_WAIT };

// One warp's part of d = a · b + d by four warps: 16 rows of a, of 32 bytes, and as many rows of b as there are
// columns.
struct Product {
    // The work: addresses of each lane's sums, and the rows of a and b one after another.
    void (*compute)(void* const* d, const char* a, const char* b, u32 columns, u32 accumulate);
    // Descriptors of matrices in shared memory.
    u64 a, b;
    u32 columns, accumulate;
    // 1: a comes from registers, `fragments`, which lie at `registers`.
    u32 from_registers;
    // 1: b lies as its transpose, of 16-bit elements.
    u32 by_columns;
    void* d[32];
    u32 fragments[32][4];
    const void* registers[32];
};

struct Hooks {
    void (*converge)(Engine*, const Collective*, u32 mask, void* brought, const Site*);
    // Returns for how many of the block's threads `predicate` is 1; orders accesses in `memory`.
    u32 (*barrier)(Engine*, u32 predicate, u32 memory, const Site*);
    void* (*shared)(Engine*, u32 variable, u32 bytes, u32 align, const Site*);
    void (*copy)(Engine*, void* to, const void* from, u32 bytes, u32 valid, const Site*);
    void (*commit)(Engine*);
    void (*wait)(Engine*, u32 left, const Site*);
    // A barrier of some warps, by its number; `waits` is 0 for those that only arrive.
    void (*named)(Engine*, u32 id, u32 threads, u32 waits, const Site*);
    // A barrier in shared memory that counts arrivals and bytes; `value` is what the step takes.
    void (*phase)(Engine*, PhaseStep, void* barrier, u32 value, const Site*);
    // Copies that the device makes by itself, whose bytes are counted at a barrier in shared memory.
    void (*bulk)(Engine*, void* to, const void* from, u32 bytes, void* barrier, const Site*);
    void (*tile)(Engine*, void* to, const void* map, int column, int row, void* barrier, const Site*);
    // Makes what a thread knows of visible to operations that the device runs by itself.
    void (*fence_async)(Engine*, const Site*);
    // Products of four warps. All but the wait are called once for a warp, when its lanes converge.
    void (*product)(Engine*, const Product*, const Site*);
    void (*product_fence)(Engine*);
    void (*product_commit)(Engine*);
    void (*product_wait)(Engine*, u32 left, const Site*);
    // Checked mode: the thread has waited for the launches before.
    void (*depend)(Engine*, const Site*);
    // Checked mode: memory will be touched.
    void (*touch)(Engine*, const void* at, u64 bytes, Touch, const void* code);
    // Ends the launch; does not return.
    void (*fail)(Engine*, u32 kind, const char* message, const Site*);
};

struct Engine {
    Thread* thread;
    const Hooks* hooks;
    // Addresses of shared variables in this block, 0 before the first use.
    void** variables;
    void* dynamic_shared;
    Index block, block_size, grid;
    // Where the threads' own memory lies.
    const char* stacks;
    u64 stack_bytes;
    // Checked mode: the threads' own memory is looked at too, because products write it.
    u32 watched;
    // Where shared memory begins: what its addresses are counted from.
    const char* shared;
};

// Launches run at once in several threads of the host, each with an engine of its own.
static thread_local Engine* engine;

GPU_SIM_UNCHECKED Site called(Site site) {
    GPU_SIM_CALLED(site);
    return site;
}
GPU_SIM_UNCHECKED void fail(const char* message, Site site) {
    engine->hooks->fail(engine, 0, message, &site);
    __builtin_unreachable();
}
GPU_SIM_UNCHECKED void converge(const Collective& collective, u32 mask, void* brought, Site site) {
    GPU_SIM_CALLED(site);
    engine->hooks->converge(engine, &collective, mask, brought, &site);
}
GPU_SIM_UNCHECKED u32 barrier(u32 predicate, u32 memory, Site site) {
    GPU_SIM_CALLED(site);
    return engine->hooks->barrier(engine, predicate, memory, &site);
}
GPU_SIM_UNCHECKED void copy(void* to, const void* from, u32 bytes, u32 valid, Site site) {
    GPU_SIM_CALLED(site);
    engine->hooks->copy(engine, to, from, bytes, valid, &site);
}
GPU_SIM_UNCHECKED void commit() { engine->hooks->commit(engine); }
GPU_SIM_UNCHECKED void wait(u32 left, Site site) {
    GPU_SIM_CALLED(site);
    engine->hooks->wait(engine, left, &site);
}
GPU_SIM_UNCHECKED void named_barrier(u32 id, u32 threads, u32 waits, Site site) {
    GPU_SIM_CALLED(site);
    engine->hooks->named(engine, id, threads, waits, &site);
}
GPU_SIM_UNCHECKED void phase(PhaseStep step, void* barrier, u32 value, Site site) {
    GPU_SIM_CALLED(site);
    engine->hooks->phase(engine, step, barrier, value, &site);
}
GPU_SIM_UNCHECKED void bulk(void* to, const void* from, u32 bytes, void* barrier, Site site) {
    GPU_SIM_CALLED(site);
    engine->hooks->bulk(engine, to, from, bytes, barrier, &site);
}
GPU_SIM_UNCHECKED void tile(void* to, const void* map, int column, int row, void* barrier, Site site) {
    GPU_SIM_CALLED(site);
    engine->hooks->tile(engine, to, map, column, row, barrier, &site);
}
GPU_SIM_UNCHECKED void fence_async(Site site) {
    GPU_SIM_CALLED(site);
    engine->hooks->fence_async(engine, &site);
}
GPU_SIM_UNCHECKED void product_wait(u32 left, Site site) {
    GPU_SIM_CALLED(site);
    engine->hooks->product_wait(engine, left, &site);
}
GPU_SIM_UNCHECKED void depend(Site site) {
    GPU_SIM_CALLED(site);
#ifdef GPU_SIM_CHECKED
    engine->hooks->depend(engine, &site);
#endif
}
// Reads what no launch writes.
template <class T>
GPU_SIM_UNCHECKED T constant(const T* at) {
#ifdef GPU_SIM_CHECKED
    engine->hooks->touch(engine, at, sizeof(T), CONSTANT, __builtin_return_address(0));
#endif
    return *at;
}
// Reads nothing, but looks whether it might.
GPU_SIM_UNCHECKED void look(const void* at, u64 bytes, Site site) {
    GPU_SIM_CALLED(site);
#ifdef GPU_SIM_CHECKED
    engine->hooks->touch(engine, at, bytes, READ, site.code);
#endif
}
GPU_SIM_UNCHECKED u32 shared_offset(const void* at) { return (u32)((const char*)at - engine->shared); }
GPU_SIM_UNCHECKED Index thread_index() { return engine->thread->index; }
GPU_SIM_UNCHECKED u32 lane() { return engine->thread->lane; }
GPU_SIM_UNCHECKED Index block_index() { return engine->block; }
GPU_SIM_UNCHECKED Index block_size() { return engine->block_size; }
GPU_SIM_UNCHECKED Index grid_size() { return engine->grid; }

// ---- Shared variables: a place in the block's shared memory, taken when the block first meets the variable.
static u32 shared_variables;
// `Tag` is a local type of the function that declares the variable, hence one for each instance of a template.
template <class Tag>
struct Variable {
    static const u32 id;
};
template <class Tag>
const u32 Variable<Tag>::id = shared_variables++;

template <class Tag, class T>
GPU_SIM_UNCHECKED T& shared_variable(Site site) {
    GPU_SIM_CALLED(site);
    Engine* e = engine;
    void* at = e->variables[Variable<Tag>::id];
    if (!at) at = e->hooks->shared(e, Variable<Tag>::id, sizeof(T), alignof(T), &site);
    return *(T*)at;
}
#define GPU_SIM_SHARED(T, name, count)  \
    struct name##_shared_variable {};   \
    typedef T name##_shared_type[count]; \
    name##_shared_type& name =          \
        gpu_sim::shared_variable<name##_shared_variable, name##_shared_type>({__FILE__, __LINE__, nullptr})
GPU_SIM_UNCHECKED void* dynamic_shared() { return engine->dynamic_shared; }
#define GPU_SIM_DYNAMIC_SHARED(T, name) T* name = (T*)gpu_sim::dynamic_shared()

// ---- Kernels: a list that the loader reads.
// VALUE and POINTER: an argument is the address of a value, or of a pointer. MEMORY: it is the address of memory, of at
// least so many bytes. NOTHING: the kernel takes no argument of this number.
enum Pass : u32 { VALUE, POINTER, MEMORY, NOTHING };
struct Parameter {
    u32 pass, bytes;
};
struct Kernel {
    const char* name;
    void (*entry)(void* const* arguments);
    const Parameter* parameters;
    u64 count;
    const Kernel* next;
    // Most threads of a block, 0 if it does not say.
    u32 threads;
};
static const Kernel* kernels;

template <class T>
struct Describe {
    static constexpr Parameter value = {VALUE, sizeof(T)};
};
template <class T>
struct Describe<T*> {
    static constexpr Parameter value = {POINTER, sizeof(T*)};
};

template <int... I>
struct Indices {};
template <int N, int... I>
struct UpTo : UpTo<N - 1, N - 1, I...> {};
template <int... I>
struct UpTo<0, I...> {
    typedef Indices<I...> Type;
};

template <auto F>
struct Entry;
template <class... A, void (*F)(A...)>
struct Entry<F> {
    static constexpr Parameter parameters[sizeof...(A) + 1] = {Describe<A>::value..., {0, 0}};
    template <int... I>
    GPU_SIM_UNCHECKED void call(void* const* arguments, Indices<I...>) {
        F(*(A*)arguments[I]...);
    }
    GPU_SIM_UNCHECKED void run(void* const* arguments) { call(arguments, typename UpTo<sizeof...(A)>::Type()); }
    Kernel kernel;
    explicit Entry(const char* name) : kernel{name, run, parameters, sizeof...(A), kernels, 0} { kernels = &kernel; }
};

template <int N>
struct Name;

}  // namespace gpu_sim

// GPU_SIM_KERNEL(name)(parameters) { … }: its expansion ends with the name of a macro, which takes the parameters that
// follow. The two find each other by the counter.
#define GPU_SIM_KERNEL(name) GPU_SIM_KERNEL_NAME(name, __COUNTER__) GPU_SIM_KERNEL_BODY
#define GPU_SIM_KERNEL_NAME(name, n) GPU_SIM_KERNEL_NAME_(name, n)
#define GPU_SIM_KERNEL_NAME_(name, n)                  \
    template <>                                        \
    struct gpu_sim::Name<n + 1> {                      \
        static constexpr const char* value = #name;    \
    };
#define GPU_SIM_KERNEL_BODY(...) GPU_SIM_KERNEL_BODY_(__COUNTER__, (__VA_ARGS__))
#define GPU_SIM_KERNEL_BODY_(n, parameters) GPU_SIM_KERNEL_BODY__(n, parameters)
#define GPU_SIM_KERNEL_BODY__(n, parameters)                                                       \
    GPU_SIM_BODY void gpu_sim_kernel_##n parameters;                                                    \
    static gpu_sim::Entry<&gpu_sim_kernel_##n> gpu_sim_entry_##n(gpu_sim::Name<n>::value);         \
    GPU_SIM_BODY void gpu_sim_kernel_##n parameters

// Symbols that the loader asks for.
#define GPU_SIM_EXPORT __attribute__((visibility("default"), no_sanitize("thread"), no_sanitize("undefined")))
extern "C" {
// Set by the linker: where this library lies in memory.
extern __attribute__((visibility("hidden"))) const char __ehdr_start[], _end[];
GPU_SIM_EXPORT const char* gpu_sim_begin() { return __ehdr_start; }
GPU_SIM_EXPORT const char* gpu_sim_end() { return _end; }
GPU_SIM_EXPORT const gpu_sim::Kernel* gpu_sim_kernels() { return gpu_sim::kernels; }
GPU_SIM_EXPORT gpu_sim::u32 gpu_sim_shared_variables() { return gpu_sim::shared_variables; }
GPU_SIM_EXPORT void gpu_sim_enter(gpu_sim::Engine* engine) { gpu_sim::engine = engine; }
}
