// Parts of a tensor, as kernels get them.
#include <cstring>

#include "zenc/geometry.h"

using namespace zenc;

// Returns the bytes of a Partition.
extern "C" u64 partition(u64 seed, u64 units, u64 width, u64 parts, u64 largest, u64 block, u64* tables,
                         void* out) {
    const Partition made(units, width, parts, largest, Permutation(seed, units, block), HashFunction(seed, 0),
                         tables);
    std::memcpy(out, &made, sizeof made);
    return sizeof made;
}
