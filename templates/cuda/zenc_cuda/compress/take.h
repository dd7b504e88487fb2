// Selected units go into the gradient, and all that is left stays; or they are marked, for selections that
// come one after another.
#pragma once

#include "zenc_cuda/compress/search.h"

namespace zenc {

// The destination of units, and what a thread counts. Without a gradient, units are marked, not moved.
template <class T>
struct Destination {
    const Moving& of;
    T* gradient;
    double squares = 0;
    u64 number = 0;

    // Moves value i if it is taken; otherwise the gradient gets +0 there, unless bits say which are taken.
    ZENC_DEVICE void move(u64 i, bool taken) {
        const bool stays = of.taken != nullptr;
        if (stays && !taken) return;
        const float x = of.left[i];
        const T sent = Type<T>::round(taken ? x : 0.0F);
        const float told = Type<T>::widen(sent), left = taken ? x - told : x;
        gradient[i] = sent;
        squares += static_cast<double>(left) * left - (stays ? static_cast<double>(x) * x : 0);
        if (!taken) return;
        of.left[i] = left;
        if (of.velocity != nullptr) of.velocity[i] = 0;
        number += told != 0;
        if (stays && told != 0) set_bits(of.taken + i / 64, 1ULL << (i % 64));
    }

    // Stores the block's statistics. Threads meet here.
    ZENC_DEVICE void tell() const {
        store_sum_of_block(squares, of.squares);
        add_of_warp(of.number, number);
    }
};

// Moves or marks units that finished searches take; only listed ones are read where others may stay.
template <class T>
ZENC_DEVICE void take(const Selecting& by, const Moving& of, const Drawing& drawn, T* gradient) {
    Destination<T> to{of, gradient};
    const Divider width(of.width);
    for_each_part(by, [&](u64 part) {
        const Search search = by.searches[part];
        if (of.taken != nullptr && search.lists)
            return for_candidates(by, part, search, [&](u64 magnitude, u64 number) {
                if (is_taken(search, magnitude, number)) to.move(unit_of(by, search, number), true);
            });
        const bool is_random = drawn.least <= MAGNITUDE,
                   all = search.magnitude == 0 && search.last == EVERY_UNIT;
        const u64 values = gradient == nullptr ? 1 : of.width;
        for (u64 i = thread_of_row(); i < search.units * values; i += threads_of_row()) {
            const u64 number = values == 1 ? i : width.quotient(i), unit = unit_of(by, search, number);
            const u32 magnitude = is_random ? random_word(drawn.key, unit) & MAGNITUDE
                                  : all     ? 0
                                            : magnitude_of(by.keys[unit]);
            const bool taken = is_random ? magnitude >= drawn.least : is_taken(search, magnitude, number);
            if (gradient != nullptr)
                to.move(unit * of.width + (i - number * values), taken);
            else if (taken)
                by.marks[unit] = 1;
        }
    });
    to.tell();
}

// Sets everything in a tensor to +0 but what the bits of `taken` name.
template <class T>
ZENC_DEVICE void clear_untaken(T* tensor, u64 n, const u64* taken) {
    for (u64 i = thread_of_row(); i < n; i += threads_of_row())
        if ((taken[i / 64] >> (i % 64) & 1) == 0) tensor[i] = T{};
}

// Moves all marked units.
template <class T>
ZENC_DEVICE void take_marked(const u8* marks, const Moving& of, u64 units, T* gradient) {
    Destination<T> to{of, gradient};
    const Divider width(of.width);
    for (u64 i = thread_of_row(); i < units * of.width; i += threads_of_row())
        to.move(i, marks[of.width == 1 ? i : width.quotient(i)] != 0);
    to.tell();
}

// Zeroes the keys of marked units, so that the next selection can't take them again.
ZENC_DEVICE void forget_marked(const u8* marks, u64 units, float* keys) {
    for (u64 i = thread_of_row(); i < units; i += threads_of_row())
        if (marks[i]) keys[i] = 0;
}

// Counts, by a warp, the units of a block that reach a magnitude.
ZENC_DEVICE u64 count_from(const Selecting& by, u64 first, u64 length, u32 magnitude) {
    u64 count = 0;
    for (u64 i = first + lane(); i < first + length; i += WARP)
        count += magnitude_of(by.keys[i]) >= magnitude;
    return sum_of_warp(count);
}

// Finds, bit by bit, the threshold of the k greatest in a block of units.
ZENC_DEVICE Threshold threshold_of_block(const Selecting& by, u64 first, u64 length, u64 k) {
    u32 reached = 0;
    for (u32 bit = 1U << 30; bit != 0; bit >>= 1) {
        const u64 found = count_from(by, first, length, reached | bit);
        if (found >= k) reached |= bit;
    }
    const u64 above = reached == MAGNITUDE ? 0 : count_from(by, first, length, reached + 1);
    return {reached, k - above};
}

// Takes the k greatest of every `block` units, and of a shorter last block the same share, at least one. A
// warp has a block of units, and reads it 33 times: blocks should fit into the first cache.
template <class T>
ZENC_DEVICE void take_of_blocks(const Selecting& by, const Moving& of, u64 units, u64 block, u64 k,
                                T* gradient) {
    Destination<T> to{of, gradient};
    for (u64 at = warp_of_row(); at * block < units; at += warps_of_row()) {
        const u64 first = at * block, length = units - first < block ? units - first : block;
        const u64 share = length == block ? k : k * length / block;
        Threshold threshold = threshold_of_block(by, first, length, share == 0 ? 1 : share);
        for (u64 start = first; start < first + length; start += WARP) {
            const u64 unit = start + lane();
            const bool there = unit < first + length;
            const u32 magnitude = there ? magnitude_of(by.keys[unit]) : 0;
            const u32 equal = __ballot_sync(ALL_LANES, there && magnitude == threshold.magnitude);
            const u64 before = static_cast<u64>(__popc(equal & ((1U << lane()) - 1)));
            const bool taken = there && is_taken(threshold, magnitude, before);
            const u64 equals = static_cast<u64>(__popc(equal));
            threshold.equal -= equals < threshold.equal ? equals : threshold.equal;
            if (gradient == nullptr) {
                if (taken) by.marks[unit] = 1;
                continue;
            }
            const u32 all_taken = __ballot_sync(ALL_LANES, taken);
            const u64 end = first + length - start < WARP ? first + length - start : WARP;
            for (u64 i = lane(); i < end * of.width; i += WARP)
                to.move(start * of.width + i, all_taken >> (i / of.width) & 1);
        }
    }
    to.tell();
}

}  // namespace zenc
