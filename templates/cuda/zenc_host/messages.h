// Messages of a step: the segments of each, their exchange in NCCL groups, and what goes ahead of bodies, one
// synchronisation with the host: counts of own segments, the status of checks, and the control messages of
// all peers. They are gathered on the device, exchanged, copied in one piece, and awaited.
#pragma once

#include "zenc_host/segments.h"

namespace zenc {

constexpr i64 END = 0;  // instead of the number of a step

struct Message {
    i64 peer;
    Several segments;
    bool announced;  // by a control message
    bool counted;    // which has the counts of the segments

    u64 control() const { return announced ? control_bytes(counted ? segments.size() : 0) : 0; }
};

using Messages = std::vector<Message>;

// The segments of all messages, in order.
inline Several segments_in(const Messages& messages) {
    Several found;
    for (const Message& each : messages)
        found.insert(found.end(), each.segments.begin(), each.segments.end());
    return found;
}

// Has NCCL begin `what`, whose peers are among the awaited ones by now: `post` gets the communicator and the
// stream. It may block, to connect ranks.
template <class Post>
inline void begin(Queue& queue, Communicator& group, const char* what, const Post& post) {
    const CUstream stream = queue.stream();
    if (!queue.ok()) return;
    group.watchdog->arm(queue.call.deadline);
    const ncclResult_t result = post(group.watchdog->communicator(), stream);
    const bool late = !group.watchdog->disarm();
    if (!late && result == ncclSuccess) return;
    const std::string text = what + queue.awaited.text();
    if (late)
        fail(queue.call, DEADLINE_PASSED, queue.awaited.only(),
             "NCCL did not begin within the deadline of %g s with %s", queue.call.deadline / 1e6,
             text.c_str());
    else
        fail(queue.call, NCCL_FAILED, queue.awaited.only(), "%s, failed: %s", text.c_str(),
             api.ncclGetErrorString(result));
}

// Replaces each of words [n] on the device by the greatest of all ranks.
inline void all_reduce_max(Queue& queue, Communicator& group, u64* words, u64 n) {
    for (i64 rank = 0; rank < group.size; ++rank)
        if (rank != group.rank) queue.awaited.add(rank);
    begin(queue, group, "an all-reduce", [&](ncclComm_t nccl, CUstream stream) {
        return api.ncclAllReduce(words, words, n, ncclUint64, ncclMax, nccl, stream);
    });
}

// The messages of one NCCL group: bytes, to and from several ranks. Messages to one rank keep their order.
// Empty ones are not sent: both ranks know which these are.
class Exchange {
public:
    Exchange(Queue& queue, Communicator& group) : queue_(queue), group_(group) {}

    void send(i64 peer, const void* from, u64 bytes) { add({peer, from, nullptr, bytes}); }

    void receive(i64 peer, void* to, u64 bytes) { add({peer, nullptr, to, bytes}); }

    // Puts the messages on the queue.
    void run() {
        if (transfers_.empty()) return;
        for (const Transfer& transfer : transfers_) queue_.awaited.add(transfer.peer);
        begin(queue_, group_, "a group of messages", [this](ncclComm_t nccl, CUstream stream) {
            ncclResult_t result = api.ncclGroupStart();
            for (const Transfer& transfer : transfers_)
                if (result == ncclSuccess) result = transfer.post(nccl, stream);
            const ncclResult_t ended = api.ncclGroupEnd();
            return result == ncclSuccess ? ended : result;
        });
    }

private:
    // A message; `from` is null if it is received.
    struct Transfer {
        i64 peer;
        const void* from;
        void* to;
        u64 bytes;

        ncclResult_t post(ncclComm_t nccl, CUstream stream) const {
            const int rank = static_cast<int>(peer);
            return from != nullptr ? api.ncclSend(from, bytes, ncclUint8, rank, nccl, stream)
                                   : api.ncclRecv(to, bytes, ncclUint8, rank, nccl, stream);
        }
    };

    void add(const Transfer& transfer) {
        if (transfer.bytes != 0) transfers_.push_back(transfer);
    }

    Queue& queue_;
    Communicator& group_;
    std::vector<Transfer> transfers_;
};

// Sends `rows`, which hold as many words for each message as `words` says, and which are gathered first.
// Returns the words that come.
template <class WordsOf>
inline const u64* exchange_words(Queue& queue, Communicator& group, Wanted rows, const Messages& sends,
                                 const Messages& receives, const WordsOf& words) {
    u64 coming = 0;
    for (const Message& message : receives) coming += words(message);
    u64* from = queue.allocate<u64>(rows.size());
    u64* const in = queue.allocate<u64>(coming);
    u64* to = in;
    if (!queue.ok()) return nullptr;
    for (u64 i = 0; i < rows.size(); ++i) rows[i].to = from + i;
    gather(queue, rows);
    Exchange messages(queue, group);
    for (const Message& message : sends) {
        messages.send(message.peer, from, 8 * words(message));
        from += words(message);
    }
    for (const Message& message : receives) {
        messages.receive(message.peer, to, 8 * words(message));
        to += words(message);
    }
    messages.run();
    return in;
}

// A word on the device that is `right` unless something has gone wrong.
struct Watched {
    const u64* word;
    u64 right;
    Outcome otherwise;
    i64 peer;
    i64 part;
};

class HostSync {
public:
    HostSync(Queue& queue, Communicator& group, const Messages& sends = {}, const Messages& receives = {})
        : queue_(queue), group_(group), sends_(sends), receives_(receives) {
        for (const Message& message : receives) in_bytes_ += message.control();
    }

    // Learns the counts of `uncounted` and of all that is received, and sees that nothing is wrong in
    // `watched`; else the call has failed. Wanted numbers come in either case, unless the device has failed.
    void run(i64 step, const Several& uncounted, const std::vector<Watched>& watched, const Wanted& wanted) {
        Wanted own;
        std::vector<u64> seen(watched.size());
        for (Held* held : uncounted) own.push_back(count_of(held->at, &held->at.count));
        for (u64 i = 0; i < watched.size(); ++i) own.push_back({watched[i].word, nullptr, &seen[i]});
        own.insert(own.end(), wanted.begin(), wanted.end());
        const u64 words = in_bytes_ / 8 + own.size();
        u64* const host = static_cast<u64*>(queue_.stage(8 * (words + 1)));
        if (queue_.ok()) host[words] = 0;
        land(own, host);
        await(queue_.call, group_, step == END ? "the end of" : "step " + std::to_string(step) + " of",
              queue_.awaited, host + words);
        queue_.awaited.clear();
        if (!queue_.ok()) return;
        const u64* next = host + in_bytes_ / 8;
        for (const Gathered& each : own) *each.to = *next++;
        for (Held* held : uncounted) held->counted = true;
        for (u64 i = 0; i < watched.size(); ++i) look_at(watched[i], seen[i]);
        read_controls(reinterpret_cast<const u8*>(host));
    }

private:
    ControlHeader header(u64 sender, const Message& message) const {
        const Call& call = queue_.call;
        const u64 units = static_cast<u64>(call.units);
        return {CONTROL_MAGIC, sender, message.segments.size(), call.number, call.signature, units};
    }

    // Has the kernel that gathers controls and wanted numbers write them to the host.
    void land(const Wanted& own, u64* host) {
        const u64* const in = exchange_controls();
        Wanted rows;
        for (u64 i = 0; i < in_bytes_ / 8; ++i) rows.push_back({in + i, nullptr, host++});
        for (const Gathered& each : own) rows.push_back({each.from, each.first, host++});
        rows.push_back({host, nullptr, host});
        gather(queue_, rows);
        const CUstream stream = queue_.stream();
        if (queue_.ok()) check(queue_.call, api.cuEventRecord(group_.ready, stream), "cuEventRecord");
    }

    // Exchanges controls, and returns those that come.
    const u64* exchange_controls() {
        Wanted rows;
        for (const Message& message : sends_) write_control(message, rows);
        return exchange_words(queue_, group_, rows, sends_, receives_,
                              [](const Message& message) { return message.control() / 8; });
    }

    // Writes a header, and the counts that are known; the others are gathered.
    void write_control(const Message& message, Wanted& rows) const {
        if (!message.announced) return;
        const ControlHeader made = header(static_cast<u64>(group_.rank), message);
        u64 words[sizeof made / 8];
        std::memcpy(words, &made, sizeof made);
        for (const u64 word : words) rows.push_back(literal(word));
        for (u64 i = 0; message.counted && i < message.segments.size(); ++i) {
            const Held& held = *message.segments[i];
            rows.push_back(held.counted ? literal(held.at.count) : count_of(held.at));
        }
    }

    void look_at(const Watched& each, u64 found) {
        if (found == each.right || !queue_.ok()) return;
        queue_.call.detail = static_cast<i64>(each.otherwise == BAD_UNIT ? ~found : found);
        if (each.otherwise == BAD_UNIT)
            fail(queue_.call, BAD_UNIT, -1, "the unit id at position %llu is out of range", ~found);
        else if (each.otherwise == DIFFERENT_CALLS)
            fail(queue_.call, DIFFERENT_CALLS, each.peer,
                 "it has chosen other owners for the units of this call");
        else
            fail(queue_.call, each.otherwise, each.peer,
                 "part %lld from rank %lld is not the segment that was announced", each.part, each.peer);
    }

    void read_controls(const u8* host) {
        for (const Message& message : receives_) {
            if (!message.announced) continue;
            ControlHeader found;
            std::memcpy(&found, host, sizeof found);
            demand_same_call(message, found);
            const u64* count = reinterpret_cast<const u64*>(host + sizeof found);
            for (u64 i = 0; message.counted && i < message.segments.size() && queue_.ok(); ++i, ++count) {
                if (*count > message.segments[i]->at.slots)
                    fail(queue_.call, CORRUPT_SEGMENT, message.peer,
                         "rank %lld announced %llu units of %llu slots", message.peer, *count,
                         message.segments[i]->at.slots);
                know_count(*message.segments[i], *count);
            }
            host += message.control();
        }
    }

    void demand_same_call(const Message& message, const ControlHeader& found) {
        const ControlHeader mine = header(static_cast<u64>(message.peer), message);
        if (std::memcmp(&mine, &found, sizeof mine) == 0) return;
        const i64 peer = message.peer;
        if (found.magic != mine.magic || found.sender != mine.sender || found.segments != mine.segments)
            fail(queue_.call, DIFFERENT_CALLS, peer, "it is no message of this version of zenc");
        else if (found.units != mine.units)
            fail(queue_.call, DIFFERENT_CALLS, peer, "its tensor has %llu units, and this rank's has %llu",
                 found.units, mine.units);
        else if (found.signature != mine.signature)
            fail(queue_.call, DIFFERENT_CALLS, peer,
                 "its tensor, name, dtype, operation or scheme differs from this rank's");
        else
            fail(queue_.call, DIFFERENT_CALLS, peer,
                 "it is in call %llu of this group, and this rank in call %llu", found.call, mine.call);
    }

    Queue& queue_;
    Communicator& group_;
    const Messages sends_;
    const Messages receives_;
    u64 in_bytes_ = 0;
};

// Exchanges the sizes of encoded values that depend on the values: known once they are encoded, and then told
// to their receivers. Waits for all that is sent and received, whose counts are known.
inline void exchange_sizes(Queue& queue, Communicator& group, const Messages& sends, const Messages& receives,
                           i64 step, PhaseCount& counted) {
    const auto words = [](const Message& message) { return message.segments.size(); };
    Wanted rows, wanted;
    for (Held* held : segments_in(sends)) {
        const Gathered size = {reinterpret_cast<const u64*>(held->bytes), nullptr, &held->size};
        rows.push_back(held->sized ? literal(held->size) : size);
        if (!held->sized) wanted.push_back(size);
    }
    const u64* const in = exchange_words(queue, group, rows, sends, receives, words);
    std::vector<u64> found(segments_in(receives).size());
    for (u64 i = 0; i < found.size(); ++i) wanted.push_back({in + i, nullptr, &found[i]});
    HostSync(queue, group).run(step, {}, {}, wanted);
    if (!queue.ok()) return;
    for (Held* held : segments_in(sends)) held->sized = true;
    const u64* size = found.data();
    for (const Message& message : receives)
        for (Held* held : message.segments) {
            if (!message.counted && !held->counted) know_count(*held, held->at.slots);
            know_size(*held);
            if (*size > held->size)
                fail(queue.call, CORRUPT_SEGMENT, message.peer,
                     "rank %lld announced %llu bytes of values that take %llu at most", message.peer, *size,
                     held->size);
            held->size = *size++;
            held->sized = true;
        }
    counted.bytes_sent += static_cast<i64>(8 * rows.size());
    counted.bytes_received += static_cast<i64>(8 * found.size());
}

}  // namespace zenc
