// The bodies of a step's messages: exactly sized, all in one NCCL group. Rows, whose lengths all ranks know,
// are values without an index.
#pragma once

#include "zenc_host/ownership.h"

namespace zenc {

class Bodies {
public:
    // The bodies of a phase, which have an index in the format `asked` if it `carries` segments.
    Bodies(Queue& queue, Communicator& group, Carries carries, i64 asked)
        : queue_(queue),
          group_(group),
          rows_(carries == ROWS),
          asked_(rows_ ? NOT_SENT : asked),
          unit_bytes_(carries == SETS ? 0 : queue.row_bytes) {}

    // Exchanges the bodies of messages. All segments that are sent have their values, and the counts of those
    // that are received are known. A body travels by itself, from where it lies: one that goes to several
    // ranks is written once. Segments in `spent`, which are sent for the last time and not used otherwise,
    // are released as soon as they can be. The first messages between two ranks compare what these have
    // agreed on.
    void exchange(const Messages& sends, const Messages& receives, Several& spent, PhaseCount& counted,
                  SegmentJobs& workshop, Agreement& agreement) {
        for (const Held* held : segments_in(sends))
            if (held->lent && !is_coded(*held)) workshop.clear_signs();
        write(sends);
        for (Held* held : spent)
            if (queue_.ok()) release_marks(queue_, *held);
        make_room(receives);
        if (!queue_.ok()) return;
        Exchange messages(queue_, group_);
        for (const Messages* all : {&sends, &receives})
            for (const Message& message : *all) agreement.compare(messages, message.peer);
        for (const Message& message : sends)
            for (const Held* held : message.segments)
                messages.send(message.peer, start_of(*held), body(*held));
        for (const Message& message : receives)
            for (const Held* held : message.segments)
                messages.receive(message.peer, start_of(*held), body(*held));
        messages.run();
        if (!queue_.ok()) return;
        release(queue_, spent);
        if (!rows_) read(receives, workshop);
        count(sends, counted.bytes_sent, counted.messages_sent, counted.formats_sent);
        count(receives, counted.bytes_received, counted.messages_received, counted.formats_received);
    }

private:
    i64 format(const Held& held) const { return layout_of(held, asked_, unit_bytes_).format; }
    u64 body(const Held& held) const { return body_bytes(held, asked_, unit_bytes_); }

    // Writes the index of all segments that are sent, once each, and zeros behind their values.
    void write(const Messages& sends) {
        Several written, indexed;
        if (rows_ && unit_bytes_ % 8 == 0) return;
        for (Held* held : segments_in(sends)) {
            if (held->at.format != format(*held)) lay_out_anew(*held);
            if (held->indexed) continue;
            held->indexed = true;
            const bool dense = held->at.format == FORMAT_DENSE;
            if (dense && is_range(*held) && held->at.count * unit_bytes_ % 8 == 0) continue;
            written.push_back(held);
            if (!dense) indexed.push_back(held);
        }
        if (!queue_.ok()) return;
        decode_now(queue_, written);
        mark_ranges(queue_, indexed);
        encode(queue_, segments_of(written));
        for (Held* held : written)
            if (index_is_bitmap(*held)) drop_bitmap(queue_, *held);
    }

    // Lays out a segment anew that came or went in another format, or was not meant to be sent.
    void lay_out_anew(Held& held) {
        if (index_is_bitmap(held)) copy_bitmap(queue_, held);
        const Segment old = held.at;
        const Room body = held.body;
        held.asked = asked_;
        held.indexed = false;
        if (is_coded(held)) return lay_out_bytes_anew(held);
        make_bodies(queue_, {&held}, unit_bytes_);
        if (!queue_.ok()) return;
        queue_.copy(held.at.actual, old.actual, head_bytes(held));
        queue_.copy(held.at.values, old.values, held.at.count * unit_bytes_);
        queue_.release(body);
    }

    void lay_out_bytes_anew(Held& held) {
        const u8* const bytes = held.bytes;
        const Room wire = held.wire;
        make_wires(queue_, {&held});
        if (!queue_.ok()) return;
        queue_.copy(held.bytes, bytes, padded(held.size));
        queue_.release(wire);
    }

    void make_room(const Messages& receives) {
        Several received, coded;
        for (const Message& message : receives) {
            for (Held* held : message.segments) {
                if (!rows_ && !message.counted && !held->counted) know_count(*held, held->at.slots);
                held->asked = asked_;
                held->valued = held->indexed = true;
                (is_coded(*held) ? coded : received).push_back(held);
            }
        }
        make_bodies(queue_, received, unit_bytes_);
        make_wires(queue_, coded);
        Several decoded;
        for (Held* held : coded)
            if (!(held->encoded = may_stay_encoded(*held))) decoded.push_back(held);
        make_meanings(queue_, decoded);
    }

    // Makes bitmaps and ranks of segments that came. It trusts nothing: the next crossing finds faults.
    void read(const Messages& receives, SegmentJobs& workshop) {
        const Several came = segments_in(receives);
        Several marked;
        for (Held* held : came)
            if (!has_no_index(*held)) marked.push_back(held);
        make_marks(queue_, marked);
        if (!queue_.ok() || came.empty()) return;
        const i64* status = decode(queue_, segments_of(marked));
        const u64* broken = decode_values(queue_, came);
        raise_by_scales(queue_, came);
        if (!queue_.ok()) return;
        for (const Message& message : receives) {
            for (const Held* held : message.segments) {
                const i64 part = static_cast<i64>(held->at.part);
                if (!has_no_index(*held))
                    workshop.watch(
                        {reinterpret_cast<const u64*>(status++), 0, CORRUPT_SEGMENT, message.peer, part});
                if (has_one_step(held->code))
                    workshop.watch({broken++, 0, CORRUPT_SEGMENT, message.peer, part});
            }
        }
    }

    // Whether a segment came with all slots, so that there is nothing to decode.
    static bool has_no_index(const Held& held) { return is_range(held) && held.at.format == FORMAT_DENSE; }

    void count(const Messages& of, i64& bytes, i64& messages, i64* formats) const {
        for (const Message& message : of) {
            i64 all = static_cast<i64>(message.control());
            for (const Held* held : message.segments) {
                const i64 size = static_cast<i64>(body(*held));
                all += size;
                formats[format(*held)] += size;
            }
            bytes += all;
            messages += all != 0 || !rows_;  // nobody sends no rows
        }
    }

    Queue& queue_;
    Communicator& group_;
    const bool rows_;
    const i64 asked_;
    const u64 unit_bytes_;
};

}  // namespace zenc
