// Checked mode: what the compiler calls because of -fsanitize=thread (before each load and store) and because of the
// checks of undefined behaviour. Nothing of the compiler's own run-time libraries is linked.
#ifdef GPU_SIM_CHECKED
namespace gpu_sim {

__attribute__((no_sanitize("thread"), no_sanitize("undefined"), always_inline)) static inline void touched(
    const void* at, u64 bytes, Touch touch, const void* code) {
    Engine* e = engine;
    // Before the first launch the initialisers run; a thread's own memory is its own affair, until products write it.
    if (!e || ((u64)at - (u64)e->stacks < e->stack_bytes && !e->watched)) return;
    e->hooks->touch(e, at, bytes, touch, code);
}

// The compiler's description of a place, as laid out by GCC and Clang for their libubsan.
struct Source {
    const char* file;
    u32 line, column;
};
GPU_SIM_UNCHECKED void undefined(u32 kind, const char* message, const Source* source, const void* code) {
    Site site = {source->file, source->line, code};
    engine->hooks->fail(engine, kind, message, &site);
}

}  // namespace gpu_sim

#define GPU_SIM_HOOK __attribute__((no_sanitize("thread"), no_sanitize("undefined"), visibility("hidden"), used))
extern "C" {
#define GPU_SIM_ACCESS(bytes)                                                                                           \
    GPU_SIM_HOOK void __tsan_read##bytes(void* at) { gpu_sim::touched(at, bytes, gpu_sim::READ, __builtin_return_address(0)); } \
    GPU_SIM_HOOK void __tsan_write##bytes(void* at) { gpu_sim::touched(at, bytes, gpu_sim::WRITE, __builtin_return_address(0)); }
GPU_SIM_ACCESS(1)
GPU_SIM_ACCESS(2)
GPU_SIM_ACCESS(4)
GPU_SIM_ACCESS(8)
GPU_SIM_ACCESS(16)
#define GPU_SIM_UNALIGNED(bytes)                                                                                        \
    GPU_SIM_HOOK void __tsan_unaligned_read##bytes(void* at) { gpu_sim::touched(at, bytes, gpu_sim::READ, __builtin_return_address(0)); } \
    GPU_SIM_HOOK void __tsan_unaligned_write##bytes(void* at) { gpu_sim::touched(at, bytes, gpu_sim::WRITE, __builtin_return_address(0)); }
GPU_SIM_UNALIGNED(2)
GPU_SIM_UNALIGNED(4)
GPU_SIM_UNALIGNED(8)
GPU_SIM_UNALIGNED(16)
GPU_SIM_HOOK void __tsan_read_range(void* at, unsigned long bytes) {
    gpu_sim::touched(at, bytes, gpu_sim::READ, __builtin_return_address(0));
}
GPU_SIM_HOOK void __tsan_write_range(void* at, unsigned long bytes) {
    gpu_sim::touched(at, bytes, gpu_sim::WRITE, __builtin_return_address(0));
}
GPU_SIM_HOOK void __tsan_func_entry(void*) {}
GPU_SIM_HOOK void __tsan_func_exit() {}
GPU_SIM_HOOK void __tsan_init() {}

// Clang copies structs by these and instruments only the libraries' own.
GPU_SIM_HOOK void* memcpy(void* to, const void* from, unsigned long bytes) {
    gpu_sim::touched(from, bytes, gpu_sim::READ, __builtin_return_address(0));
    gpu_sim::touched(to, bytes, gpu_sim::WRITE, __builtin_return_address(0));
    void* at = to;
    asm volatile("rep movsb" : "+D"(at), "+S"(from), "+c"(bytes) : : "memory");
    return to;
}
GPU_SIM_HOOK void* memset(void* to, int value, unsigned long bytes) {
    gpu_sim::touched(to, bytes, gpu_sim::WRITE, __builtin_return_address(0));
    void* at = to;
    asm volatile("rep stosb" : "+D"(at), "+c"(bytes) : "a"(value) : "memory");
    return to;
}

// The kinds are those of `hooks->fail`.
GPU_SIM_HOOK void __ubsan_handle_type_mismatch_v1(gpu_sim::Source* source, unsigned long) {
    gpu_sim::undefined(1, "an address is not aligned as its type wants", source, __builtin_return_address(0));
}
GPU_SIM_HOOK void __ubsan_handle_out_of_bounds(gpu_sim::Source* source, unsigned long) {
    gpu_sim::undefined(2, "an index is outside of its array", source, __builtin_return_address(0));
}
GPU_SIM_HOOK void __ubsan_handle_divrem_overflow(gpu_sim::Source* source, unsigned long, unsigned long) {
    gpu_sim::undefined(3, "an integer is divided by zero, or the quotient does not fit", source, __builtin_return_address(0));
}
GPU_SIM_HOOK void __ubsan_handle_shift_out_of_bounds(gpu_sim::Source* source, unsigned long, unsigned long) {
    gpu_sim::undefined(3, "a shift by more bits than there are", source, __builtin_return_address(0));
}
}
#endif
