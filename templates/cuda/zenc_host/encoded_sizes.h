// The bytes of encoded values that depend on them: known when they are encoded, and then to their receivers.
#pragma once

#include "zenc_host/messages.h"

namespace zenc {

class EncodedSizes {
public:
    EncodedSizes(Queue& queue, Communicator& group, const Messages& sends, const Messages& receives)
        : queue_(queue), group_(group), sends_(sends), receives_(receives) {}

    // Waits for the sizes of what is sent and received, whose counts are known.
    void exchange(i64 step, PhaseCount& counted) {
        const u64 leaving = words(sends_), coming = words(receives_);
        u64* const out = queue_.allocate<u64>(leaving);
        u64* const in = queue_.allocate<u64>(coming);
        if (!queue_.ok()) return;
        write(out);
        post(out, in);
        std::vector<Wanted> wanted;
        std::vector<u64> found(coming);
        for (const Message& message : sends_)
            for (Held* held : message.segments)
                if (!held->sized) wanted.push_back({first_word(*held), nullptr, &held->size});
        for (u64 i = 0; i < coming; ++i) wanted.push_back({in + i, nullptr, &found[i]});
        HostSync(queue_, group_).run(step, {}, {}, wanted);
        if (!queue_.ok()) return;
        for (const Message& message : sends_)
            for (Held* held : message.segments) held->sized = true;
        learn(found.data());
        counted.bytes_sent += static_cast<i64>(8 * leaving);
        counted.bytes_received += static_cast<i64>(8 * coming);
    }

private:
    static u64 words(const Messages& messages) {
        u64 found = 0;
        for (const Message& message : messages) found += message.segments.size();
        return found;
    }

    // Encoded values begin with it.
    static const u64* first_word(const Held& held) { return reinterpret_cast<const u64*>(held.bytes); }

    void write(u64* out) {
        std::vector<Gathered> rows;
        for (const Message& message : sends_)
            for (const Held* held : message.segments)
                rows.push_back(held->sized ? literal(held->size, out + rows.size())
                                           : Gathered{first_word(*held), nullptr, out + rows.size()});
        gather(queue_, rows);
    }

    void post(const u64* out, u64* in) {
        Exchange messages(queue_, group_);
        for (const Message& message : sends_) {
            messages.send(message.peer, out, 8 * message.segments.size());
            out += message.segments.size();
        }
        for (const Message& message : receives_) {
            messages.receive(message.peer, in, 8 * message.segments.size());
            in += message.segments.size();
        }
        messages.run();
    }

    void learn(const u64* size) {
        for (const Message& message : receives_) {
            for (Held* held : message.segments) {
                if (!message.counted && !held->counted) know_count(*held, held->at.slots);
                know_size(*held);
                if (*size > held->size)
                    fail(queue_.call, CORRUPT_SEGMENT, message.peer,
                         "rank %lld announced %llu bytes of values that take %llu at most", message.peer,
                         *size, held->size);
                held->size = *size++;
                held->sized = true;
            }
        }
    }

    Queue& queue_;
    Communicator& group_;
    const Messages& sends_;
    const Messages& receives_;
};

}  // namespace zenc
