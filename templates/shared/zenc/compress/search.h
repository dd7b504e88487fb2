// Searches for the k greatest of many units, digit by digit: of their magnitudes, and then of the numbers of
// those that are equal, of which the first are taken. What launchers and kernels of GPUs both know of them.
#pragma once

#include "zenc/compress/magnitude.h"

namespace zenc {

constexpr u64 EVERY_UNIT = ~0ULL;
constexpr u64 NUMBER_BITS = 11;      // of a digit of a unit's number: BINS of them
constexpr u64 MAGNITUDE_DIGITS = 3;  // 11 bits, and twice 10
constexpr u64 LISTED_SHARE = 32;     // one unit of so many has room in the list of those that wait

// The units of one part. Digits that are not known yet are 0.
struct Search {
    u64 first;      // of its units, which follow each other in the order of all
    u64 units;      // of the part
    u64 wanted;     // so many are taken of those that are like the k-th greatest in all that is known of it
    u64 inside;     // so many of them there are
    u64 magnitude;  // of the k-th greatest
    u64 last;       // of the units that are equal to it the last one that is taken
    u64 open;       // whether digits are wanted
    u64 lists;      // whether the units that wait for them have room in the list
};

// What blocks change while others read the search.
struct SearchCounters {
    u64 listed;   // units in the list
    u64 arrived;  // blocks that have counted
};

// What a search is over.
struct Selecting {
    Search* searches;  // of `parts`
    SearchCounters* counters;
    u64 parts;          // each has a row of blocks
    const i64* order;   // the units of all parts, one part after another; null: 0, 1, 2 ...
    const float* keys;  // [units] their magnitudes count: values, or the magnitudes of rows
    u8* marks;          // [units] 1: taken; or null, where units are moved at once
    u64* counts;        // [parts, BINS] 0 before and after
    u64* list;          // [units / LISTED_SHARE] of all parts: magnitude << 32 | number in the part; or null
};

// What selected units are moved from and to, and what is counted by each block of the launch.
struct Moving {
    u64 width;        // values of a unit
    float* left;      // [units, width]
    float* velocity;  // the same, or null
    double* squares;  // [blocks] of what is left
};

// Units are also taken by random words: where `least` is not 0 all whose words' lower 31 bits reach it.
struct Drawing {
    u64 key;
    u64 least;  // MAGNITUDE + 1: none
};

struct Digit {
    u64 shift;
    u64 bits;
};

ZENC_HD inline u64 number_digits(u64 units) {
    u64 digits = 0;
    for (u64 rest = units == 0 ? 0 : units - 1; rest != 0; rest >>= NUMBER_BITS) ++digits;
    return digits;
}

// All digits of a search.
ZENC_HD inline u64 search_digits(u64 units) {
    return MAGNITUDE_DIGITS + number_digits(units);
}

// Digit `step` of those of a magnitude, or of a number below `units` behind them.
ZENC_HD inline Digit digit_of(u64 step, u64 units) {
    if (step == 0) return {BIN_SHIFT, 31 - BIN_SHIFT};
    if (step < MAGNITUDE_DIGITS) return {step == 1 ? BIN_SHIFT / 2 : 0, BIN_SHIFT / 2};
    return {(search_digits(units) - 1 - step) * NUMBER_BITS, NUMBER_BITS};
}

// Whether a unit is like the k-th greatest in all digits before `digit`, which is digit `step`.
ZENC_HD inline bool is_like(const Search& search, u64 step, const Digit& digit, u64 magnitude, u64 number) {
    const u64 above = digit.shift + digit.bits;
    if (step < MAGNITUDE_DIGITS) return magnitude >> above == search.magnitude >> above;
    return magnitude == search.magnitude && number >> above == search.last >> above;
}

enum Verdict { STAYS, IS_TAKEN, WAITS };

// Of a search whose first digit is known, or all of them. Where the k-th is in the lowest bin all units wait:
// what is left of those that are taken would be looked for there.
ZENC_HD inline Verdict verdict_of(const Search& search, u64 magnitude, u64 number) {
    if (search.open) {
        const u64 bin = magnitude >> BIN_SHIFT, border = search.magnitude >> BIN_SHIFT;
        return bin == border || border == 0 ? WAITS : bin > border ? IS_TAKEN : STAYS;
    }
    const bool taken =
        magnitude > search.magnitude || (magnitude == search.magnitude && number <= search.last);
    return taken ? IS_TAKEN : STAYS;
}

}  // namespace zenc
