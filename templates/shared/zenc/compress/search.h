// Searches for the k greatest of many units, digit by digit: of their magnitudes, and then of the numbers of
// those that are equal, of which the first are taken. What launchers and kernels of GPUs both know of them.
#pragma once

#include "zenc/compress/magnitude.h"

namespace zenc {

constexpr u64 EVERY_UNIT = ~0ULL;
constexpr u64 NUMBER_BITS = 11;      // of a digit of a unit's number: BINS of them
constexpr u64 MAGNITUDE_DIGITS = 3;  // 11 bits, and twice 10
constexpr u64 LISTED_SHARE = 16;     // one unit of so many has room in the list
constexpr u64 SAMPLED = 4096;        // units of a part by which it is guessed which ones are worth listing
constexpr u64 NONE_LISTED = MAGNITUDE + 1ULL;

// The units of one part. Digits that are not known yet are 0.
struct Search {
    u64 first;      // of its units, which follow each other in the order of all
    u64 units;      // of the part
    u64 wanted;     // so many are taken of those that are like the k-th greatest in all that is known of it
    u64 inside;     // so many of them there are
    u64 magnitude;  // of the k-th greatest
    u64 last;       // of the units that are equal to it the last one that is taken
    u64 open;       // whether digits are wanted
    u64 lists;      // whether all that can be taken are in the list
    u64 least;      // units that reach this magnitude are listed
    u64 of_sample;  // of a sample so many units are to reach it, which says what it is; 0: it is known
};

// The state of a search that blocks change while others read the search.
struct SearchCounters {
    u64 listed;   // units in the list
    u64 arrived;  // blocks that have counted
};

// Values that are added together: float32 [units, width], but for the gradient, which has a type.
struct Adding {
    const void* gradient;
    const float* residual;  // or null, as `velocity`
    float* out;             // null: sums are looked at alone
    const float* velocity;
    float* velocity_out;  // null: there is no momentum
    u64 factor;           // of the velocity: the bits of a float32
    void* taken;          // null; or, of the gradient's type, what is taken at once, of a search that is over
    u64 clears;           // whether velocities of what is taken at once become 0
};

// The data that searches go over.
struct Selecting {
    Search* searches;  // of `parts`
    SearchCounters* counters;
    u64 parts;          // each has a row of blocks
    const i64* order;   // the units of all parts, one part after another; null: 0, 1, 2 ...
    const float* keys;  // [units] their magnitudes count: values, or the magnitudes of rows
    u8* marks;          // [units] 1: taken; or null, where units are moved at once
    u64* counts;        // [parts, BINS] 0 before and after
    u64* list;          // [units / LISTED_SHARE] of all parts: magnitude << 32 | number in the part
};

// The data that selected units are moved from and to, and what each block of the launch counts.
struct Moving {
    u64 width;        // values of a unit
    float* left;      // [units, width]
    float* velocity;  // the same, or null
    double* squares;  // [blocks] of what is left; with `taken` the change of these
    u64* number;      // of values that are taken and not 0
    u64* taken;       // null; or bits [units] of these, beside which the gradient is undefined
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

// The number of digits of a search: those of a magnitude, and of a number below `units`.
ZENC_HD inline u64 search_digits(u64 units) {
    u64 digits = MAGNITUDE_DIGITS;
    for (u64 rest = units == 0 ? 0 : units - 1; rest != 0; rest >>= NUMBER_BITS) ++digits;
    return digits;
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

// Whether a search that is over takes a unit.
ZENC_HD inline bool is_taken(const Search& search, u64 magnitude, u64 number) {
    return magnitude > search.magnitude || (magnitude == search.magnitude && number <= search.last);
}

}  // namespace zenc
