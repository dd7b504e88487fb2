// The places of marked slots: the rank of a slot's bit among those of its part.
#pragma once

#include "zenc_cpu/primitives/lane_geometry.h"
#include "zenc_cpu/primitives/memory.h"

namespace zenc {

// Where the marked slots of one call are: its bitmap, its ranks, and for each part where its rows begin, less
// the rows of all parts before it. A row that is counted over all parts finds its place by one addition.
// These origins are integers, since such an address may lie outside of every array.
template <class Mapping>
class Places {
public:
    template <class T>
    Places(const Geometry<Mapping>& geometry, const u64* bitmap, const u64* before, T* const* part_outs)
        : geometry_(geometry), bitmap_(bitmap), before_(before), origins_(geometry.parts) {
        if (failed() || geometry.part_words == 0) return;
        const u64 row_bytes = geometry.width * sizeof(T);
        for (u64 part = 0; part < geometry.parts; ++part)
            origins_[part] =
                reinterpret_cast<u64>(part_outs[part]) - before[part * geometry.part_words] * row_bytes;
    }

    bool failed() const { return origins_.failed(); }

    // Where the values of the slots from a marked one on are, which has number `bit` in the bitmap.
    template <class T>
    T* values_of(u64 part, u64 bit) const {
        const u64 row = before_[bit / 64] + population(bitmap_[bit / 64] & low_mask(bit % 64));
        return reinterpret_cast<T*>(origins_[part] + row * sizeof(T));
    }

    // The rows of n <= BATCH slots among all marked units, and the origins of their parts. Returns false if a
    // slot is out of range or has no bit.
    ZENC_SHARED_CODE bool find(const i64* slots, u64 n, u64* __restrict rows, u64* __restrict origins) const {
        const u64* const found = reinterpret_cast<const u64*>(slots);  // a negative slot is a huge one
        u64 bits[BATCH];
        u64 greatest = 0;
        for (u64 i = 0; i < n; ++i) greatest = greatest < found[i] ? found[i] : greatest;
        if (greatest >= geometry_.end_of_slots()) return false;
        locate(geometry_, found, n, origins, bits);
        u64 marked = ~0ULL;
        for (u64 i = 0; i < n; ++i) {
            const u64 below = bitmap_[bits[i] / 64]
                              << (63 - bits[i] % 64);  // the bit itself comes to the top
            marked &= below;
            rows[i] = before_[bits[i] / 64] + population(below) - 1;
        }
        for (u64 i = 0; i < n; ++i) origins[i] = origins_[origins[i]];
        return marked >> 63 != 0;
    }

private:
    const Geometry<Mapping>& geometry_;
    const u64* bitmap_;
    const u64* before_;
    Scratch<u64> origins_;
};

template <class T>
inline T* row_at(u64 origin, u64 row, u64 width) {
    return reinterpret_cast<T*>(origin + row * width * sizeof(T));
}

}  // namespace zenc
