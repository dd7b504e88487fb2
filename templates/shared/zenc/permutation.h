// The mappings unit -> slot: bijections on [0, units) with a computed inverse, the same on every rank and
// target.
//
// Permutation is a generalised Feistel network over [0, columns) x [0, rows), columns = ceil(sqrt(units)) and
// rows = ceil(units / columns). The grid has fewer than `columns` cells too many, so that cycle walking
// (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002) is needed once in sqrt(units)
// evaluations; a Feistel network over a power of two would walk up to three steps for every unit. See
// docs/adr/0003-permutation.md.
#pragma once

#include "zenc/config.h"

namespace zenc {

// The finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
ZENC_HD inline u64 mix(u64 x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

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

    ZENC_HD u64 slot(u64 unit) const { return unit; }
    ZENC_HD u64 unit(u64 slot) const { return slot; }
};

// Slot = a keyed pseudo-random permutation of the unit.
struct Permutation {
    static constexpr bool IS_IDENTITY = false;
    // Each round moves both halves. 3 pass every balance test that we have; the fourth is a margin (ADR
    // 0003).
    static constexpr int ROUNDS = 4;

    u64 units;
    Divider columns;
    u64 rows;
    u64 keys[2 * ROUNDS];

    // units <= 2^62. The keys depend on units too: tensors of different sizes are permuted independently.
    ZENC_HD Permutation(u64 seed, u64 units_)
        : units(units_), columns(ceil_square_root(units_)), rows(ceil_divide(units_, columns.divisor)) {
        u64 state = mix(seed) ^ mix(units_ + 0x9e3779b97f4a7c15ULL);
        for (u64& key : keys) key = mix(state += 0x9e3779b97f4a7c15ULL);
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

private:
    // A pseudo-random number in [0, range), by multiply-shift (Lemire, TOMACS 2019): bias below range / 2^64.
    ZENC_HD static u64 draw(u64 x, u64 key, u64 range) {
        u64 hash = (x ^ key) * 0x9fb21c651e98df25ULL;
        hash = (hash ^ (hash >> 32)) * 0xd6e8feb86659fd93ULL;
        return multiply_high(hash, range);
    }

    ZENC_HD static u64 add(u64 a, u64 b, u64 range) {
        const u64 sum = a + b;
        return sum >= range ? sum - range : sum;
    }

    ZENC_HD static u64 subtract(u64 a, u64 b, u64 range) { return a >= b ? a - b : a + range - b; }

    ZENC_HD u64 forward(u64 cell) const {
        u64 row = columns.quotient(cell);
        u64 column = cell - row * columns.divisor;
        for (int round = 0; round < ROUNDS; ++round) {
            column = add(column, draw(row, keys[2 * round], columns.divisor), columns.divisor);
            row = add(row, draw(column, keys[2 * round + 1], rows), rows);
        }
        return row * columns.divisor + column;
    }

    ZENC_HD u64 backward(u64 cell) const {
        u64 row = columns.quotient(cell);
        u64 column = cell - row * columns.divisor;
        for (int round = ROUNDS - 1; round >= 0; --round) {
            row = subtract(row, draw(column, keys[2 * round + 1], rows), rows);
            column = subtract(column, draw(row, keys[2 * round], columns.divisor), columns.divisor);
        }
        return row * columns.divisor + column;
    }
};

}  // namespace zenc
