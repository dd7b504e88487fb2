// This rank's own gradient becomes the segments of all parts: first its bitmap and ranks; then, when the host
// knows the counts, the values.
#pragma once

#include "zenc/compress/search.h"
#include "zenc/hash.h"
#include "zenc_host/capacity.h"

namespace zenc {

static const Kernel MARK_UNITS("zenc_mark_units", Typed::NO, Ending::RANK);
static const Kernel MARK_DENSE("zenc_mark_dense", Typed::BY_BITS, Ending::RANK);
static const Kernel PLACE_ONCE("zenc_place_once", Typed::BY_BITS);
static const Kernel PLACE_SUMMED("zenc_place_summed", Typed::BY_BITS);
static const Kernel PLACE_DENSE("zenc_place_dense", Typed::BY_BITS);
static const Kernel PACK_VALUES("zenc_pack_values", Typed::BY_BITS, Ending::ADMIT);
static const Kernel CLEAR_SIGNS_OF_ZEROS("zenc_clear_signs_of_zeros", Typed::BY_BITS);
static const Kernel TAKE_RANGES("zenc_take_ranges", Typed::BY_BITS);
static const Kernel ADD_BEFORE("zenc_accumulate", Typed::YES);
static const Kernel CLEAR_UNTAKEN("zenc_clear_untaken", Typed::YES);

class Pack {
public:
    Pack(Queue& queue, Capacity& capacity)
        : queue_(queue),
          capacity_(capacity),
          part_words_(queue.call.units == 0 ? 0
                                            : ranked_together(words_of(queue.partition.part_slots.divisor))) {
    }

    // Makes the bitmap of all parts and its ranks; if they are packed in one pass, only the memory for them.
    void mark() {
        add_before();
        const u64 words = queue_.partition.parts * part_words_, ranks = ranks_bytes() / 8;
        ranks_ = queue_.allocate<u64>(ranks + words);
        bitmap_ = ranks_ + ranks;
        queue_.keep_for_bitmaps({reinterpret_cast<u8*>(bitmap_), 8 * words});
        if (is_one_pass()) return;
        clear_untaken();
        queue_.clear(bitmap_, 8 * words);
        whole_ = Segment{};
        whole_.bitmap = bitmap_;
        whole_.ranks = ranks_;
        whole_.slots = whole_.count = 64 * words;
        if (queue_.call.ids != nullptr)
            mark_units();
        else
            mark_dense();
        rank(queue_, {whole_});
    }

    // Gives the segment of part segment.part its bitmap and ranks.
    void show(Segment& segment) const {
        segment.bitmap = bitmap_ + segment.part * part_words_;
        segment.ranks = ranks_ + segment.part * part_ranks();
    }

    // Does so, and leaves the bitmap to the segment.
    void show(Held& held) const {
        show(held.at);
        held.bitmap = {reinterpret_cast<u8*>(held.at.bitmap), 8 * part_words_};
    }

    // Packs single values of a dense tensor: bitmaps, ranks, and values as far as there is room for them.
    void pack_values(const Several& parts) {
        if (!is_one_pass()) return;
        Several ahead;
        for (Held* held : parts) {
            if (!held->counted) held->at.count = guess(held->at.slots);
            if (!held->is_result) ahead.push_back(held);
        }
        make_bodies_ahead(queue_, ahead);
        const Segments table = segments_of(parts);
        const Call& call = queue_.call;
        const u64 tiles = tiles_of_words(64 * most_words(table)), work = 1 + tiles;
        const u64 rows = rows_for(parts.size()), blocks = Queue::blocks_for_tiles(tiles, rows);
        queue_.launch(PACK_VALUES, blocks, rows, queue_.partition, table, call.values, call.dtype,
                      call.divisor, keeps_absent(call), call.taken,
                      queue_.allocate_cleared<u64>(work * parts.size()), work);
    }

    // Whether segments with all slots are ranges of the tensor.
    bool has_ranges(const Several& own) const {
        const Call& call = queue_.call;
        return is_one_pass() && units_ascend(call) && call.values != nullptr && call.agreed == nullptr &&
               !capacity_.on() && !own.empty() && all_ranges(own);
    }

    // Takes the values of segments with all slots: from where they lie in the tensor, if they can be sent
    // from there, else as copies.
    void take_ranges(const Several& own) {
        clear_untaken();
        const Call& call = queue_.call;
        const u64 bytes = queue_.row_bytes;
        Several copied;
        for (Held* held : own) {
            held->valued = true;
            held->lent = keeps_absent(call) != 0 && call.divisor == 1 && held->at.slots * bytes % 8 == 0;
            if (!held->lent) {
                copied.push_back(held);
                continue;
            }
            held->at.format = FORMAT_DENSE;
            held->at.values = static_cast<u8*>(call.dense_out) + first_unit(queue_, held->at.part) * bytes;
            held->at.index = static_cast<u8*>(held->at.values);
        }
        has_signs_ = copied.size() != own.size();
        if (!copied.empty()) clear_signs();
        copy_ranges(copied);
    }

    // Has a code, or a sum, that reads a lent segment clear signs of zeros, if the tensor has some.
    void read_as_meant(Held& held) const {
        const Call& call = queue_.call;
        held.clears = held.lent && has_signs_;
        if (held.clears && call.before != nullptr)
            held.before = call.before + first_unit(queue_, held.at.part) * queue_.partition.width;
    }

    void clear_signs() {
        Call& call = queue_.call;
        add_before();
        if (has_signs_)
            queue_.launch(CLEAR_SIGNS_OF_ZEROS,
                          Queue::blocks_for(ceil_divide(static_cast<u64>(call.units), 4)), 1, call.values,
                          call.units);
        has_signs_ = false;
    }

    // Copies the values of segments with all slots. If it `marks` absent units, zeros are -0.
    void copy_ranges(const Several& own, bool marks = false) {
        const Call& call = queue_.call;
        make_bodies(queue_, own, queue_.row_bytes);
        for (Held* held : own) held->lent = false;
        const Segments table = segments_of(own);
        const u64 slots = most(table, [](const Segment& segment) { return segment.slots; });
        queue_.launch(TAKE_RANGES, Queue::blocks_for(slots), rows_for(table.size()), queue_.partition, table,
                      number_of(table), call.values, call.dtype, call.divisor, static_cast<i64>(marks));
    }

    // Expects `announced` units, each once where there are as many ids. Returns the number of rows for which
    // there has to be room, whatever comes.
    u64 expect(u64 announced) {
        const Call& call = queue_.call;
        const u64 units = static_cast<u64>(call.units), n = static_cast<u64>(call.n);
        distinct_ = announced;
        const u64 most = call.ids == nullptr || n > units ? units : n;
        return most < announced ? announced : most;
    }

    // Remembers the number of values for the next call.
    void learn(const Several& parts) {
        if (!is_one_pass() || queue_.call.agreed != nullptr) return;
        u64& most = queue_.group.packed[about()] = 0;
        for (const Held* held : parts) most = held->at.count > most ? held->at.count : most;
    }

    // On the device: the complement of the smallest position of an id that is out of range, or 0. Null for a
    // dense tensor.
    const u64* status() const { return status_; }

    // Has capacity mode check, before values are placed, that all of `parts` have room; else all are empty.
    void admit(Segments parts) {
        if (is_one_pass()) return capacity_.admit(parts);
        whole_.actual = queue_.allocate<u64>(1);
        if (!queue_.ok()) return;
        parts.push_back(whole_);
        std::vector<Expected> ids;
        if (status_ != nullptr) ids.push_back({status_, 0});
        capacity_.admit(parts, ids);
    }

    // Places the values of the segments of all parts, whose counts, or room, are known.
    void place(const Segments& parts) {
        place_all(parts);
        if (queue_.ok() && slots_ != nullptr) queue_.release(slots_, static_cast<u64>(queue_.call.n));
        slots_ = nullptr;
    }

    // Releases ranks, which no segment uses any more.
    void release_ranks() {
        if (ranks_ == nullptr) return;
        queue_.release(Room{reinterpret_cast<u8*>(ranks_), ranks_bytes()});
        ranks_ = nullptr;
    }

private:
    // Adds `before` to the tensor.
    void add_before() {
        Call& call = queue_.call;
        const u64 values = static_cast<u64>(call.units * call.width);
        auto* const out = static_cast<float*>(const_cast<void*>(call.values));
        const Adding adding = {call.values, call.before, out, nullptr, nullptr, 0, nullptr, 0};
        const u64* const nowhere = nullptr;
        if (call.before != nullptr)
            queue_.launch(ADD_BEFORE, Queue::blocks_for(ceil_divide(values, 8)), 1, adding, values, nowhere,
                          nowhere, nowhere, Selecting{});
        call.before = nullptr;
    }

    // Makes a tensor whole for readers of more than the bits of what is taken.
    void clear_untaken() {
        Call& call = queue_.call;
        if (call.taken == nullptr) return;
        queue_.launch(CLEAR_UNTAKEN, Queue::blocks_for(static_cast<u64>(call.units)), 1, call.values,
                      call.units, call.taken);
        call.taken = nullptr;
    }

    void place_all(const Segments& parts) const {
        const u64 n = static_cast<u64>(queue_.call.n);
        u64 rows = 0;
        for (const Segment& part : parts) rows += part.count;
        if (queue_.call.ids != nullptr && rows > n) rows = n;
        if (rows == 0 || queue_.call.values == nullptr) return;
        if (queue_.call.ids == nullptr)
            place_dense(parts);
        else if (n == (queue_.call.agreed != nullptr ? distinct_ : rows) && !capacity_.on())
            place_once(parts);
        else
            place_summed(parts, rows);
    }

    void mark_units() {
        const Call& call = queue_.call;
        const u64 n = static_cast<u64>(call.n);
        u64* const status = queue_.allocate_cleared<u64>(1);
        status_ = status;
        slots_ = queue_.allocate<i64>(n);
        queue_.launch(MARK_UNITS, Queue::blocks_for(n), 1, queue_.partition, call.ids, call.n,
                      Segments{whole_}, slots_, status);
    }

    void mark_dense() {
        const Call& call = queue_.call;
        const u64 values = static_cast<u64>(call.units) * static_cast<u64>(call.width);
        queue_.launch(MARK_DENSE, Queue::blocks_for(ceil_divide(values, 4)), 1, queue_.partition, call.values,
                      keeps_absent(call), Segments{whole_});
    }

    void place_once(const Segments& parts) const {
        const Call& call = queue_.call;
        const u64 lanes = queue_.row_bytes >= WIDE_ROW ? 32 / WIDE_ROWS : 1;
        queue_.launch(PLACE_ONCE, Queue::blocks_for(lanes * static_cast<u64>(call.n)), 1, queue_.partition,
                      parts, slots_, call.n, call.values, call.dtype, call.divisor);
    }

    // Places rows that are sums of inputs: `most` rows, or fewer in capacity mode.
    void place_summed(const Segments& parts, u64 most) const {
        const Call& call = queue_.call;
        Grouping grouping(queue_, parts, slots_, most);
        const Grouped& by_row = grouping.by_row;
        const u64* const distinct = capacity_.on() ? whole_.actual : ranks_ + ranks_of(whole_.slots) - 1;
        const u64 width = static_cast<u64>(call.width), lanes = width < 32 ? width : 32;
        const u64 popular = popular_words(static_cast<u64>(call.n)) - 1,
                  blocks = Queue::blocks_for(lanes * most);
        const u64 for_popular = popular < POPULAR_BLOCKS ? popular : POPULAR_BLOCKS;
        queue_.launch(PLACE_SUMMED, blocks < for_popular ? for_popular : blocks,
                      rows_for(ceil_divide(width, SUM_COLUMNS)), queue_.partition, parts, slots_, call.values,
                      call.dtype, call.divisor, by_row.keys, by_row.shift, by_row.starts, distinct,
                      by_row.popular);
        grouping.release();
    }

    void place_dense(const Segments& parts) const {
        const Call& call = queue_.call;
        queue_.launch(PLACE_DENSE, blocks_for_rows(parts, queue_.row_bytes), rows_for(parts.size()),
                      queue_.partition, parts, call.values, call.dtype, call.divisor);
    }

    // Whether a dense tensor of single values is marked, ranked and placed in the order of slots.
    bool is_one_pass() const {
        return queue_.call.ids == nullptr && queue_.call.width == 1 && queue_.call.tables == nullptr;
    }

    // The bytes of the ranks in front of the bitmap.
    u64 ranks_bytes() const { return aligned(8 * (queue_.partition.parts * part_ranks() + 1)); }

    // The distance of ranks from part to part. If all are ranked together, a part's last rank is the next's
    // first.
    u64 part_ranks() const { return part_words_ / RANKED_WORDS + (is_one_pass() ? 1 : 0); }

    // The room for values of a part: somewhat more than the last time, or a share of its slots.
    u64 guess(u64 slots) const {
        const auto known = queue_.group.packed.find(about());
        const u64 last = known == queue_.group.packed.end() ? slots / 16 : known->second;
        return last + last / 4 + 64 < slots ? last + last / 4 + 64 : slots;
    }

    // A number that all calls over tensors of one shape share.
    u64 about() const { return queue_.call.signature ^ queue_.call.salt; }

    static constexpr u64 POPULAR_BLOCKS = 128;  // most gradients have few popular rows

    Queue& queue_;
    Capacity& capacity_;
    const u64 part_words_;
    Segment whole_ = {};  // all parts, one behind the other
    u64* bitmap_ = nullptr;
    u64* ranks_ = nullptr;
    i64* slots_ = nullptr;
    const u64* status_ = nullptr;
    u64 distinct_ = 0;  // units that were announced
    bool has_signs_ =
        false;  // zeros of the tensor, which are to be +0, may be -0, and what is to be added is not
};

extern "C" {

// Returns the 64-bit words of the tables, or OUT_OF_RANGE for more units than can be hashed.
ZENC_EXPORT i64 zenc_table_words(i64 units, i64 parts) {
    if (static_cast<u64>(units) > MOST_HASHED_UNITS) return OUT_OF_RANGE;
    return static_cast<i64>(HashTables::words(static_cast<u64>(units), static_cast<u64>(parts)));
}

// Builds tables. They depend on h0 alone, which is the same whatever the number of further functions.
ZENC_EXPORT void zenc_build_tables(u64 seed, i64 units, i64 parts, u64* out) {
    const auto u = static_cast<u64>(units), p = static_cast<u64>(parts);
    HashTables(u, p, out).build(HashFunction(seed, 0), u, p);
}
}

}  // namespace zenc
