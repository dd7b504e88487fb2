// A gradient packed by the launchers, in a device's memory, and fetched from there.
#include "zenc_host/pack.h"

#include <algorithm>
#include <thread>

namespace {

using namespace zenc;

// Waits for all that was put on the stream.
void wait(Queue& queue) {
    Call& call = queue.call;
    CUevent event = nullptr;
    check(call, api.cuEventCreate(&event, 0), "cuEventCreate");
    check(call, api.cuEventRecord(event, queue.stream()), "cuEventRecord");
    CUresult result;
    while ((result = api.cuEventQuery(event)) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
    check(call, result, "the stream");
    api.cuEventDestroy_v2(event);
}

// Host memory `to` [n] = a device's, when that is done with it.
template <class T>
void fetch(Queue& queue, T* to, const void* from, u64 n) {
    if (n == 0) return;
    const CUdeviceptr at = reinterpret_cast<CUdeviceptr>(from);
    check(queue.call, api.cuMemcpyDtoHAsync_v2(to, at, n * sizeof(T), queue.stream()), "a copy");
    wait(queue);
}

u64 word(Queue& queue, const u64* from) {
    u64 found = 0;
    fetch(queue, &found, from, 1);
    return found;
}

}  // namespace

u64 part_words(const Call& of, i64 parts) {
    return ranked_together(
        words_of(static_cast<u64>(*std::max_element(of.part_slots, of.part_slots + parts))));
}

// Writes the bitmap of all parts, the counts [parts], and the rows, one after another. Returns the position
// of an id out of range, or ~0; or ~1 with a message after a failure.
extern "C" u64 pack(const Call* of, i64 parts, u64* bitmap, i64* counts, u8* rows, char* message) {
    Call call = *of;
    static Communicator alone;  // it remembers how many values there were
    Queue queue(call, alone, parts);
    Capacity capacity(queue);
    Pack pack(queue, capacity);
    pack.mark();
    wait(queue);
    std::vector<Held> held(static_cast<u64>(parts));
    Several all;
    for (Held& each : held) {
        each.at.part = static_cast<u64>(&each - held.data());
        each.at.slots = static_cast<u64>(of->part_slots[each.at.part]);
        pack.show(each);
        all.push_back(&each);
    }
    pack.pack_values(all);
    wait(queue);
    const u64 status = pack.status() == nullptr ? ~0ULL : ~word(queue, pack.status());
    Segments segments;
    bool had_room_for_all = true;
    for (Held& each : held) {
        const u64 *const first = each.at.ranks, *const last = first + ranks_of(each.at.slots) - 1;
        each.at.count = set_between(word(queue, first), word(queue, last));
        had_room_for_all &= had_room(each);
        segments.push_back(each.at);
    }
    for (Segment& segment : segments)
        if (!had_room_for_all)
            segment.values = queue.allocate(segment.count * static_cast<u64>(row_bytes(call)));
    pack.learn(all);
    if (status == ~0ULL && !had_room_for_all) pack.place(segments);
    wait(queue);
    for (const Segment& segment : segments) {
        const u64 bytes = segment.count * static_cast<u64>(row_bytes(call));
        fetch(queue, bitmap, segment.bitmap, words_of(segment.slots));
        bitmap += part_words(*of, parts);
        counts[segment.part] = static_cast<i64>(segment.count);
        fetch(queue, rows, segment.values, bytes);
        rows += bytes;
    }
    std::strcpy(message, call.message);
    return ok(call) ? status : ~1ULL;
}
