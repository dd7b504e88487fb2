// Launchers: the inputs of a gradient in which units come several times, in the order of their rows.
#pragma once

#include "zenc_host/segment_kernels.h"

namespace zenc {

static const Kernel MAKE_KEYS("zenc_make_keys");
static const Kernel DIGIT_COUNTS("zenc_digit_counts");
static const Kernel SCAN("zenc_scan");
static const Kernel SORT_BY_DIGIT("zenc_sort_by_digit");
static const Kernel ROW_STARTS("zenc_row_starts");

// Inputs by their rows: see zenc_cuda/duplicates.h.
struct Grouped {
    u64* keys;     // [n], sorted
    u64 shift;     // bits of a position in a key
    u64* starts;   // the first key of each row, and behind them n
    u64* popular;  // the number of rows of more than MOST_INPUTS inputs, and they
};

// Sorts n keys by the bits of the row, as many as numbers below `distinct` have. Needs 16 bytes a key, and an
// eighth of that for counts.
class Sorter {
public:
    Sorter(Queue& queue, u64 n, u64 shift, u64 distinct)
        : queue_(queue),
          n_(n),
          shift_(shift),
          passes_(ceil_divide(bits_below(distinct), DIGIT_BITS)),
          work_words_(scan_words(digit_words(n))) {
        keys_ = queue.allocate<u64>(n);
        other_ = queue.allocate<u64>(n);
        counts_ = queue.allocate<u64>(digit_words(n));
        work_ = queue.allocate<u64>(passes_ * work_words_);
        queue.clear(work_, 8 * passes_ * work_words_);
    }

    u64* keys() const { return keys_; }

    // All but the keys.
    void release() {
        queue_.release(other_, n_);
        queue_.release(counts_, digit_words(n_));
        queue_.release(work_, passes_ * work_words_);
    }

    void sort() {
        for (u64 pass = 0; pass < passes_; ++pass)
            sort_by(shift_ + pass * DIGIT_BITS, work_ + pass * work_words_);
    }

private:
    void sort_by(u64 bit, u64* work) {
        const u64 blocks = Queue::blocks_for_tiles(n_, SORT_TILE), numbers = digit_words(n_);
        queue_.launch(DIGIT_COUNTS, blocks, 1, keys_, n_, bit, counts_);
        queue_.launch(SCAN, Queue::blocks_for_tiles(numbers, SCAN_TILE), 1, counts_, numbers, work);
        queue_.launch(SORT_BY_DIGIT, blocks, 1, keys_, n_, bit, counts_, other_);
        std::swap(keys_, other_);
    }

    Queue& queue_;
    const u64 n_, shift_, passes_, work_words_;
    u64 *keys_, *other_, *counts_, *work_;
};

// The inputs in `slots` [n], which have `distinct` rows, or fewer, in the segments of `parts` .
inline Grouped group(Queue& queue, const Segments& parts, const i64* slots, u64 distinct) {
    const Call& call = queue.call;
    const u64 n = static_cast<u64>(call.n), shift = bits_below(n);
    if (shift + bits_below(distinct) > 64)
        fail(queue.call, OUT_OF_MEMORY, -1, "%llu units are too many, of which some come several times", n);
    Sorter sorter(queue, n, shift, distinct);
    queue.launch(MAKE_KEYS, Queue::blocks_for(n), 1, queue.partition, parts, slots, n, shift, sorter.keys());
    sorter.sort();
    sorter.release();
    const Grouped made = {sorter.keys(), shift, queue.allocate<u64>(distinct + 1),
                          queue.allocate<u64>(popular_words(n))};
    queue.clear(made.popular, 8);
    queue.launch(ROW_STARTS, Queue::blocks_for(n), 1, made.keys, n, shift, made.starts, made.popular);
    return made;
}

}  // namespace zenc
