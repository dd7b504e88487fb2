// Thresholds: the magnitude of the k-th greatest unit, exactly or nearly.
#pragma once

#include <cmath>
#include <cstdlib>

#include "zenc_cpu/compress/accumulate.h"
#include "zenc_cpu/compress/marks.h"
#include "zenc_cpu/compress/random.h"

namespace zenc {

// Memory for n values, as it comes; nothing if there is none.
template <class T>
class Room {
public:
    explicit Room(u64 n) : data_(static_cast<T*>(std::malloc((n ? n : 1) * sizeof(T)))) {}
    ~Room() { std::free(data_); }
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;

    T* get() const { return data_; }
    T& operator[](u64 i) const { return data_[i]; }

private:
    T* const data_;
};

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

// Copies those of n values that reach a magnitude to `out`, which may be `values`. Returns their number.
inline u64 keep_from(const float* values, u64 n, u32 magnitude, float* out) {
    float* const begin = out;
    for_words(n, [&](u64 first, u64 length) {
        for_marks(marks_from(values + first, length, magnitude), [&](u64 i) { *out++ = values[first + i]; });
    });
    return static_cast<u64>(out - begin);
}

// The k-th greatest magnitude, for 1 <= k <= n: the greatest that k units reach, found bit by bit. Once few
// reach what is found, the others are looked at no more.
inline Threshold threshold_in_cache(const float* values, u64 n, u64 k) {
    constexpr u64 FEW = 512;
    float few[FEW];
    u32 reached = 0;
    const u32 greatest = greatest_magnitude(values, n);
    u64 from = n;  // units at or above `reached`
    for (u32 bit = 1U << 30; bit != 0; bit >>= 1) {
        if ((reached | bit) > greatest) continue;
        const u64 found = count_from(values, n, reached | bit);
        if (found < k) continue;
        reached |= bit;
        from = found;
        if (from > FEW || from > n / 2) continue;
        n = keep_from(values, n, reached, few);
        values = few;
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

// The threshold among the magnitudes of `values`, which are all in one bin.
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

// Finds a threshold by a histogram of all values. Returns false if there is no memory.
inline bool threshold_by_histogram(const float* values, u64 n, u64 k, Threshold& found) {
    u64 histogram[BINS] = {};
    Histogram made;
    made.add(values, n);
    made.add_to(histogram);
    const Bin bin = bin_of(histogram, BINS, k);
    const u64 inside = histogram[bin.number];
    const Room<float> candidates(inside);
    if (candidates.get() == nullptr) return false;
    collect(values, n, bin.number, candidates.get());
    found = threshold_of_bin(candidates.get(), inside, bin.wanted);
    return true;
}

// A magnitude that k of n units most likely reach, and not many more: some more of a sample do. 0: they are
// too many for that. value(i) is that of a unit.
template <class Value>
inline u32 likely_below(Value value, u64 n, u64 k) {
    if (k > n / 4 || n <= IN_CACHE) return 0;
    float sample[IN_CACHE];
    const u64 stretch = n / IN_CACHE;
    for (u64 i = 0; i < IN_CACHE; ++i) sample[i] = value(i * stretch + i * 37 % stretch);
    const double share = static_cast<double>(k) / static_cast<double>(n) * IN_CACHE;
    const auto wanted = static_cast<u64>(share + 3 * std::sqrt(share) + 4);
    return threshold_in_cache(sample, IN_CACHE, wanted).magnitude;
}

// The values that reach a magnitude which likely k do, and where they are: if these are too many or too few,
// it was no help.
class Candidates {
public:
    Candidates(u64 n, u64 k, u32 least)
        : least_(least),
          wanted_(k),
          most_(least ? 2 * k + n / 64 + 2 * STRETCH : 0),
          values_(most_),
          places_(most_) {
        if (values_.get() == nullptr || places_.get() == nullptr) most_ = 0;
    }

    // Adds candidates among n <= STRETCH values, the first of which is number `first`, and a mark for each;
    // none once there is no room.
    ZENC_SHARED_CODE void add(const float* values, u64 n, u64 first, u64* marks) {
        if (count_ + n + 2 > most_) most_ = 0;
        const u32 least = least_;
        for_words(n, [&](u64 start, u64 length) {
            marks[start / MARKED] = most_ ? marks_from(values + start, length, least) : 0;
        });
        if (most_) append(values, n, first, marks);
    }

    bool help() const { return count_ >= wanted_ && most_ != 0; }

    bool threshold(Threshold& found) const {
        return threshold_by_histogram(values_.get(), count_, wanted_, found);
    }

    // give(place, taken) for each: whether the threshold takes it. Those that it does not are kept.
    template <class Give>
    void settle(Threshold threshold, Give give) {
        u64 kept = 0;
        for (u64 i = 0; i < count_; ++i) {
            const float value = values_[i];
            const u64 place = places_[i];
            const bool taken = takes_next(threshold, magnitude_of(value));
            give(place, taken);
            values_[kept] = value;
            places_[kept] = place;
            kept += !taken;
        }
        count_ = kept;
    }

    // use(place, value) for each.
    template <class Use>
    void visit(Use use) const {
        for (u64 i = 0; i < count_; ++i) use(places_[i], values_[i]);
    }

private:
    // Mostly there are two of 64 at most: these are written without asking how many.
    void append(const float* values, u64 n, u64 first, const u64* marks) {
        constexpr u64 LAST = 1ULL << (MARKED - 1);
        float* to = values_.get() + count_;
        u64* place = places_.get() + count_;
        for_words(n, [&](u64 start, u64) {
            const u64 word = marks[start / MARKED], rest = word & (word - 1);
            const float* const from = values + start;
            const u64 one = word ? __builtin_ctzll(word | LAST) : 0;
            const u64 two = rest ? __builtin_ctzll(rest | LAST) : 0;
            to[0] = from[one];
            to[1] = from[two];
            place[0] = first + start + one;
            place[1] = first + start + two;
            u64 more = 2;
            for_marks(rest & (rest - 1), [&](u64 i) {
                to[more] = from[i];
                place[more++] = first + start + i;
            });
            const u64 count = population(word);
            to += count;
            place += count;
        });
        count_ = static_cast<u64>(to - values_.get());
    }

    const u32 least_;
    const u64 wanted_;
    u64 most_;
    u64 count_ = 0;
    const Room<float> values_;
    const Room<u64> places_;
};

// The k-th greatest magnitude, and how many of those equal to it are among the k, for 1 <= k <= n. A sample
// tells where to look, as a histogram of all values takes longer; that is made where the sample did not help.
// False: there is no memory.
inline bool exact_threshold(const float* values, u64 n, u64 k, Threshold& found) {
    if (n <= IN_CACHE) {
        found = threshold_in_cache(values, n, k);
        return true;
    }
    Candidates candidates(n, k, likely_below([&](u64 i) { return values[i]; }, n, k));
    u64 marks[STRETCH / MARKED];
    for (u64 first = 0; first < n; first += STRETCH)
        candidates.add(values + first, n - first < STRETCH ? n - first : STRETCH, first, marks);
    return candidates.help() ? candidates.threshold(found) : threshold_by_histogram(values, n, k, found);
}

// The threshold of a sample of `drawn` units, one of each of as many stretches, that as large a share is at.
// value(i) is that of a unit.
template <class Value>
inline bool sampled_threshold(Value value, u64 n, u64 k, u64 drawn, u64 key, Threshold& found) {
    const Room<float> sample(drawn);
    if (sample.get() == nullptr) return false;
    for_drawn(n, drawn, key, [&](u64 i, u64 unit) { sample[i] = value(unit); });
    const u64 share = static_cast<u64>(static_cast<u128>(k) * drawn / n);
    const bool done = exact_threshold(sample.get(), drawn, share == 0 ? 1 : share, found);
    found.equal = n;
    return done;
}

// A threshold that at least k units reach, found in `steps` halvings of the range of finite magnitudes: that
// k reach a magnitude says the exact threshold, which is `exact`.
inline Threshold bisected(u32 exact, u32 greatest, u64 n, i64 steps) {
    if (greatest >= INFINITE) return {INFINITE, n};
    float low = 0, high = float_of(greatest);
    for (i64 step = 0; step < steps; ++step) {
        const float middle = low + (high - low) / 2;
        (exact >= magnitude_of(middle) ? low : high) = middle;
    }
    return {magnitude_of(low), n};
}

inline bool bisected_threshold(const float* values, u64 n, u64 k, i64 steps, Threshold& found) {
    if (!exact_threshold(values, n, k, found)) return false;
    found = bisected(found.magnitude, greatest_magnitude(values, n), n, steps);
    return true;
}

}  // namespace zenc
