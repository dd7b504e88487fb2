// Thresholds: the magnitude of the k-th greatest unit, exactly or nearly.
#pragma once

#include <cmath>
#include <cstdlib>

#include "zenc/compress/philox.h"
#include "zenc_cpu/compress/accumulate.h"
#include "zenc_cpu/compress/marks.h"

namespace zenc {

// Counts in BINS bins, of fewer than 2^34 values. Several of them side by side: the next value often belongs
// to the same bin.
class Histogram {
public:
    void add(const float* values, u64 n) {
        u64 i = 0;
        for (; i + SIDES <= n; i += SIDES)
            for (u64 side = 0; side < SIDES; ++side) ++counts_[side][bin(values[i + side])];
        for (; i < n; ++i) ++counts_[0][bin(values[i])];
    }

    void add_to(u64* counts) const {
        for (u32 i = 0; i < BINS; ++i)
            for (u64 side = 0; side < SIDES; ++side) counts[i] += counts_[side][i];
    }

private:
    static constexpr u64 SIDES = 4;

    static u32 bin(float value) { return magnitude_of(value) >> BIN_SHIFT; }

    u32 counts_[SIDES][BINS] = {};
};

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

// The values of bin `number`, one after another, written to `out`.
inline void collect(const float* values, u64 n, u32 number, float* out) {
    const u32 least = number << BIN_SHIFT;
    for (u64 first = 0; first < n; first += MARKED) {
        const u64 length = n - first < MARKED ? n - first : MARKED;
        for_marks(marks_from(values + first, length, least), [&](u64 i) {
            const float value = values[first + i];
            if (magnitude_of(value) >> BIN_SHIFT == number) *out++ = value;
        });
    }
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

// By a histogram of all values. False: there is no memory.
inline bool threshold_by_histogram(const float* values, u64 n, u64 k, Threshold& found) {
    u64 histogram[BINS] = {};
    Histogram made;
    made.add(values, n);
    made.add_to(histogram);
    const Bin bin = bin_of(histogram, BINS, k);
    const u64 inside = histogram[bin.number];
    auto* const candidates = static_cast<float*>(std::malloc(inside * sizeof(float)));
    if (candidates == nullptr) return false;
    collect(values, n, bin.number, candidates);
    found = threshold_of_bin(candidates, inside, bin.wanted);
    std::free(candidates);
    return true;
}

// A magnitude that k of n units most likely reach, and not many more: some more of a sample do. 0: they are
// too many for that.
inline u32 likely_below(const float* values, u64 n, u64 k) {
    if (k > n / 4) return 0;
    float sample[IN_CACHE];
    const u64 stretch = n / IN_CACHE;
    for (u64 i = 0; i < IN_CACHE; ++i) sample[i] = values[i * stretch + i * 37 % stretch];
    const double share = static_cast<double>(k) / static_cast<double>(n) * IN_CACHE;
    const auto wanted = static_cast<u64>(share + 4 * std::sqrt(share) + 4);
    return threshold_in_cache(sample, IN_CACHE, wanted).magnitude;
}

// The values that reach a magnitude which likely k do: if these are too many or too few, it was no help.
class Candidates {
public:
    Candidates(u64 n, u64 k, u32 least)
        : least_(least),
          wanted_(k),
          most_(least ? 2 * k + n / 64 + MARKED : 0),
          values_(static_cast<float*>(std::malloc(most_ * sizeof(float)))) {}
    ~Candidates() { std::free(values_); }
    Candidates(const Candidates&) = delete;
    Candidates& operator=(const Candidates&) = delete;

    void add(const float* values, u64 n) {
        if (values_ == nullptr || count_ + n + 2 > most_) return give_up();
        for (u64 first = 0; first < n; first += MARKED) {
            const u64 length = n - first < MARKED ? n - first : MARKED;
            const u64 marks = marks_from(values + first, length, least_);
            append(values + first, marks);
        }
    }

    bool help() const { return count_ >= wanted_ && most_ != 0; }

    bool threshold(Threshold& found) const { return threshold_by_histogram(values_, count_, wanted_, found); }

private:
    // Mostly there are two at most: these are written without asking how many.
    void append(const float* values, u64 marks) {
        constexpr u64 LAST = 1ULL << (MARKED - 1);
        float* to = values_ + count_;
        const u64 rest = marks & (marks - 1);
        to[0] = values[marks ? __builtin_ctzll(marks | LAST) : 0];
        to[1] = values[rest ? __builtin_ctzll(rest | LAST) : 0];
        count_ += population(marks);
        to += 2;
        for_marks(rest & (rest - 1), [&](u64 i) { *to++ = values[i]; });
    }

    void give_up() { most_ = count_ = 0; }

    const u32 least_;
    const u64 wanted_;
    u64 most_;
    u64 count_ = 0;
    float* const values_;
};

// The k-th greatest magnitude, and how many of those equal to it are among the k, for 1 <= k <= n. A sample
// tells where to look, as a histogram of all values takes longer; that is made where the sample did not help.
// False: there is no memory.
inline bool exact_threshold(const float* values, u64 n, u64 k, Threshold& found) {
    if (n <= IN_CACHE) {
        found = threshold_in_cache(values, n, k);
        return true;
    }
    Candidates candidates(n, k, likely_below(values, n, k));
    for (u64 first = 0; first < n; first += STRETCH)
        candidates.add(values + first, n - first < STRETCH ? n - first : STRETCH);
    return candidates.help() ? candidates.threshold(found) : threshold_by_histogram(values, n, k, found);
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
    const bool done = exact_threshold(sample, drawn, share == 0 ? 1 : share, found);
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
