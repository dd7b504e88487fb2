// Bulk copies between global and shared memory, as templates/cuda/zenc_cuda/bulk.h asks for them: begun by
// one thread, and delivered as late as they may be, or with a seed at once or then.
#pragma once

#include "emulator/engine.h"

#define EMULATOR_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()

namespace emulator {

// The bytes themselves: here, so that sanitizers see them as any other access of the kernel.
inline void copy_vectors(void* to, const void* from, u64 bytes) {
    for (u64 i = 0; i < bytes / sizeof(uint4); ++i)
        static_cast<uint4*>(to)[i] = static_cast<const uint4*>(from)[i];
}

}  // namespace emulator

inline void bulk_begin(unsigned long long* barrier, EMULATOR_PLACE) {
    emulator_bulk_begin(barrier, file, line);
}
inline void bulk_load(void* to, const void* from, unsigned bytes, unsigned long long* barrier,
                      EMULATOR_PLACE) {
    emulator_bulk_load({to, from, bytes, emulator::copy_vectors}, barrier, file, line);
}
inline void bulk_wait(unsigned long long* barrier, unsigned parity, EMULATOR_PLACE) {
    emulator_bulk_wait(barrier, parity, file, line);
}
inline void bulk_store(void* to, const void* from, unsigned bytes, EMULATOR_PLACE) {
    emulator_bulk_store({to, from, bytes, emulator::copy_vectors}, file, line);
}
inline void bulk_wait_for_earlier_stores() {
    emulator_bulk_wait_for_stores(1);
}
inline void bulk_wait_for_stores() {
    emulator_bulk_wait_for_stores(0);
}

#undef EMULATOR_PLACE
