// Barriers and what lanes of a warp do together.
#pragma once

#include "emulator/engine.h"

#define EMULATOR_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()

constexpr int warpSize = 32;

inline void __syncthreads(EMULATOR_PLACE) {
    emulator_barrier(file, line);
}
inline void __syncwarp(unsigned mask = ~0U, EMULATOR_PLACE) {
    emulator_warp(emulator::WarpOp::SYNC, mask, 0, 0, 32, file, line);
}

namespace emulator {

template <class T>
u64 word_of(T value) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
    u64 word = 0;
    __builtin_memcpy(&word, &value, sizeof value);
    return word;
}

template <class T>
T shuffle(WarpOp op, unsigned mask, T value, int operand, int width, const char* file, int line) {
    const u64 word = emulator_warp(op, mask, word_of(value), operand, width, file, line);
    T moved;
    __builtin_memcpy(&moved, &word, sizeof moved);
    return moved;
}

}  // namespace emulator

#define EMULATOR_SHUFFLE(name, op, Operand)                                                                 \
    template <class T>                                                                                      \
    T name(unsigned mask, T value, Operand operand, int width = 32, EMULATOR_PLACE) {                       \
        return emulator::shuffle(emulator::WarpOp::op, mask, value, static_cast<int>(operand), width, file, \
                                 line);                                                                     \
    }

EMULATOR_SHUFFLE(__shfl_sync, SHUFFLE, int)
EMULATOR_SHUFFLE(__shfl_up_sync, UP, unsigned)
EMULATOR_SHUFFLE(__shfl_down_sync, DOWN, unsigned)
EMULATOR_SHUFFLE(__shfl_xor_sync, XOR, int)

#undef EMULATOR_SHUFFLE

inline unsigned __ballot_sync(unsigned mask, int predicate, EMULATOR_PLACE) {
    return static_cast<unsigned>(
        emulator_warp(emulator::WarpOp::BALLOT, mask, predicate != 0, 0, 32, file, line));
}
inline int __any_sync(unsigned mask, int predicate, EMULATOR_PLACE) {
    return static_cast<int>(emulator_warp(emulator::WarpOp::ANY, mask, predicate != 0, 0, 32, file, line));
}
inline int __all_sync(unsigned mask, int predicate, EMULATOR_PLACE) {
    return static_cast<int>(emulator_warp(emulator::WarpOp::ALL, mask, predicate != 0, 0, 32, file, line));
}

template <class T>
unsigned __match_any_sync(unsigned mask, T value, EMULATOR_PLACE) {
    return static_cast<unsigned>(
        emulator_warp(emulator::WarpOp::MATCH, mask, emulator::word_of(value), 0, 32, file, line));
}

// Reductions of a warp, which need a GPU of generation 8.0.
#define EMULATOR_REDUCE(name, op)                                                                          \
    inline unsigned name(unsigned mask, unsigned value, EMULATOR_PLACE) {                                  \
        return static_cast<unsigned>(emulator_warp(emulator::WarpOp::op, mask, value, 0, 32, file, line)); \
    }

EMULATOR_REDUCE(__reduce_add_sync, SUM)
EMULATOR_REDUCE(__reduce_min_sync, MIN)
EMULATOR_REDUCE(__reduce_max_sync, MAX)
EMULATOR_REDUCE(__reduce_and_sync, AND)
EMULATOR_REDUCE(__reduce_or_sync, OR)
EMULATOR_REDUCE(__reduce_xor_sync, EXCLUSIVE_OR)

#undef EMULATOR_REDUCE
#undef EMULATOR_PLACE
