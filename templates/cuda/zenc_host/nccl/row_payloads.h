// The messages of a step between ranks that know all lengths: values without an index, all in one NCCL group.
#pragma once

#include "zenc_host/launch/codec.h"
#include "zenc_host/nccl/nccl_group.h"

namespace zenc {

class RowBodies {
public:
    RowBodies(Queue& queue, Communicator& group, u64 unit_bytes)
        : queue_(queue), group_(group), unit_bytes_(unit_bytes) {}

    // All rows that are sent have their values, and the counts of those that are received are known. What is
    // sent for the last time and not used in any other way, `spent`, is released as soon as it can be.
    void exchange(const Messages& sends, const Messages& receives, Several& spent, PhaseCount& counted) {
        fill_up(sends);
        make_room(receives);
        if (!queue_.ok()) return;
        Exchange messages(queue_, group_);
        for (const Message& message : sends)
            for (const Held* held : message.segments)
                messages.send(message.peer, held->at.values, body(*held));
        for (const Message& message : receives)
            for (const Held* held : message.segments)
                messages.receive(message.peer, held->at.values, body(*held));
        messages.run();
        release(queue_, spent);
        count(sends, counted.bytes_sent, counted.messages_sent, counted.formats_sent);
        count(receives, counted.bytes_received, counted.messages_received, counted.formats_received);
    }

private:
    u64 body(const Held& held) const { return padded(held.at.count * unit_bytes_); }

    // Zeros behind the values of what is sent.
    void fill_up(const Messages& sends) {
        if (unit_bytes_ % 8 == 0) return;
        Segments sent;
        for (const Message& message : sends)
            for (const Held* held : message.segments) sent.push_back(held->at);
        if (queue_.ok()) encode(queue_, sent);
    }

    void make_room(const Messages& receives) {
        Several received;
        for (const Message& message : receives) {
            for (Held* held : message.segments) {
                held->valued = true;
                received.push_back(held);
            }
        }
        if (queue_.ok()) make_bodies(queue_, received, unit_bytes_);
    }

    // A message without values is not sent.
    void count(const Messages& of, i64& bytes, i64& messages, i64* formats) const {
        for (const Message& message : of) {
            i64 values = 0;
            for (const Held* held : message.segments) values += static_cast<i64>(body(*held));
            messages += values != 0;
            bytes += values;
            formats[FORMAT_DENSE] += values;
        }
    }

    Queue& queue_;
    Communicator& group_;
    const u64 unit_bytes_;
};

}  // namespace zenc
