// Single values of a dense tensor in the order of their slots: marked, ranked and placed in one pass, as far
// as there is room for them.
#pragma once

#include "zenc_cuda/pack.h"
#include "zenc_cuda/scan.h"

namespace zenc {

// The slots that a warp takes at a time, a word a lane. Their units follow each other in runs, whose first
// ones are in shared memory.
template <class T>
class Window {
public:
    static constexpr u32 SLOTS = 64 * WARP, MOST_RUNS = SLOTS / LEAST_BLOCK;

    // From slot `begin` of a part on, which has `slots`.
    template <class Mapping>
    ZENC_DEVICE Window(const Geometry<Mapping>& geometry, u64 part, u64 begin, u64 slots, T* tensor,
                       u64* units)
        : tensor_(tensor),
          units_(units),
          slots_(begin < slots ? slots - begin : 0),
          shift_(Mapping::IS_IDENTITY ? 6 : run_shift(geometry.mapping)) {
        __syncwarp();
        for (u64 run = lane(); run < SLOTS >> shift_ && run << shift_ < slots_; run += WARP)
            units_[run] = geometry.mapping.unit(geometry.first_slot(part) + begin + (run << shift_));
        __syncwarp();
    }

    ZENC_DEVICE T* address(u64 slot) const {
        return tensor_ + units_[slot >> shift_] + (slot & low_mask(shift_));
    }

    // This lane's word: the values that are neither +0 nor -0. If it `clears`, each -0 becomes +0.
    ZENC_DEVICE u64 mark(bool clears) const {
        using Bits = typename Type<T>::Bits;
        constexpr u32 STEPS = 8;  // loads under way
        u64 word = 0;
        for (u32 first = 0; first < 64; first += STEPS) {
            Bits values[STEPS];
            for (u32 k = 0; k < STEPS; ++k) {
                const u32 slot = (first + k) * WARP + lane();
                values[k] = slot < slots_ ? *reinterpret_cast<const Bits*>(address(slot)) : Bits{0};
            }
            for (u32 k = 0; k < STEPS; ++k) {
                const u64 found = __ballot_sync(ALL_LANES, magnitude_bits(values[k]) != 0);
                if (lane() == (first + k) / 2) word |= found << ((first + k) % 2 * WARP);
                if (clears && values[k] != 0 && magnitude_bits(values[k]) == 0)
                    *reinterpret_cast<Bits*>(address((first + k) * WARP + lane())) = 0;
            }
        }
        return word;
    }

private:
    T* tensor_;
    u64* units_;
    u64 slots_;
    u32 shift_;
};

// Bitmap, ranks and values of all parts, as many values as parts[p].count, none where parts[p].values are
// null; each is divided by `divisor` first. Row y of the grid has part y, and counts in the words from work +
// y * work_words on, which are 0 before: 1 + tiles_of_words(slots) of them. If it `clears`, each -0 of the
// tensor becomes +0.
//
// Reads the tensor once, and what is placed again, from a cache; writes bitmap, ranks and values once.
template <class T, class Mapping>
ZENC_DEVICE void pack_values(const Geometry<Mapping>& geometry, const Segment* parts, T* tensor, i64 divisor,
                             bool clears, u64* work, i64 work_words) {
    ZENC_SHARED(u64, units, WARPS * Window<T>::MOST_RUNS);
    const auto by = static_cast<typename Type<T>::Sum>(divisor);
    for_each_segment(static_cast<i64>(geometry.parts), [&](u64 part) {
        const Segment to = parts[part];
        u64* const counter = work + part * static_cast<u64>(work_words);
        for (u64 tile; (tile = draw_tile(counter)) * THREADS < words_ranked(to.slots);) {
            const u64 first = tile * THREADS + threadIdx.x / WARP * WARP;
            const Window<T> window(geometry, part, 64 * first, to.slots, tensor,
                                   units + threadIdx.x / WARP * Window<T>::MOST_RUNS);
            const u64 word = window.mark(clears);
            WindowRows batch(first, word, store_words(to, first + lane(), word, tile, counter + 1));
            while (to.values != nullptr && batch.next() && batch.cut(to.count)) {
                if (!batch.has_row()) continue;
                const T value = *window.address(64 * (batch.word - first) + batch.bit);
                static_cast<T*>(to.values)[batch.first + lane()] =
                    divisor == 1 ? value : Type<T>::round(Type<T>::widen(value) / by);
            }
        }
        __syncthreads();  // the next part may draw
    });
}

}  // namespace zenc
