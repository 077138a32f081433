// Operations of a warp's lanes together, and atomic operations, in the words of no kernel language.
namespace gpu_sim {

// ---- Collectives of a warp. Those that synchronise alone order what lanes read and write; the others do not (CUDA C++
// Programming Guide, "Warp vote functions" and "Warp shuffle functions"; the Metal Shading Language Specification
// speaks of memory in its barriers only).
GPU_SIM_UNCHECKED void nothing(Engine*, void* const*, u32) {}

template <class T>
struct Shuffle {
    T value, result;
    int source;
    Site site;
};
template <class T>
GPU_SIM_UNCHECKED void shuffle_all(Engine*, void* const* lanes, u32 present) {
    for (u32 left = present; left; left &= left - 1) {
        Shuffle<T>& mine = *(Shuffle<T>*)lanes[__builtin_ctz(left)];
        if (!(present >> mine.source & 1)) fail("a shuffle reads from a lane that does not take part in it", mine.site);
        mine.result = ((const Shuffle<T>*)lanes[mine.source])->value;
    }
}

struct Vote {
    u32 predicate, result;
};
GPU_SIM_UNCHECKED void vote_all(Engine*, void* const* lanes, u32 present) {
    u32 result = 0;
    for (u32 left = present; left; left &= left - 1) {
        u32 lane = __builtin_ctz(left);
        result |= (u32)(((const Vote*)lanes[lane])->predicate != 0) << lane;
    }
    for (u32 left = present; left; left &= left - 1) ((Vote*)lanes[__builtin_ctz(left)])->result = result;
}

template <class T>
struct Match {
    T value;
    u32 result;
};
template <class T>
GPU_SIM_UNCHECKED void match_all(Engine*, void* const* lanes, u32 present) {
    for (u32 left = present; left; left &= left - 1) {
        Match<T>& mine = *(Match<T>*)lanes[__builtin_ctz(left)];
        mine.result = 0;
        for (u32 other = present; other; other &= other - 1) {
            u32 lane = __builtin_ctz(other);
            mine.result |= (u32)(((const Match<T>*)lanes[lane])->value == mine.value) << lane;
        }
    }
}

template <class T>
struct Reduce {
    T value, result;
};
// Lane i takes lane i + 16, then i + 8, …: a sum of floats is that of a tree, as devices make it.
template <class T, T (*F)(T, T)>
GPU_SIM_UNCHECKED void reduce_all(Engine*, void* const* lanes, u32 present) {
    T sums[32];
    u32 has = present;
    for (u32 left = present; left; left &= left - 1)
        sums[__builtin_ctz(left)] = ((const Reduce<T>*)lanes[__builtin_ctz(left)])->value;
    for (u32 half = 16; half; half /= 2) {
        for (u32 i = 0; i < half; i++) {
            if (!(has >> (i + half) & 1)) continue;
            sums[i] = has >> i & 1 ? F(sums[i], sums[i + half]) : sums[i + half];
            has |= 1u << i;
        }
    }
    for (u32 left = present; left; left &= left - 1) ((Reduce<T>*)lanes[__builtin_ctz(left)])->result = sums[0];
}
template <class T> static T sum(T a, T b) { return a + b; }
template <class T> static T smaller(T a, T b) { return b < a ? b : a; }
template <class T> static T larger(T a, T b) { return a < b ? b : a; }
template <class T> static T both(T a, T b) { return a & b; }
template <class T> static T either(T a, T b) { return a | b; }
template <class T> static T differ(T a, T b) { return a ^ b; }

// ---- Atomics: a launch is run by one thread of the host, which is never interrupted inside these.
template <class T>
GPU_SIM_UNCHECKED void touch_atomic(T* at, Touch touch = ATOMIC) {
#ifdef GPU_SIM_CHECKED
    engine->hooks->touch(engine, at, sizeof(T), touch, __builtin_return_address(0));
#endif
}
template <class T, T (*F)(T, T)>
GPU_SIM_UNCHECKED T change(T* at, T value) {
    T old = *at;
    *at = F(old, value);
    return old;
}
template <class T>
GPU_SIM_UNCHECKED T change_if(T* at, T expected, T value) {
    T old = *at;
    if (old == expected) *at = value;
    return old;
}
template <class T> static T first(T a, T) { return a; }
template <class T> static T second(T, T b) { return b; }
template <class T> static T difference(T a, T b) { return a - b; }

}  // namespace gpu_sim
