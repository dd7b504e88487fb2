// The k greatest of the units of each part, by histograms of one digit after another; exactly, of equal ones
// the first. A row of blocks has a part.
//
// A sample says which magnitude somewhat more than k units reach, and the pass that accumulates lists these
// (accumulate.h): digits are counted of them alone. Where they are fewer than k, or more than there is room
// for, everything is read again.
#pragma once

#include "zenc/compress/search.h"
#include "zenc_cuda/compress/blocks.h"

namespace zenc {

ZENC_DEVICE u64 unit_of(const Selecting& by, const Search& search, u64 number) {
    return by.order == nullptr ? search.first + number : static_cast<u64>(by.order[search.first + number]);
}

// The room of a part in the list: parts lie in it as they do among all units.
ZENC_DEVICE u64* list_of(const Selecting& by, const Search& search) {
    return by.list + search.first / LISTED_SHARE;
}

// A histogram in shared memory. Magnitudes of the lowest bin are mostly zeros, and are not counted: threads
// would wait for each other.
ZENC_DEVICE void clear_bins(u32* bins) {
    for (u32 bin = threadIdx.x; bin < BINS; bin += THREADS) bins[bin] = 0;
    __syncthreads();
}

ZENC_DEVICE void count_magnitude(u32* bins, u32 magnitude) {
    if (const u32 bin = magnitude >> BIN_SHIFT; bin != 0) atomicAdd(bins + bin, 1U);
}

// The bin that the k-th unit is in: from above, or of numbers from below. Found by the block that is the last
// to have counted, which clears the counts.
ZENC_DEVICE void pick(Search& search, u64 step, u64* counts) {
    constexpr u32 EACH = BINS / THREADS;
    ZENC_SHARED(u64, found, 3);  // the bin, how many are wanted of it, and how many are in it
    const bool from_above = step < MAGNITUDE_DIGITS;
    const Digit digit = digit_of(step, search.units);
    const u64 wanted = search.wanted;
    u64 mine[EACH], sum = 0;
    for (u32 each = 0; each < EACH; ++each) {
        const u32 place = threadIdx.x * EACH + each;
        u64* const count = counts + (from_above ? BINS - 1 - place : place);
        mine[each] = load_relaxed(count);
        store_relaxed(count, 0);
        sum += mine[each];
    }
    if (threadIdx.x == 0) found[0] = BINS;
    u64 before = sum_of_threads_before<u64>(sum);
    if (threadIdx.x == THREADS - 1) found[1] = before + sum;
    __syncthreads();
    const u64 all = found[1];
    __syncthreads();
    for (u32 each = 0; each < EACH; before += mine[each++]) {
        if (before >= wanted || before + mine[each] < wanted) continue;
        const u32 place = threadIdx.x * EACH + each;
        found[0] = from_above ? BINS - 1 - place : place;
        found[1] = wanted - before;
        found[2] = mine[each];
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    if (found[0] == BINS && step != 0) {  // there are fewer than k: all of them
        search.magnitude = 0;
        search.last = EVERY_UNIT;
        search.open = 0;
        return;
    }
    const bool lowest = found[0] == BINS;
    search.wanted = lowest ? wanted - all : found[1];
    search.inside = lowest ? search.units - all : found[2];
    const u64 value = (lowest ? 0 : found[0]) << digit.shift;
    if (from_above)
        search.magnitude |= value;
    else
        search.last |= value;
    const bool complete = step + 1 >= MAGNITUDE_DIGITS && search.inside == search.wanted;
    if (complete) search.last |= from_above ? EVERY_UNIT : (1ULL << digit.shift) - 1;
    search.open = !complete && step + 1 < search_digits(search.units);
}

// Adds what this block has counted of a part; the last block of the row to come here finds the digit.
ZENC_DEVICE void add_bins(const Selecting& by, u64 part, u64 step, const u32* bins) {
    u64* const counts = by.counts + part * BINS;
    __syncthreads();
    for (u32 bin = threadIdx.x; bin < BINS; bin += THREADS)
        if (bins[bin] != 0) atomicAdd(counts + bin, static_cast<u64>(bins[bin]));
    u64* const arrived = &by.counters[part].arrived;
    if (is_last_block(arrived, gridDim.x)) {
        pick(by.searches[part], step, counts);
        if (threadIdx.x == 0) store_relaxed(arrived, 0);
    }
    __syncthreads();
}

// visit(magnitude, number) for the units of a part that can be taken, and for some others.
template <class Visit>
ZENC_DEVICE void for_candidates(const Selecting& by, u64 part, const Search& search, Visit visit) {
    if (search.lists) {
        const u64* const list = list_of(by, search);
        const u64 listed = by.counters[part].listed;
        for (u64 i = thread_of_row(); i < listed; i += threads_of_row())
            visit(list[i] >> 32, list[i] & 0xffffffffU);
        return;
    }
    for (u64 number = thread_of_row(); number < search.units; number += threads_of_row()) {
        const u64 unit = unit_of(by, search, number);
        visit(static_cast<u64>(magnitude_of(by.keys[unit])), number);
    }
}

// visit(part) for the parts that have units.
template <class Visit>
ZENC_DEVICE void for_each_part(const Selecting& by, Visit visit) {
    for (u64 part = blockIdx.y; part < by.parts; part += gridDim.y)
        if (by.searches[part].units != 0) visit(part);
}

// Digit `step` of the searches that are open.
ZENC_DEVICE void find_digit(const Selecting& by, i64 at) {
    ZENC_SHARED(u32, bins, BINS);
    const u64 step = static_cast<u64>(at);
    for_each_part(by, [&](u64 part) {
        const Search search = by.searches[part];
        if (!search.open || step >= search_digits(search.units)) return;
        clear_bins(bins);
        const Digit digit = digit_of(step, search.units);
        for_candidates(by, part, search, [&](u64 magnitude, u64 number) {
            if (step == 0) return count_magnitude(bins, static_cast<u32>(magnitude));
            if (!is_like(search, step, digit, magnitude, number)) return;
            const u64 of = step < MAGNITUDE_DIGITS ? magnitude : number;
            atomicAdd(bins + (of >> digit.shift & ((1ULL << digit.bits) - 1)), 1U);
        });
        add_bins(by, part, step, bins);
    });
}

// The threshold of the first search, of all units that reach it.
ZENC_DEVICE void use_threshold(Search* search, u64 units) {
    if (thread_of_row() != 0) return;
    search->units = units;
    search->last = EVERY_UNIT;
    search->open = 0;
    search->least = search->magnitude;
}

// Halves the range of magnitudes, up to `greatest`, for a threshold that the k-th greatest reaches.
ZENC_DEVICE void halve_range(Search* search, const u64* greatest, i64 steps) {
    if (thread_of_row() != 0) return;
    u32 low = 0, high = static_cast<u32>(*greatest);
    for (i64 step = 0; step < steps; ++step) {
        const u32 tried = magnitude_of(float_of(low) + (float_of(high) - float_of(low)) / 2);
        (tried <= search->magnitude ? low : high) = tried;
    }
    search->magnitude = *greatest < INFINITE ? low : INFINITE;
    search->last = EVERY_UNIT;
    search->open = search->lists = 0;
}

}  // namespace zenc
