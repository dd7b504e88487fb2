// The permutation in lanes, where there are some: the same slots and units as those of zenc/permutation.h.
#pragma once

#include "zenc/permutation.h"
#include "zenc_cpu/primitives/lanes.h"

namespace zenc {

// to [n] = the slots, or BACKWARD the units, of `of` [n], n a multiple of Mapping::LANES.
template <bool BACKWARD, class Mapping>
inline void move_in_loops(const Mapping& mapping, const u64* of, u64 n, u64* to) {
    for (u64 i = 0; i < n; i += Mapping::LANES)
        BACKWARD ? mapping.units_at(of + i, to + i) : mapping.slots(of + i, to + i);
}

template <bool BACKWARD, class Mapping>
inline void move_batch(const Mapping& mapping, const u64* of, u64 n, u64* to) {
    move_in_loops<BACKWARD>(mapping, of, n, to);
}

#if ZENC_LANES

// Numbers of 32 bits, one in each lane.
struct Numbers {
    static constexpr u64 NUMBER = 16;

    __m512i lanes;

    static Numbers all(u32 number) { return {_mm512_set1_epi32(static_cast<int>(number))}; }
    static Numbers load(const u64* from) {
        const __m256i halves[2] = {_mm512_maskz_cvtepi64_epi32(0xff, _mm512_loadu_si512(from)),
                                   _mm512_maskz_cvtepi64_epi32(0xff, _mm512_loadu_si512(from + 8))};
        Numbers made;
        __builtin_memcpy(&made.lanes, halves, sizeof halves);
        return made;
    }
    void store(u64* to) const {
        __m256i halves[2];
        __builtin_memcpy(halves, &lanes, sizeof lanes);
        _mm512_storeu_si512(to, _mm512_maskz_cvtepu32_epi64(0xff, halves[0]));
        _mm512_storeu_si512(to + 8, _mm512_maskz_cvtepu32_epi64(0xff, halves[1]));
    }

    friend Numbers operator+(Numbers a, Numbers b) { return {_mm512_add_epi32(a.lanes, b.lanes)}; }
    friend Numbers operator-(Numbers a, Numbers b) { return {_mm512_sub_epi32(a.lanes, b.lanes)}; }
    friend Numbers operator*(Numbers a, Numbers b) { return {_mm512_mullo_epi32(a.lanes, b.lanes)}; }
    friend Numbers operator^(Numbers a, Numbers b) { return {_mm512_xor_si512(a.lanes, b.lanes)}; }
    Numbers shifted(unsigned bits) const { return {_mm512_maskz_srli_epi32(0xffff, lanes, bits)}; }
    Numbers smaller(Numbers other) const { return {_mm512_maskz_min_epu32(0xffff, lanes, other.lanes)}; }
    u32 at_least(Numbers other) const { return _mm512_cmpge_epu32_mask(lanes, other.lanes); }

    // The upper 32 bits of the products.
    Numbers multiply_high(Numbers by) const {
        const __m512i even = _mm512_maskz_mul_epu32(0xff, lanes, by.lanes);
        const __m512i odd = _mm512_maskz_mul_epu32(0xff, _mm512_maskz_srli_epi64(0xff, lanes, 32), by.lanes);
        return {_mm512_mask_shuffle_epi32(odd, 0x5555, even, _MM_PERM_DDBB)};
    }
};

// Cells of a grid of 32-bit cells: the rounds of a permutation for 4 vectors at a time, so that no vector
// waits for the multiplications of another.
template <bool BACKWARD>
class Moving {
public:
    static constexpr u64 VECTORS = 4;
    static constexpr u64 CELLS = VECTORS * Numbers::NUMBER;

    explicit Moving(const Feistel& by)
        : by_(by),
          width_(Numbers::all(static_cast<u32>(by.columns.divisor))),
          height_(Numbers::all(by.rows)),
          reciprocal_(Numbers::all(static_cast<u32>(by.columns.reciprocal >> 32))) {}

    // to [CELLS] = the slots, or BACKWARD the units, of `of` [CELLS].
    void move(const u64* of, u64* to) const {
        Numbers row[VECTORS], column[VECTORS];
#pragma GCC unroll 4  // or they are in memory
        for (u64 v = 0; v < VECTORS; ++v) split(Numbers::load(of + v * Numbers::NUMBER), row[v], column[v]);
        for (int i = 0; i < Feistel::ROUNDS; ++i) {
            const int round = BACKWARD ? Feistel::ROUNDS - 1 - i : i;
            const Numbers first = Numbers::all(by_.keys[2 * round]);
            const Numbers second = Numbers::all(by_.keys[2 * round + 1]);
#pragma GCC unroll 4
            for (u64 v = 0; v < VECTORS; ++v)
                BACKWARD ? turn(row[v], column[v], second, height_) : turn(column[v], row[v], first, width_);
#pragma GCC unroll 4
            for (u64 v = 0; v < VECTORS; ++v)
                BACKWARD ? turn(column[v], row[v], first, width_) : turn(row[v], column[v], second, height_);
        }
#pragma GCC unroll 4
        for (u64 v = 0; v < VECTORS; ++v) join(row[v] * width_ + column[v], to + v * Numbers::NUMBER);
    }

private:
    // As Divider::quotient.
    void split(Numbers cell, Numbers& row, Numbers& column) const {
        const Numbers estimate = cell.multiply_high(reciprocal_);
        const Numbers left = cell - estimate * width_;
        const u32 more = left.at_least(width_);
        row.lanes = _mm512_mask_add_epi32(estimate.lanes, static_cast<__mmask16>(more), estimate.lanes,
                                          Numbers::all(1).lanes);
        column = left.smaller(left - width_);  // the wrong one wraps to a huge number
    }

    // `moved` goes by a pseudo-random number below `range` that depends on the other coordinate:
    // Feistel::draw.
    static void turn(Numbers& moved, Numbers other, Numbers key, Numbers range) {
        const Numbers once = (other ^ key) * Numbers::all(DRAW_FIRST);
        const Numbers hash = (once ^ once.shifted(15)) * Numbers::all(DRAW_SECOND);
        const Numbers by = hash.multiply_high(range);
        if (BACKWARD)
            moved = (moved - by).smaller(moved - by + range);
        else
            moved = (moved + by).smaller(moved + by - range);
    }

    // The cells beyond the count walk on, one by one: there are few.
    void join(Numbers cell, u64* to) const {
        cell.store(to);
        for (u32 beyond = cell.at_least(Numbers::all(static_cast<u32>(by_.count))); beyond != 0;
             beyond &= beyond - 1) {
            const u64 i = lowest_bit(beyond);
            to[i] = by_.moved<BACKWARD>(to[i]);
        }
    }

    const Feistel& by_;
    const Numbers width_;
    const Numbers height_;
    const Numbers reciprocal_;
};

template <bool BACKWARD>
inline void move_batch(const Permutation& mapping, const u64* of, u64 n, u64* to) {
    if (!mapping.blocks.is_small()) return move_in_loops<BACKWARD>(mapping, of, n, to);
    const Moving<BACKWARD> moving(mapping.blocks);
    mapping.move_blocks(of, n, to, [&](u64* numbers) {
        for (u64 i = 0; i < n; i += Moving<BACKWARD>::CELLS) moving.move(numbers + i, numbers + i);
    });
}

#endif

}  // namespace zenc
