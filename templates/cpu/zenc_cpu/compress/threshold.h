// Thresholds: the magnitude of the k-th greatest unit, exactly or nearly.
#pragma once

#include <cstdlib>

#include "zenc/compress/philox.h"
#include "zenc_cpu/compress/accumulate.h"

namespace zenc {

// A place in a histogram: the bin of the k-th greatest, and how many of that bin are wanted.
struct Bin {
    u32 number;
    u64 wanted;
};

template <class Count>
inline Bin bin_of(const Count* counts, u32 bins, u64 k) {
    for (u32 bin = bins; bin-- != 0;) {
        if (counts[bin] >= k) return {bin, k};
        k -= counts[bin];
    }
    return {0, 0};
}

inline u64 count_from(const float* values, u64 n, u32 magnitude) {
    u64 count = 0;
    for (u64 first = 0; first < n; first += STRETCH) {
        const u64 length = n - first < STRETCH ? n - first : STRETCH;
        u32 found = 0;
        for (u64 i = 0; i < length; ++i) found += magnitude_of(values[first + i]) >= magnitude;
        count += found;
    }
    return count;
}

// The k-th greatest magnitude, for 1 <= k <= n: the greatest that k units reach, found bit by bit.
inline Threshold threshold_in_cache(const float* values, u64 n, u64 k) {
    u32 reached = 0;
    const u32 greatest = greatest_magnitude(values, n);
    u64 from = n;  // units at or above `reached`
    for (u32 bit = 1U << 30; bit != 0; bit >>= 1) {
        if ((reached | bit) > greatest) continue;
        const u64 found = count_from(values, n, reached | bit);
        if (found < k) continue;
        reached |= bit;
        from = found;
    }
    const u64 above = reached == MAGNITUDE ? 0 : count_from(values, n, reached + 1);
    return {reached, from >= k ? k - above : 0};
}

// The magnitudes of bin `number`, one after another, written to `out`, which has room for a vector more.
inline u64 collect(const float* values, u64 n, u32 number, float* out) {
    constexpr u64 TOGETHER = 64;
    u64 count = 0;
    u64 first = 0;
    for (; first + TOGETHER <= n; first += TOGETHER) {
        u32 any = 0;
        for (u64 i = 0; i < TOGETHER; ++i) any |= magnitude_of(values[first + i]) >> BIN_SHIFT == number;
        if (!any) continue;
        for (u64 i = first; i < first + TOGETHER; ++i) {
            out[count] = values[i];
            count += magnitude_of(values[i]) >> BIN_SHIFT == number;
        }
    }
    for (; first < n; ++first)
        if (magnitude_of(values[first]) >> BIN_SHIFT == number) out[count++] = values[first];
    return count;
}

// Of the magnitudes in `values`, which are all of one bin.
inline Threshold threshold_of_bin(const float* values, u64 n, u64 k) {
    constexpr u32 LOW = 10;
    static_assert(BIN_SHIFT == 2 * LOW, "two more histograms");
    u64 upper[1U << LOW] = {}, lower[1U << LOW] = {};
    for (u64 i = 0; i < n; ++i) ++upper[(bits_of(values[i]) >> LOW) & ((1U << LOW) - 1)];
    const Bin high = bin_of(upper, 1U << LOW, k);
    for (u64 i = 0; i < n; ++i) {
        const u32 bits = bits_of(values[i]);
        lower[bits & ((1U << LOW) - 1)] += ((bits >> LOW) & ((1U << LOW) - 1)) == high.number;
    }
    const Bin low = bin_of(lower, 1U << LOW, high.wanted);
    const u32 top = n == 0 ? 0 : magnitude_of(values[0]) >> BIN_SHIFT << BIN_SHIFT;
    return {top | high.number << LOW | low.number, low.wanted};
}

constexpr u64 IN_CACHE = 4096;

// The same for any n. `histogram` is that of the values, or null. False: there is no memory.
inline bool exact_threshold(const float* values, u64 n, u64 k, const u64* histogram, Threshold& found) {
    if (n <= IN_CACHE) {
        found = threshold_in_cache(values, n, k);
        return true;
    }
    u64 counts[BINS] = {};
    if (histogram == nullptr) {
        Histogram made;
        made.add(values, n);
        made.add_to(counts);
        histogram = counts;
    }
    const Bin bin = bin_of(histogram, BINS, k);
    const u64 inside = histogram[bin.number];
    auto* const candidates = static_cast<float*>(std::malloc((inside + 64) * sizeof(float)));
    if (candidates == nullptr) return false;
    collect(values, n, bin.number, candidates);
    found = threshold_of_bin(candidates, inside, bin.wanted);
    std::free(candidates);
    return true;
}

// The threshold of a sample of `drawn` units, one of each of as many stretches, that as large a share is at.
inline bool sampled_threshold(const float* values, u64 n, u64 k, u64 drawn, u64 key, Threshold& found) {
    auto* const sample = static_cast<float*>(std::malloc(drawn * sizeof(float)));
    if (sample == nullptr) return false;
    for (u64 i = 0; i < drawn; ++i) {
        const u64 first = static_cast<u64>(static_cast<u128>(i) * n / drawn);
        const u64 end = static_cast<u64>(static_cast<u128>(i + 1) * n / drawn);
        sample[i] = values[first + random_below(random_word(key, i), end - first)];
    }
    const u64 share = static_cast<u64>(static_cast<u128>(k) * drawn / n);
    const bool done = exact_threshold(sample, drawn, share == 0 ? 1 : share, nullptr, found);
    std::free(sample);
    found.equal = n;
    return done;
}

// A threshold that at least k units reach, found in `steps` halvings of the range of finite magnitudes.
inline Threshold bisected_threshold(const float* values, u64 n, u64 k, i64 steps) {
    const u32 greatest = greatest_magnitude(values, n);
    if (greatest >= INFINITE) return {INFINITE, n};
    float low = 0, high = float_of(greatest);
    for (i64 step = 0; step < steps; ++step) {
        const float middle = low + (high - low) / 2;
        (count_from(values, n, magnitude_of(middle)) >= k ? low : high) = middle;
    }
    return {magnitude_of(low), n};
}

}  // namespace zenc
