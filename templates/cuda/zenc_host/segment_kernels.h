// Launchers of kernels that segments go through: ranks, the index to bytes and back, segments made from
// others of the same part, and the complete ones of all parts, which become the result of the call.
#pragma once

#include <algorithm>

#include "zenc_host/segments.h"

namespace zenc {

static const Kernel RANK("zenc_rank");

// Makes the ranks of all segments.
inline void rank(Queue& queue, const Segments& segments) {
    const u64 numbers = words_ranked(64 * most_words(segments));
    Epilogue* const end = 64 * numbers * segments.size() <= RANKED_BY_A_BLOCK
                              ? queue.epilogue(Ending::RANK, segments)
                              : nullptr;
    if (end != nullptr) {
        end->ranked = queue.at_end(segments);
        end->number_ranked = number_of(segments);
        return;
    }
    const u64 words = scan_words(numbers);
    queue.launch_each(RANK, Queue::blocks_for_tiles(numbers, SCAN_TILE), segments,
                      queue.allocate_cleared<u64>(words * segments.size()), words);
}

static const Kernel CLEAR_INDEX("zenc_clear_index");
static const Kernel ENCODE_INDEX("zenc_encode_index");
static const Kernel DECODE_INDEX("zenc_decode_index", Typed::NO, Ending::ADMIT);
static const Kernel BEGIN_LISTED("zenc_begin_listed");
static const Kernel MARK_LISTED("zenc_mark_listed");
static const Kernel DECODE_BITMAPS("zenc_decode_bitmaps", Typed::NO, Ending::ADMIT);

inline bool any_of(const Segments& segments, i64 format) {
    for (const Segment& each : segments)
        if (each.format == format) return true;
    return false;
}

// Writes the index of every segment, and zeros behind its values. Bitmaps and ranks exist.
inline void encode(Queue& queue, const Segments& segments) {
    if (segments.empty()) return;
    const auto words_of_index = [](const Segment& each) {
        return index_bytes(each.format, each.slots, each.count) / 8;
    };
    const u64 index = most(segments, words_of_index);
    const u64 blocks = Queue::blocks_for(std::max(most_words(segments), index));
    if (blocks != 1 && any_of(segments, FORMAT_ELIAS_FANO))
        queue.launch_each(CLEAR_INDEX, Queue::blocks_for(index), segments);
    queue.launch_each(ENCODE_INDEX, blocks, segments, queue.row_bytes);
}

// Returns the high words of each elias_fano index as a bitmap with room for ranks, by which each tile of
// slots finds its beginning; empty ones for other segments.
inline Segments high_words(Queue& queue, const Segments& segments) {
    Segments found(segments.size(), Segment{});
    for (u64 i = 0; i < segments.size(); ++i) {
        if (segments[i].format != FORMAT_ELIAS_FANO) continue;
        const EliasFano shape(segments[i].slots, segments[i].count);
        found[i].bitmap = reinterpret_cast<u64*>(segments[i].index) + shape.low_words;
        found[i].slots = 64 * shape.high_words;
        found[i].ranks = queue.allocate<u64>(ranks_of(found[i].slots));
    }
    return found;
}

// Puts what elias_fano lists into bitmaps, where any segment has it.
inline void mark_listed(Queue& queue, const Segments& segments, const Segments& high, Check* checks) {
    if (!any_of(segments, FORMAT_ELIAS_FANO)) return;
    const u64 words = most_words(high), work = scan_words(words_ranked(64 * words));
    const u64 blocks = Queue::blocks_for(most_words(segments) / RANKED_WORDS);
    queue.launch_each(BEGIN_LISTED, blocks, segments, high,
                      queue.allocate_cleared<u64>(work * segments.size()), work);
    queue.launch_each(MARK_LISTED, Queue::blocks_for(words), segments, high, checks);
}

// Makes bitmap and ranks of every segment from its index. Returns a status for each, on the device: 0 if the
// segment has its count; else it becomes empty. Small ones are decoded by a block each, in one launch.
inline const i64* decode(Queue& queue, const Segments& segments) {
    if (segments.empty()) return nullptr;
    const u64 n = segments.size(), slots = 64 * most_words(segments), tiles = tiles_of_words(slots);
    auto* const checks = queue.allocate_cleared<Check>(n);
    auto* const status = queue.allocate<i64>(n);
    const Segments high = high_words(queue, segments);
    const bool small = tiles == 1;
    u64 there = 0;
    for (const Segment& each : segments) there += has_bitmap(each);
    if (!small) mark_listed(queue, segments, high, checks);
    if (small || there != n)
        queue.launch_each(DECODE_INDEX, Queue::blocks_for_tiles(tiles, 1), segments, high, checks, status,
                          queue.allocate_cleared<u64>((1 + tiles) * n), 1 + tiles);
    if (const u64 words = scan_words(words_ranked(slots)); !small && there != 0)
        queue.launch_each(DECODE_BITMAPS, Queue::blocks_for_tiles(words_ranked(slots), SCAN_TILE), segments,
                          checks, status, queue.allocate_cleared<u64>(words * n), words);
    for (const Segment& each : high)
        if (each.ranks != nullptr) queue.release(each.ranks, ranks_of(each.slots));
    return status;
}

static const Kernel SUM("zenc_sum", Typed::BY_BITS, Ending::ADMIT);
static const Kernel SUM_VALUES("zenc_sum_values", Typed::BY_BITS, Ending::ADMIT);
static const Kernel SUM_BLOCKS("zenc_sum_blocks", Typed::BY_BITS, Ending::ADMIT);
static const Kernel MERGE("zenc_merge", Typed::BY_BITS);
static const Kernel FILL("zenc_fill");
static const Kernel MARK_NONZERO("zenc_mark_nonzero", Typed::BY_BITS);
static const Kernel MARK_ABSENT("zenc_mark_absent", Typed::BY_BITS);
static const Kernel SPREAD("zenc_spread");

// Whether sum_values adds up the values of a call: single ones, of up to 4 bytes.
inline bool has_lane_sums(const Call& call) {
    return call.width == 1 && DTYPE_BYTES[call.dtype] <= 4;
}

// Whether a segment is in blocks of at least 32 slots: it has all slots of half a word, or none.
inline bool has_whole_halves(const Segment& segment) {
    const i64 format = segment.format;
    return format >= FORMAT_BLOCK && format <= LAST_FORMAT && block_shift(format) >= 5;
}

// Targets, each made of pieces in `from`, in their order.
struct Made {
    Segments to, from;
    std::vector<Pieces> pieces;

    // Adds a target, whose pieces come behind those of the others.
    void add(const Segment& target, u64 n) {
        to.push_back(target);
        pieces.push_back({from.size(), n});
    }
};

// Sums the values of targets whose bitmap and ranks exist, as far as there is room.
inline void sum_values(Queue& queue, const Made& of) {
    const u64 blocks = Queue::blocks_for_tiles(64 * most_words(of.to), 1024 * 8);
    const bool in_blocks = std::any_of(of.from.begin(), of.from.end(), has_whole_halves);
    const Kernel& kernel = in_blocks ? SUM_BLOCKS : SUM_VALUES;
    queue.launch_each(kernel, blocks, of.to, of.pieces, of.from, queue.call.dtype);
}

// Makes bitmap and ranks of targets, unions of their pieces; and sums, where there is room for any.
inline void sum(Queue& queue, const Made& of) {
    const u64 tiles = tiles_summed(64 * most_words(of.to), queue.row_bytes);
    u64* const work = queue.allocate_cleared<u64>((1 + tiles) * of.to.size());
    const bool apart = has_lane_sums(queue.call) && tiles > 1;
    Segments marks = of.to;
    bool summed = false;
    for (Segment& each : marks) {
        summed |= each.values != nullptr;
        if (apart) each.values = nullptr;
    }
    queue.launch_each(SUM, Queue::blocks_for_tiles(tiles, 1), marks, of.pieces, of.from, queue.call.width,
                      queue.call.dtype, work, 1 + tiles);
    if (apart && summed) sum_values(queue, of);
}

static const Kernel SUM_RANGES("zenc_sum_ranges", Typed::BY_BITS);

// Sums the values of targets that have all slots, as their pieces have.
inline void sum_ranges(Queue& queue, const Made& of) {
    const u64 slots = most(of.to, [](const Segment& segment) { return segment.slots; });
    queue.launch_each(SUM_RANGES, Queue::blocks_for(ceil_divide(slots * queue.partition.width, 4)), of.to,
                      of.pieces, of.from, queue.call.width, queue.call.dtype);
}

// Sums the values of targets whose bitmap and ranks exist.
inline void merge(Queue& queue, const Made& of) {
    if (has_lane_sums(queue.call)) return sum_values(queue, of);
    queue.launch_each(MERGE, blocks_for_rows(of.to, queue.row_bytes), of.to, of.pieces, of.from,
                      queue.call.width, queue.call.dtype);
}

// to[i].bitmap = the slots of from[i], filled up for to[i].format. Ranks of `from` exist.
inline void fill(Queue& queue, const Segments& from, const Segments& to) {
    queue.launch_each(FILL, Queue::blocks_for(most_words(to)), to, from);
}

// Makes bitmap and ranks of segments that have all slots and were made without.
inline void mark_ranges(Queue& queue, const Several& which) {
    Several bare;
    for (Held* held : which)
        if (is_range(*held) && held->at.bitmap == nullptr) bare.push_back(held);
    if (bare.empty()) return;
    make_marks(queue, bare);
    if (!queue.ok()) return;
    Segments at = segments_of(bare);
    for (Segment& each : at) each.format = FORMAT_DENSE;
    fill(queue, at, at);
    rank(queue, at);
}

// to[i].bitmap = the slots of from[i] whose rows are not all zero, or not all -0 where absent units are
// `marked`.
inline void mark_nonzero(Queue& queue, const Segments& from, const Segments& to, bool marked) {
    queue.launch_each(MARK_NONZERO, Queue::blocks_for(32 * most_words(to)), to, from, queue.call.width,
                      static_cast<i64>(marked));
}

// Turns zeros of to[i] into -0 in slots that from[i] lacks, and into +0 in others.
inline void mark_absent(Queue& queue, const Segments& from, const Segments& to) {
    const u64 blocks = blocks_for_rows(to, queue.row_bytes);
    queue.launch_each(MARK_ABSENT, blocks, to, from, queue.call.width);
}

static const Kernel SPREAD_VALUES("zenc_spread_values", Typed::BY_BITS);

// to[i].values = the values of from[i] in the slots that to[i] has, +0 where from[i] has none. With single
// values, a `to` without a bitmap has all slots.
inline void spread(Queue& queue, const Segments& from, const Segments& to) {
    if (queue.call.width == 1)
        return queue.launch_each(SPREAD_VALUES, Queue::blocks_for(most_words(to)), to, from);
    const u64 blocks = blocks_for_rows(to, queue.row_bytes);
    queue.launch_each(SPREAD, blocks, to, from, queue.row_bytes);
}

static const Kernel EXPAND_VALUES("zenc_expand_values", Typed::BY_BITS, Ending::GATHER);
static const Kernel EXPAND_DENSE("zenc_expand_dense", Typed::NO, Ending::GATHER);
static const Kernel MARK_FOUND("zenc_mark_found", Typed::NO, Ending::RANK);
static const Kernel EXPAND_UNITS("zenc_expand_units", Typed::NO, Ending::GATHER);

// Writes every unit of call.dense_out; those that it `keeps` are +0 already. Nothing is written if `veto` is
// neither null nor 0.
inline void expand_dense(Queue& queue, const Segments& parts, const u64* veto, bool keeps) {
    const Call& call = queue.call;
    const u64 units = static_cast<u64>(call.units), bytes = queue.row_bytes;
    if (call.width == 1) {
        const u64 words = queue.partition.parts * ceil_divide(most_words(parts), 32) * 32;
        return queue.launch(EXPAND_VALUES, ceil_divide(words, THREADS), 1, queue.partition, parts, veto,
                            static_cast<i64>(keeps), call.dense_out);
    }
    const u64 warps = ceil_divide(units, bytes >= WIDE_ROW ? WIDE_ROWS : 32);
    queue.launch(EXPAND_DENSE, Queue::blocks_for(32 * warps), 1, queue.partition, parts, queue.row_bytes,
                 veto, static_cast<i64>(keeps), call.dense_out);
}

// Writes call.dense_out from parts that have all slots of ascending units.
inline void expand_ranges(Queue& queue, const Segments& parts) {
    const u64 bytes = queue.row_bytes;
    for (const Segment& part : parts) {
        u8* const to = static_cast<u8*>(queue.call.dense_out) + first_unit(queue, part.part) * bytes;
        if (to != part.values) queue.copy(to, part.values, part.slots * bytes);
    }
}

// Returns the units of all parts as one segment, marked and ranked. Ascending units have no need of it.
inline Segment find_units(Queue& queue, const Segments& parts) {
    Segment found = {};
    const Call& call = queue.call;
    if (units_ascend(call)) return found;
    found.slots = static_cast<u64>(call.units);
    found.count = static_cast<u64>(call.count_out);
    found.bitmap = queue.allocate_bitmap(words_of(found.slots));
    found.ranks = queue.allocate<u64>(ranks_of(found.slots));
    queue.clear(found.bitmap, 8 * words_of(found.slots));
    queue.launch(MARK_FOUND, blocks_for_rows(parts, 1), rows_for(parts.size()), queue.partition, parts,
                 Segments{found});
    rank(queue, {found});
    return found;
}

// Writes call.ids_out and call.values_out, of call.count_out units: those of all parts, or of `some`.
inline void expand_units(Queue& queue, const Segments& some) {
    const Call& call = queue.call;
    if (call.count_out == 0) return;
    Segments parts(queue.partition.parts, Segment{});
    for (const Segment& segment : some) parts[segment.part] = segment;
    const Segments found = {find_units(queue, parts)};
    const bool by_parts = found[0].bitmap == nullptr;
    const Segments& rows = by_parts ? parts : found;
    queue.launch(EXPAND_UNITS, blocks_for_rows(rows, queue.row_bytes), rows_for(rows.size()), queue.partition,
                 parts, found, queue.row_bytes, call.ids_out, call.values_out);
}

static const Kernel GROUP_FEW("zenc_group_few");
static const Kernel MAKE_KEYS("zenc_make_keys");
static const Kernel DIGIT_COUNTS("zenc_digit_counts");
static const Kernel SCAN("zenc_scan");
static const Kernel SORT_BY_DIGIT("zenc_sort_by_digit");
static const Kernel ROW_STARTS("zenc_row_starts");

// Inputs grouped by rows: zenc_cuda/duplicates.h.
struct Grouped {
    u64* keys;     // [n], sorted
    u64 shift;     // bits of a position in a key
    u64* starts;   // the first key of each row, and behind them n
    u64* popular;  // the number of rows of more than MOST_INPUTS inputs, and they
};

// Groups the inputs in `slots` [n], which have `distinct` rows, or fewer, in the segments of `parts`.
class Grouping {
public:
    Grouping(Queue& queue, const Segments& parts, const i64* slots, u64 distinct)
        : queue_(queue), n_(static_cast<u64>(queue.call.n)), distinct_(distinct) {
        const u64 shift = bits_below(n_), bits = bits_below(distinct);
        if (shift + bits > 64)
            fail(queue.call, OUT_OF_MEMORY, -1, "%llu units are too many, of which some come several times",
                 n_);
        by_row = {queue.allocate<u64>(n_), shift, queue.allocate<u64>(distinct + 1),
                  queue.allocate<u64>(popular_words(n_))};
        if (n_ <= FEW_INPUTS)
            queue.launch(GROUP_FEW, 1, 1, queue.partition, parts, slots, n_, shift, by_row.keys,
                         by_row.starts, by_row.popular);
        else
            group_many(parts, slots, ceil_divide(bits, DIGIT_BITS));
    }

    // Releases the groups, which nothing uses any more.
    void release() {
        queue_.release(by_row.keys, n_);
        queue_.release(by_row.starts, distinct_ + 1);
    }

    Grouped by_row;

private:
    // Groups by sorting, with 8 more bytes a key, and a quarter of that for counts.
    void group_many(const Segments& parts, const i64* slots, u64 digits) {
        const u64 counted = digit_words(n_), work_words = scan_words(counted);
        u64* other = queue_.allocate<u64>(n_);
        u64* const counts = queue_.allocate<u64>(counted);
        u64* const work = queue_.allocate_cleared<u64>(digits * work_words);
        queue_.launch(MAKE_KEYS, Queue::blocks_for(n_), 1, queue_.partition, parts, slots, n_, by_row.shift,
                      by_row.keys);
        for (u64 digit = 0; digit < digits; ++digit) {
            sort_by(by_row.shift + digit * DIGIT_BITS, other, counts, work + digit * work_words);
            std::swap(by_row.keys, other);
        }
        queue_.release(other, n_);
        queue_.release(counts, counted);
        queue_.clear(by_row.popular, 8);
        queue_.launch(ROW_STARTS, Queue::blocks_for(n_), 1, by_row.keys, n_, by_row.shift, by_row.starts,
                      by_row.popular);
    }

    void sort_by(u64 bit, u64* to, u64* counts, u64* work) {
        const u64 blocks = Queue::blocks_for_tiles(n_, SORT_TILE), numbers = digit_words(n_);
        queue_.launch(DIGIT_COUNTS, blocks, 1, by_row.keys, n_, bit, counts);
        queue_.launch(SCAN, Queue::blocks_for_tiles(numbers, SCAN_TILE), 1, counts, numbers, work);
        queue_.launch(SORT_BY_DIGIT, blocks, 1, by_row.keys, n_, bit, counts, to);
    }

    Queue& queue_;
    const u64 n_, distinct_;
};

}  // namespace zenc
