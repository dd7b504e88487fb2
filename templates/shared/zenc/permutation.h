// The mappings unit -> slot: bijections on [0, units) with a computed inverse, the same on every rank and
// target. Feistel permutes numbers; Permutation moves blocks of units by it.
//
// The network is a generalised one over [0, columns) x [0, rows), columns = ceil(sqrt(count)) and
// rows = ceil(count / columns). The grid has fewer than `columns` cells too many, so that cycle walking
// (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002) is needed once in sqrt(count)
// evaluations; a Feistel network over a power of two would walk up to three steps for every number. See
// docs/adr/0003-permutation.md.
#pragma once

#include "zenc/mix.h"

namespace zenc {

// The smallest r with r * r >= x, for x <= 2^62.
ZENC_HD inline u64 ceil_square_root(u64 x) {
    u64 root = 0;
    for (u64 bit = 1ULL << 31; bit != 0; bit >>= 1) {
        const u64 trial = root + bit;
        if (trial * trial < x) root = trial;
    }
    return x == 0 ? 0 : root + 1;
}

// Slot = unit: the parts are ranges of the tensor.
struct Contiguous {
    static constexpr bool IS_IDENTITY = true;
    static constexpr bool HAS_TABLES = false;

    static constexpr int LANES = 64;

    ZENC_HD u64 block() const { return 1; }
    ZENC_HD u64 slot(u64 unit) const { return unit; }
    ZENC_HD u64 unit(u64 slot) const { return slot; }
    ZENC_HD void slots(const u64* of, u64* slots_) const { copy(of, slots_); }
    ZENC_HD void units_at(const u64* of, u64* units_) const { copy(of, units_); }

private:
    ZENC_HD static void copy(const u64* from, u64* to) {
        for (int i = 0; i < LANES; ++i) to[i] = from[i];
    }
};

// A keyed pseudo-random permutation of the numbers below `count` <= 2^62. All arithmetic of the rounds has 32
// bits: it is cheap on a GPU.
struct Feistel {
    static constexpr int ROUNDS = PERMUTATION_ROUNDS;  // each moves both halves
    static constexpr int LANES = 64;

    u64 count;
    Divider columns;
    u32 rows;
    u32 keys[2 * ROUNDS];

    // The keys depend on the count too: tensors of different sizes are permuted independently.
    ZENC_HD Feistel(u64 seed, u64 count_)
        : count(count_),
          columns(ceil_square_root(count_)),
          rows(static_cast<u32>(ceil_divide(count_, columns.divisor))) {
        u64 state = mix(seed) ^ mix(count_ + GOLDEN);
        for (u32& key : keys) key = static_cast<u32>(mix(state += GOLDEN) >> 32);
    }

    // The image of a number below count, or BACKWARD its origin.
    template <bool BACKWARD>
    ZENC_HD u64 moved(u64 number) const {
        do {
            u32 row = static_cast<u32>(columns.quotient(number));
            u32 column = static_cast<u32>(number - row * columns.divisor);
            for (int round = 0; round < ROUNDS; ++round) move<BACKWARD, false>(row, column, round);
            number = row * columns.divisor + column;
        } while (number >= count);
        return number;
    }

    // Moves LANES numbers at once, for processors with vectors: no lane waits for another, and the rounds
    // have no branch. Where the grid has more than 2^16 columns, one by one.
    template <bool BACKWARD>
    ZENC_HD void move_all(const u64* of, u64* to) const {
        if (count > 0xffff0000) {
            for (int i = 0; i < LANES; ++i) to[i] = moved<BACKWARD>(of[i]);
            return;
        }
        const u32 width = static_cast<u32>(columns.divisor);
        u32 row[LANES], column[LANES];
        for (int i = 0; i < LANES; ++i) {
            row[i] = columns.quotient(static_cast<u32>(of[i]));
            column[i] = static_cast<u32>(of[i]) - row[i] * width;
        }
        for (int round = 0; round < ROUNDS; ++round)
            for (int i = 0; i < LANES; ++i) move<BACKWARD, true>(row[i], column[i], round);
        u32 greatest = 0;
        for (int i = 0; i < LANES; ++i) {
            const u32 cell = row[i] * width + column[i];
            greatest = greatest < cell ? cell : greatest;
            to[i] = cell;
        }
        if (greatest >= count)
            for (int i = 0; i < LANES; ++i)
                if (to[i] >= count) to[i] = moved<BACKWARD>(to[i]);
    }

private:
    ZENC_HD static u32 smaller(u32 a, u32 b) { return a < b ? a : b; }

    // (a + b) mod range and (a - b) mod range for a, b < range <= 2^31: the wrong candidate wraps to a huge
    // number. A branch here would be mispredicted every other time.
    ZENC_HD static u32 add(u32 a, u32 b, u32 range) { return smaller(a + b, a + b - range); }
    ZENC_HD static u32 subtract(u32 a, u32 b, u32 range) { return smaller(a - b, a - b + range); }

    // Moves a cell by one round; BACKWARD undoes one, counted from the last.
    template <bool BACKWARD, bool SMALL>
    ZENC_HD void move(u32& row, u32& column, int round) const {
        const u32 width = static_cast<u32>(columns.divisor);
        if (BACKWARD) {
            round = ROUNDS - 1 - round;
            row = subtract(row, draw<SMALL>(column, keys[2 * round + 1], rows), rows);
            column = subtract(column, draw<SMALL>(row, keys[2 * round], width), width);
        } else {
            column = add(column, draw<SMALL>(row, keys[2 * round], width), width);
            row = add(row, draw<SMALL>(column, keys[2 * round + 1], rows), rows);
        }
    }
};

// Slot = the unit's place in a block, whose number is permuted. Blocks are a power of two of units, from a
// multiple of it on; what is left of the units behind the last whole block stays where it is.
struct Permutation {
    static constexpr bool IS_IDENTITY = false;
    static constexpr bool HAS_TABLES = false;
    static constexpr int LANES = Feistel::LANES;

    Feistel blocks;
    u64 shift;

    ZENC_HD Permutation(u64 seed, u64 units, u64 block) : blocks(seed, units / block), shift(0) {
        while (1ULL << shift < block) ++shift;
    }

    ZENC_HD u64 block() const { return 1ULL << shift; }
    ZENC_HD u64 slot(u64 unit) const { return moved<false>(unit); }
    ZENC_HD u64 unit(u64 slot) const { return moved<true>(slot); }

    // LANES units or slots at once.
    ZENC_HD void slots(const u64* of, u64* slots_) const { move_all<false>(of, slots_); }
    ZENC_HD void units_at(const u64* of, u64* units_) const { move_all<true>(of, units_); }

private:
    template <bool BACKWARD>
    ZENC_HD u64 moved(u64 number) const {
        if (number >> shift >= blocks.count) return number;
        return blocks.moved<BACKWARD>(number >> shift) << shift | (number & (block() - 1));
    }

    template <bool BACKWARD>
    ZENC_HD void move_all(const u64* of, u64* to) const {
        u64 numbers[LANES];
        const u64 last = blocks.count == 0 ? 0 : blocks.count - 1;
        for (int i = 0; i < LANES; ++i) numbers[i] = of[i] >> shift < last ? of[i] >> shift : last;
        if (blocks.count != 0) blocks.move_all<BACKWARD>(numbers, numbers);
        for (int i = 0; i < LANES; ++i)
            to[i] = of[i] >> shift < blocks.count ? numbers[i] << shift | (of[i] & (block() - 1)) : of[i];
    }
};

}  // namespace zenc
