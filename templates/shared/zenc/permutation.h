// The mappings unit -> slot: bijections on [0, units) with a computed inverse, the same on every rank and
// target.
//
// Permutation is a generalised Feistel network over [0, columns) x [0, rows), columns = ceil(sqrt(units)) and
// rows = ceil(units / columns). The grid has fewer than `columns` cells too many, so that cycle walking
// (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002) is needed once in sqrt(units)
// evaluations; a Feistel network over a power of two would walk up to three steps for every unit. See
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

    ZENC_HD u64 slot(u64 unit) const { return unit; }
    ZENC_HD u64 unit(u64 slot) const { return slot; }
    ZENC_HD void slots(const u64* of, u64* slots_) const { copy(of, slots_); }
    ZENC_HD void units_at(const u64* of, u64* units_) const { copy(of, units_); }

private:
    ZENC_HD static void copy(const u64* from, u64* to) {
        for (int i = 0; i < LANES; ++i) to[i] = from[i];
    }
};

// Slot = a keyed pseudo-random permutation of the unit. All arithmetic of the rounds has 32 bits: it is cheap
// on a GPU.
struct Permutation {
    static constexpr bool IS_IDENTITY = false;
    static constexpr bool HAS_TABLES = false;
    static constexpr int ROUNDS = PERMUTATION_ROUNDS;  // each moves both halves

    u64 units;
    Divider columns;
    u32 rows;
    u32 keys[2 * ROUNDS];

    // units <= 2^62. The keys depend on units too: tensors of different sizes are permuted independently.
    ZENC_HD Permutation(u64 seed, u64 units_)
        : units(units_),
          columns(ceil_square_root(units_)),
          rows(static_cast<u32>(ceil_divide(units_, columns.divisor))) {
        u64 state = mix(seed) ^ mix(units_ + GOLDEN);
        for (u32& key : keys) key = static_cast<u32>(mix(state += GOLDEN) >> 32);
    }

    ZENC_HD u64 slot(u64 unit) const {
        do unit = forward(unit);
        while (unit >= units);
        return unit;
    }

    ZENC_HD u64 unit(u64 slot) const {
        do slot = backward(slot);
        while (slot >= units);
        return slot;
    }

    // LANES units at once, for processors with vectors: no lane waits for another, and the rounds have no
    // branch.
    static constexpr int LANES = 64;

    ZENC_HD void slots(const u64* of, u64* slots_) const { map<false>(of, slots_); }
    ZENC_HD void units_at(const u64* of, u64* units_) const { map<true>(of, units_); }

    // Whether the grid has at most 2^16 columns and rows, and all of its cells 32 bits.
    ZENC_HD bool is_small() const { return units <= 0xffff0000; }

private:
    template <bool BACKWARD>
    ZENC_HD void map(const u64* of, u64* to) const {
        if (is_small())
            move_all<BACKWARD, u32>(of, to);
        else
            move_all<BACKWARD, u64>(of, to);
    }

    template <bool BACKWARD, class Cell>
    ZENC_HD void move_all(const u64* of, u64* to) const {
        u32 row[LANES];
        u32 column[LANES];
        const u32 width = static_cast<u32>(columns.divisor);
        for (int i = 0; i < LANES; ++i) {
            const Cell cell = static_cast<Cell>(of[i]);
            row[i] = static_cast<u32>(columns.quotient(cell));
            column[i] = static_cast<u32>(cell) - row[i] * width;
        }
        for (int round = 0; round < ROUNDS; ++round)
            move<BACKWARD, sizeof(Cell) == 4>(row, column, BACKWARD ? ROUNDS - 1 - round : round);
        Cell greatest = 0;
        for (int i = 0; i < LANES; ++i) {
            const Cell cell = static_cast<Cell>(row[i]) * width + column[i];
            greatest = greatest < cell ? cell : greatest;
            to[i] = cell;
        }
        if (greatest >= units)
            for (int i = 0; i < LANES; ++i)
                if (to[i] >= units) to[i] = BACKWARD ? unit(to[i]) : slot(to[i]);
    }

    // A pseudo-random number in [0, range): the multiplications of Wellons' lowbias32
    // (nullprogram.com/blog/2018/07/31), then multiply-shift (Lemire, TOMACS 2019), which looks at the upper
    // bits only. A bias below range / 2^32 remains within the grid, where parts are far coarser.
    ZENC_HD static u32 draw(u32 x, u32 key, u32 range) {
        u32 hash = (x ^ key) * DRAW_FIRST;
        hash = (hash ^ (hash >> 15)) * DRAW_SECOND;
        return static_cast<u32>((static_cast<u64>(hash) * range) >> 32);
    }

    // The same for range <= 2^16, in products of 32 bits, which more processors have for all lanes.
    ZENC_HD static u32 draw_small(u32 x, u32 key, u32 range) {
        u32 hash = (x ^ key) * DRAW_FIRST;
        hash = (hash ^ (hash >> 15)) * DRAW_SECOND;
        return ((hash >> 16) * range + ((hash & 0xffff) * range >> 16)) >> 16;
    }

    ZENC_HD static u32 smaller(u32 a, u32 b) { return a < b ? a : b; }

    // (a + b) mod range and (a - b) mod range for a, b < range <= 2^31: the wrong candidate wraps to a huge
    // number. A branch here would be mispredicted every other time.
    ZENC_HD static u32 add(u32 a, u32 b, u32 range) { return smaller(a + b, a + b - range); }
    ZENC_HD static u32 subtract(u32 a, u32 b, u32 range) { return smaller(a - b, a - b + range); }

    template <bool BACKWARD, bool SMALL>
    ZENC_HD void move(u32* row, u32* column, int round) const {
        const u32 width = static_cast<u32>(columns.divisor);
        const u32 height = rows;
        const u32 first = keys[2 * round];
        const u32 second = keys[2 * round + 1];
        const auto draw_of = SMALL ? draw_small : draw;
        for (int i = 0; i < LANES; ++i) {
            if (BACKWARD) {
                row[i] = subtract(row[i], draw_of(column[i], second, height), height);
                column[i] = subtract(column[i], draw_of(row[i], first, width), width);
            } else {
                column[i] = add(column[i], draw_of(row[i], first, width), width);
                row[i] = add(row[i], draw_of(column[i], second, height), height);
            }
        }
    }

    ZENC_HD u64 forward(u64 cell) const {
        const u32 width = static_cast<u32>(columns.divisor);
        u32 row = static_cast<u32>(columns.quotient(cell));
        u32 column = static_cast<u32>(cell - row * columns.divisor);
        for (int round = 0; round < ROUNDS; ++round) {
            column = add(column, draw(row, keys[2 * round], width), width);
            row = add(row, draw(column, keys[2 * round + 1], rows), rows);
        }
        return row * columns.divisor + column;
    }

    ZENC_HD u64 backward(u64 cell) const {
        const u32 width = static_cast<u32>(columns.divisor);
        u32 row = static_cast<u32>(columns.quotient(cell));
        u32 column = static_cast<u32>(cell - row * columns.divisor);
        for (int round = ROUNDS - 1; round >= 0; --round) {
            row = subtract(row, draw(column, keys[2 * round + 1], rows), rows);
            column = subtract(column, draw(row, keys[2 * round], width), width);
        }
        return row * columns.divisor + column;
    }
};

}  // namespace zenc
