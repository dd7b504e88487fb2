// Synchronisation with the host, once a step: counts of own segments, the status of checks, and the control
// messages of all peers. They are gathered on the device, exchanged, copied in one piece, and awaited.
#pragma once

#include "zenc_host/nccl/nccl_group.h"

namespace zenc {

constexpr i64 END = 0;  // instead of the number of a step

// What a call waits for, for those who wait in vain: "step 3 of call 7, which receives from ranks 1, 2".
struct Awaited {
    i64 step;
    const Messages& receives;

    void describe(u64 call, char* text, u64 size) const {
        u64 at = 0;
        const auto add = [&](const char* format, auto... words) {
            if (at < size) at += static_cast<u64>(std::snprintf(text + at, size - at, format, words...));
        };
        if (step == END)
            add("the end of call %llu", call);
        else
            add("step %lld of call %llu", step, call);
        if (!receives.empty()) add(", which receives from rank%s", receives.size() == 1 ? "" : "s");
        for (u64 i = 0; i < receives.size(); ++i) add("%s %lld", i == 0 ? "" : ",", receives[i].peer);
    }

    i64 peer() const { return receives.size() == 1 ? receives[0].peer : -1; }
};

// A word on the device that is `right` unless something is wrong.
struct Watched {
    const u64* word;
    u64 right;
    Outcome otherwise;
    i64 peer;
    i64 part;
};

// A number on the device that the host wants in `to`; of ranks, where `first` is not null, the bits that are
// set from that one on.
struct Wanted {
    const u64* word;
    const u64* first;
    u64* to;
};

class HostSync {
public:
    HostSync(Queue& queue, Communicator& group, const Messages& sends, const Messages& receives)
        : queue_(queue), group_(group), sends_(sends), receives_(receives) {
        for (const Message& message : receives) in_bytes_ += message.control();
    }

    // Ends with the counts of `uncounted` and of all that is received, and nothing wrong in `watched`; or
    // with a failure. What is wanted is there in either case, unless the device has failed.
    void run(i64 step, const Several& uncounted, const std::vector<Watched>& watched,
             const std::vector<Wanted>& wanted) {
        const u64 own_words = uncounted.size() + watched.size() + wanted.size();
        const u64 crossing = in_bytes_ + 8 * own_words;
        const u8* const host = static_cast<u8*>(queue_.stage(crossing));
        const u8* const controls = write_controls();
        const u8* from = watched_in_place(uncounted, watched, wanted);
        if (from == nullptr && queue_.ok()) {
            u8* const device = queue_.allocate<u8>(crossing);
            if (!queue_.ok()) return;
            gather_own(uncounted, watched, wanted, reinterpret_cast<u64*>(device + in_bytes_));
            exchange(controls, device);
            from = device;
        }
        cross(from, const_cast<u8*>(host), crossing);
        const Awaited what = {step, receives_};
        await(queue_.call, group_, group_.there, what.peer(),
              [&](char* text, u64 size) { what.describe(queue_.call.number, text, size); });
        queue_.in_flight = false;
        if (queue_.ok()) read(host, uncounted, watched, wanted);
    }

private:
    ControlHeader header(u64 sender, const Message& message) const {
        const Call& call = queue_.call;
        const u64 units = static_cast<u64>(call.units);
        return {CONTROL_MAGIC, sender, message.segments.size(), call.number, call.signature, units};
    }

    // Headers, and counts as far as they are known; the others are gathered.
    const u8* write_controls() {
        u64 words = 0;
        for (const Message& message : sends_) words += message.control() / 8;
        u64* const device = queue_.allocate<u64>(words);
        u64* next = device;
        for (const Message& message : sends_) {
            if (!message.announced) continue;
            const ControlHeader made = header(static_cast<u64>(group_.rank), message);
            u64 header_words[sizeof made / 8];
            std::memcpy(header_words, &made, sizeof made);
            for (const u64 word : header_words) rows_.push_back(literal(word, next++));
            for (u64 i = 0; message.counted && i < message.segments.size(); ++i) {
                const Held& held = *message.segments[i];
                if (held.counted)
                    rows_.push_back(literal(held.at.count, next++));
                else
                    gather_count(held, next++);
            }
        }
        return reinterpret_cast<const u8*>(device);
    }

    // Where all that crosses lies side by side already: statuses of one kernel; else null.
    const u8* watched_in_place(const Several& uncounted, const std::vector<Watched>& watched,
                               const std::vector<Wanted>& wanted) const {
        if (!sends_.empty() || !receives_.empty() || !uncounted.empty() || !wanted.empty()) return nullptr;
        for (u64 i = 0; i < watched.size(); ++i)
            if (watched[i].word != watched[0].word + i) return nullptr;
        return watched.empty() ? nullptr : reinterpret_cast<const u8*>(watched[0].word);
    }

    void gather_count(const Held& held, u64* to) {
        rows_.push_back({held.at.ranks + ranks_of(held.at.slots) - 1, held.at.ranks, to});
    }

    void gather_own(const Several& uncounted, const std::vector<Watched>& watched,
                    const std::vector<Wanted>& wanted, u64* to) {
        for (const Held* held : uncounted) gather_count(*held, to++);
        for (const Watched& each : watched) rows_.push_back({each.word, nullptr, to++});
        for (const Wanted& each : wanted) rows_.push_back({each.word, each.first, to++});
        gather(queue_, rows_);
    }

    void exchange(const u8* from, u8* to) {
        Exchange messages(queue_, group_);
        for (const Message& message : sends_) {
            messages.send(message.peer, from, message.control());
            from += message.control();
        }
        for (const Message& message : receives_) {
            messages.receive(message.peer, to, message.control());
            to += message.control();
        }
        messages.run();
    }

    // On the side stream, so that the call's own stream has nothing to wait for.
    void cross(const u8* device, u8* host, u64 bytes) {
        const CUstream side = static_cast<CUstream>(queue_.call.side);
        const CUdeviceptr from = reinterpret_cast<CUdeviceptr>(device);
        if (!queue_.ok()) return;
        Call& call = queue_.call;
        if (!check(call, api.cuEventRecord(group_.ready, queue_.stream), "cuEventRecord")) return;
        if (!check(call, api.cuStreamWaitEvent(side, group_.ready, 0), "cuStreamWaitEvent")) return;
        if (bytes != 0) check(call, api.cuMemcpyDtoHAsync_v2(host, from, bytes, side), "cuMemcpyDtoHAsync");
        check(call, api.cuEventRecord(group_.there, side), "cuEventRecord");
    }

    void read(const u8* host, const Several& uncounted, const std::vector<Watched>& watched,
              const std::vector<Wanted>& wanted) {
        const u64* own = reinterpret_cast<const u64*>(host + in_bytes_);
        for (Held* held : uncounted) know_count(*held, *own++);
        for (const Watched& each : watched) look_at(each, *own++);
        for (const Wanted& each : wanted) *each.to = *own++;
        for (const Message& message : receives_) {
            if (message.announced) read_control(message, host);
            host += message.control();
        }
    }

    void look_at(const Watched& each, u64 found) {
        if (found == each.right || !queue_.ok()) return;
        queue_.call.detail = static_cast<i64>(found);
        if (each.otherwise == BAD_UNIT)
            fail(queue_.call, BAD_UNIT, -1, "the unit id at position %llu is out of range", found);
        else
            fail(queue_.call, each.otherwise, each.peer,
                 "part %lld from rank %lld is not the segment that was announced", each.part, each.peer);
    }

    void read_control(const Message& message, const u8* host) {
        ControlHeader found;
        std::memcpy(&found, host, sizeof found);
        demand_same_call(message, found);
        for (u64 i = 0; message.counted && i < message.segments.size() && queue_.ok(); ++i) {
            u64 count;
            std::memcpy(&count, host + sizeof found + 8 * i, 8);
            Held& held = *message.segments[i];
            if (count > held.at.slots)
                fail(queue_.call, CORRUPT_SEGMENT, message.peer,
                     "rank %lld announced %llu units of %llu slots", message.peer, count, held.at.slots);
            know_count(held, count);
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
                 "its tensor, dtype, operation or scheme differs from this rank's");
        else
            fail(queue_.call, DIFFERENT_CALLS, peer,
                 "it is in call %llu of this group, and this rank in call %llu", found.call, mine.call);
    }

    Queue& queue_;
    Communicator& group_;
    const Messages& sends_;
    const Messages& receives_;
    std::vector<Gathered> rows_;
    u64 in_bytes_ = 0;
};

// Numbers that cross to the host at the end of a call in capacity mode: at once, or whenever it is replayed.
// It is on the device, unless `on_device` is null: then it is known.
struct Number {
    u64 known;
    const u64* on_device;
};

// Of a captured call they go to call.report with every replay. Else this waits for them, and returns them.
inline const u64* report_numbers(Queue& queue, Communicator& group, const std::vector<Number>& numbers) {
    Call& call = queue.call;
    const bool captured = call.report != nullptr;
    const u64 bytes = 8 * numbers.size();
    u64* const host = captured ? call.report : static_cast<u64*>(queue.stage(bytes));
    u64* const device = queue.allocate<u64>(numbers.size());
    std::vector<Gathered> rows;
    for (const Number& each : numbers) {
        u64* const to = device + rows.size();
        rows.push_back(each.on_device ? Gathered{each.on_device, nullptr, to} : literal(each.known, to));
    }
    gather(queue, rows);
    if (!queue.ok()) return nullptr;
    const CUdeviceptr from = reinterpret_cast<CUdeviceptr>(device);
    check(call, api.cuMemcpyDtoHAsync_v2(host, from, bytes, queue.stream), "cuMemcpyDtoHAsync");
    if (captured || !queue.ok()) return host;
    check(call, api.cuEventRecord(group.there, queue.stream), "cuEventRecord");
    await(call, group, group.there, -1,
          [&](char* text, u64 size) { Awaited{END, {}}.describe(call.number, text, size); });
    return host;
}

}  // namespace zenc
