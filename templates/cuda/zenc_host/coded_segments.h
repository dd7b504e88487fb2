// Launchers of codes: values of segments to bytes and back, and what that loses, where this rank keeps it.
#pragma once

#include "zenc_host/segment_kernels.h"

namespace zenc {

static const Kernel SCALE_ROWS("zenc_scale_rows", Typed::YES);
static const Kernel ENCODE_ROWS("zenc_encode_rows", Typed::YES);
static const Kernel DECODE_ROWS("zenc_decode_rows", Typed::YES);
static const Kernel KEEP_LOSSES("zenc_keep_losses");

using CodedRows = std::vector<CodedRow>;

// The key of random draws for what is made of a part in a phase, from the contributions of `ranks`
// (zenc/runtime/lossy/losses.py).
inline u64 key_of(u64 salt, u64 seed, u64 phase, u64 part, Numbers ranks) {
    u64 key = salt;
    const auto add = [&](u64 number) { key = mix((key ^ number) + GOLDEN); };
    add(seed), add(phase), add(part);
    for (const i64 rank : ranks) add(static_cast<u64>(rank));
    return key;
}

// Whether a segment still needs the values that its bytes mean: one that is only sent does not.
inline bool is_meant(const Held& held) {
    return held.read || !held.spent;
}

inline CodedRow coded_row(const Held& held) {
    CodedRow row = {};
    row.values = held.taken != nullptr ? const_cast<void*>(held.taken) : held.at.values;
    row.meaning = is_meant(held) ? held.at.values : nullptr;
    row.bytes = held.bytes;
    row.n = held.at.count * held.width;
    row.key = held.by.key;
    row.code = held.code;
    row.how = held.clears ? CLEARS_SIGNS : 0;
    row.before = held.clears ? held.before : nullptr;
    return row;
}

inline u64 most_values(const CodedRows& rows) {
    return most(rows, [](const CodedRow& row) { return row.n; });
}

static const Kernel RAISE_OF_ROWS("zenc_raise_of_rows", Typed::YES);

// Raises the greatest magnitude of the result by segments' values, or by scales that bound these.
inline void raise_greatest(Queue& queue, const Several& segments) {
    CodedRows rows;
    for (Held* held : segments) {
        if (queue.greatest == nullptr || held->seen) continue;
        held->seen = true;
        rows.push_back(coded_row(*held));
        rows.back().values = held->at.values;
        rows.back().n = held->at.count * static_cast<u64>(queue.call.width);
        if (held->bytes == nullptr) rows.back().code = {};
    }
    if (rows.empty()) return;
    queue.launch_each(RAISE_OF_ROWS, Queue::blocks_for(ceil_divide(most_values(rows), 4)), rows,
                      queue.greatest);
}

// raise_greatest for the segments whose scales bound their values.
inline void raise_by_scales(Queue& queue, const Several& segments) {
    Several told;
    for (Held* held : segments)
        if (scales_tell(held->code)) told.push_back(held);
    raise_greatest(queue, told);
}

static const Kernel CODE_CHUNKS("zenc_code_chunks");
static const Kernel JOIN_CHUNKS("zenc_join_chunks");
static const Kernel DECODE_CHUNKS("zenc_decode_chunks");

// The rows that the range coder codes, and as many blocks as give each chunk a warp.
struct ChunkedRows {
    CodedRows rows;
    u64 blocks = 0;

    explicit ChunkedRows(const CodedRows& all) {
        for (const CodedRow& row : all)
            if (row.code.number == ASC_CODE && row.n != 0) rows.push_back(row);
        if (!rows.empty()) blocks = Queue::blocks_for(32 * ceil_divide(most_values(rows), CHUNK));
    }

    void start(Queue& queue, const Kernel& kernel) const { queue.launch_each(kernel, blocks, rows); }
};

// Decodes the segments that have a code. Returns a word for each of them with one step for all values: 0
// unless its bytes can't be an encoder's.
inline const u64* decode_values(Queue& queue, const Several& segments) {
    CodedRows rows;
    u64 checked = 0;
    for (const Held* held : segments) {
        if (!is_coded(*held) || held->encoded) continue;
        rows.push_back(coded_row(*held));
        checked += has_one_step(held->code);
        if (held->code.number == ASC_CODE) rows.back().code.block = static_cast<i64>(held->size);
    }
    if (rows.empty()) return nullptr;
    u64* const broken = queue.allocate_cleared<u64>(checked);
    u64* next = broken;
    for (CodedRow& row : rows)
        if (has_one_step(row.code)) row.facts = next++;
    queue.launch_each(DECODE_ROWS, Queue::blocks_for(most_values(rows)), rows);
    ChunkedRows(rows).start(queue, DECODE_CHUNKS);
    return broken;
}

// Whether bytes that come may stay encoded until somebody needs their values: bytes of all slots in blocks,
// which sums can read.
inline bool may_stay_encoded(const Held& held) {
    return is_range(held) && has_scales(held.code) && !has_one_step(held.code);
}

// Decodes the segments that are there as bytes alone.
inline void decode_now(Queue& queue, const Several& segments) {
    Several encoded;
    for (Held* held : segments)
        if (held->encoded) encoded.push_back(held), held->encoded = false;
    if (encoded.empty()) return;
    make_meanings(queue, encoded);
    if (queue.ok()) decode_values(queue, encoded);
}

static const Kernel SUM_ROWS("zenc_sum_rows", Typed::YES);

// Makes the values of `to`, which have all slots: sums of pieces, some of which are there as bytes alone.
inline void sum_rows(Queue& queue, const Several& to, const std::vector<Pieces>& pieces,
                     const Several& from) {
    CodedRows targets, rows;
    Coding code;
    const auto row_of = [&](const Held& held) {
        CodedRow row = coded_row(held);
        row.values = held.at.values;
        row.n = held.at.count * static_cast<u64>(queue.call.width);
        if (!held.encoded) row.code = {};
        return row;
    };
    for (const Held* held : from) {
        rows.push_back(row_of(*held));
        if (held->encoded) code = held->code;
    }
    for (const Held* held : to) {
        targets.push_back(row_of(*held));
        targets.back().code = code;
    }
    queue.launch_each(SUM_ROWS, Queue::blocks_for(ceil_divide(most_values(targets), 4)), targets, pieces,
                      rows);
}

// Defines the residual of a part: as zeros, unless it `is_set` by what comes next.
inline void define_residual(Queue& queue, u64 part, bool is_set) {
    if (part >= queue.undefined.size() || !queue.undefined[part]) return;
    queue.undefined[part] = false;
    const Call& call = queue.call;
    const u64 width = queue.partition.width;
    if (!is_set)
        queue.clear(call.residual + first_unit(queue, part) * width,
                    4 * static_cast<u64>(call.part_slots[part]) * width);
}

inline void define_residuals(Queue& queue) {
    for (u64 part = 0; part < queue.undefined.size(); ++part) define_residual(queue, part, false);
}

// The losses of segments that this rank keeps: in place where a segment is all of a part whose units ascend,
// else in room of its own, which is added to the residual at its units.
class KeptLosses {
public:
    explicit KeptLosses(Queue& queue) : queue_(queue) {}

    // Gives each row whose losses this rank keeps a place for them, which it may be told to set.
    void place(const Several& segments, CodedRows& rows) {
        const Call& call = queue_.call;
        u64 values = 0;
        for (u64 i = 0; i < rows.size() && call.residual != nullptr; ++i) {
            const Segment& at = segments[i]->at;
            if (!segments[i]->by.keeps) continue;
            if (at.count != at.slots || !units_ascend(call)) {
                scattered_.push_back(i), values += rows[i].n;
                define_residuals(queue_);
                continue;
            }
            rows[i].loss = call.residual + first_unit(queue_, at.part) * queue_.partition.width;
            const bool sets = at.part < queue_.undefined.size() && queue_.undefined[at.part] &&
                              rows[i].code.number != NOT_CODED && !has_one_step(rows[i].code);
            if (sets) rows[i].how |= SETS_LOSS;
            define_residual(queue_, at.part, sets);
        }
        room_ = {reinterpret_cast<u8*>(queue_.allocate<float>(values)), Queue::whole(4 * values)};
        queue_.clear(room_.at, 4 * values);
        auto* next = reinterpret_cast<float*>(room_.at);
        for (const u64 i : scattered_) {
            rows[i].loss = next;
            next += rows[i].n;
        }
    }

    // Adds the losses in room of their own to the residual.
    void keep(const Several& segments, const CodedRows& rows) {
        if (scattered_.empty()) return;
        Segments of;
        CodedRows lost;
        for (const u64 i : scattered_) {
            of.push_back(segments[i]->at);
            lost.push_back(rows[i]);
        }
        queue_.launch(KEEP_LOSSES, blocks_for_rows(of, 4 * queue_.partition.width), rows_for(of.size()),
                      queue_.partition, of, lost, number_of(of), queue_.call.residual);
        queue_.release(room_);
    }

private:
    Queue& queue_;
    std::vector<u64> scattered_;
    Room room_;
};

// Keeps only the selected units of segments. `wait` is called once all that is needed is on the stream, and
// returns when the device has passed it.
template <class Wait>
inline void choose_values(Queue& queue, const Several& segments, Wait wait) {
    if (!units_ascend(queue.call)) mark_ranges(queue, segments);
    CodedRows rows;
    for (const Held* held : segments) {
        CodedRow row = {};
        row.values = held->at.values;
        row.n = held->at.count * queue.partition.width;
        rows.push_back(row);
    }
    KeptLosses losses(queue);
    losses.place(segments, rows);
    wait();
    Call& call = queue.call;
    for (u64 i = 0; i < rows.size() && queue.ok(); ++i) {
        const Segment& at = segments[i]->at;
        const Losing& by = segments[i]->by;
        const i64 slots = static_cast<i64>(at.slots), n = static_cast<i64>(at.count);
        if (n != 0 && call.choose(call.user, by.place, slots, n, at.values, rows[i].loss, by.key) == 0)
            fail(call, CUDA_FAILED, -1, "units of part %llu could not be selected", at.part);
    }
    losses.keep(segments, rows);
}

// Encodes segments, whose values become those that the bytes mean.
inline void encode_values(Queue& queue, const Several& segments) {
    if (!units_ascend(queue.call)) mark_ranges(queue, segments);
    CodedRows rows;
    bool scaled = false;
    u64 blocks = 1;
    for (const Held* held : segments) {
        const Coding& code = held->code;
        CodedRow row = coded_row(*held);
        if (has_one_step(code)) {
            row.facts = queue.allocate_cleared<u64>(2);
            if (code.number == ASC_CODE)
                row.work = queue.allocate<u8>(ceil_divide(row.n, CHUNK) * chunk_room(code));
            blocks = std::max(blocks, ceil_divide(row.n, 128));
            scaled = true;
        }
        if (has_scales(code) && span_of(code) == 0) {
            scaled = true;
            blocks = std::max(blocks, ceil_divide(row.n, static_cast<u64>(code.block)));
        }
        rows.push_back(row);
    }
    KeptLosses losses(queue);
    losses.place(segments, rows);
    if (scaled) queue.launch_each(SCALE_ROWS, Queue::blocks_for(32 * blocks), rows);
    queue.launch_each(ENCODE_ROWS, Queue::blocks_for(ceil_divide(most_values(rows), 4)), rows);
    const ChunkedRows chunked(rows);
    chunked.start(queue, CODE_CHUNKS);
    chunked.start(queue, JOIN_CHUNKS);
    for (const CodedRow& row : chunked.rows)
        queue.release(row.work, ceil_divide(row.n, CHUNK) * chunk_room(row.code));
    losses.keep(segments, rows);
    raise_by_scales(queue, segments);
}

}  // namespace zenc
