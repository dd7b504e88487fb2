// The kernels of collect.h for several numbers of hash functions.
#include "zenc_cuda/hash_insert.h"

using namespace zenc;

template <int K>
ZENC_DEVICE Geometry<HierarchicalHash<K>> geometry(i64 units, i64 parts, u64* tables) {
    const HierarchicalHash<K> mapping(0x5eed, 0, 0, static_cast<u64>(units), static_cast<u64>(parts), tables);
    return {units, 1, parts, mapping};
}

#define KERNELS(K)                                                                                        \
    ZENC_KERNEL(collect_units_##K,                                                                        \
                (i64 units, i64 parts, u64 * tables, const i64* ids, i64 n, u64* memory, i64 parallel,    \
                 i64 serial, const Segment* marked, i64* slots, u64* status)) {                           \
        collect_units(geometry<K>(units, parts, tables), ids, n, memory, parallel, serial, marked, slots, \
                      status);                                                                            \
    }                                                                                                     \
    ZENC_KERNEL(mark_collected_##K, (i64 units, i64 parts, u64 * tables, u64 * memory, i64 parallel,      \
                                     i64 serial, const Segment* marked, u64* work)) {                     \
        mark_collected(geometry<K>(units, parts, tables), memory, parallel, serial, marked, work);        \
    }

KERNELS(1)
KERNELS(2)
KERNELS(3)
KERNELS(16)
