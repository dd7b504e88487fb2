// The launchers of a call's first half, timed by events on the device: mark and rank, place, encode. And
// copies.
#include "zenc_host/call/segment_state.h"
#include "zenc_host/launch/codec.h"
#include "zenc_host/launch/pack.h"

namespace {

using namespace zenc;

// What a call sequence has no use for.
struct More {
    CUresult (*cuDeviceGet)(int* device, int ordinal);
    CUresult (*cuDevicePrimaryCtxRetain)(CUcontext* context, int device);
    CUresult (*cuMemAlloc_v2)(CUdeviceptr* memory, unsigned long bytes);
    CUresult (*cuMemFree_v2)(CUdeviceptr memory);
    CUresult (*cuStreamCreate)(CUstream* stream, unsigned flags);
    CUresult (*cuStreamSynchronize)(CUstream stream);
    CUresult (*cuEventElapsedTime)(float* milliseconds, CUevent start, CUevent end);
};

More more;
CUstream stream;
char failure[sizeof Call::message];  // the first one

bool good(CUresult result, const char* what) {
    if (result != CUDA_SUCCESS && failure[0] == 0)
        std::snprintf(failure, sizeof failure, "%s failed: %s", what, name_of(result));
    return failure[0] == 0;
}

template <class Function>
bool find(void* library, const char* path, const char* name, Function& function) {
    return bind(library, path, name, function, {failure, sizeof failure});
}

bool find_more(const char* path) {
    void* const library = open_library(path, {failure, sizeof failure});
    return library != nullptr && find(library, path, "cuDeviceGet", more.cuDeviceGet) &&
           find(library, path, "cuDevicePrimaryCtxRetain", more.cuDevicePrimaryCtxRetain) &&
           find(library, path, "cuMemAlloc_v2", more.cuMemAlloc_v2) &&
           find(library, path, "cuMemFree_v2", more.cuMemFree_v2) &&
           find(library, path, "cuStreamCreate", more.cuStreamCreate) &&
           find(library, path, "cuStreamSynchronize", more.cuStreamSynchronize) &&
           find(library, path, "cuEventElapsedTime", more.cuEventElapsedTime);
}

// Points of time on the stream.
class Marks {
public:
    ~Marks() {
        for (const CUevent event : events_) api.cuEventDestroy_v2(event);
    }

    void set() {
        CUevent event = nullptr;
        if (!good(api.cuEventCreate(&event, 0), "cuEventCreate")) return;
        events_.push_back(event);
        good(api.cuEventRecord(event, stream), "cuEventRecord");
    }

    // Milliseconds from one to another, which the stream has passed.
    float between(u64 first, u64 second) const {
        float found = 0;
        if (failure[0] == 0)
            good(more.cuEventElapsedTime(&found, events_[first], events_[second]), "cuEventElapsedTime");
        return found;
    }

private:
    std::vector<CUevent> events_;
};

void wait() {
    good(more.cuStreamSynchronize(stream), "the stream");
}

// One gradient on its way: there are several, so that none is still in a cache when its turn comes again.
struct Set {
    Pack pack;
    std::vector<Held> parts;
    const void* values;
    u64* counts;  // [parts, 2], pinned: the first and the last of the ranks of a part
};

void fetch_counts(Queue& queue, Set& set) {
    set.counts = static_cast<u64*>(queue.staging.take(queue.call, 16 * set.parts.size()));
    for (u64 part = 0; queue.ok() && part < set.parts.size(); ++part) {
        Segment& at = set.parts[part].at;
        at.part = part;
        at.slots = static_cast<u64>(queue.call.part_slots[part]);
        set.pack.show(at);
        for (const bool last : {false, true})
            good(
                api.cuMemcpyDtoHAsync_v2(
                    set.counts + 2 * part + last,
                    reinterpret_cast<CUdeviceptr>(at.ranks + (last ? ranks_of(at.slots) - 1 : 0)), 8, stream),
                "cuMemcpyDtoHAsync");
    }
}

// Bodies of exactly the size that the counts ask for, in the format that suits each part best.
Segments with_bodies(Queue& queue, Set& set) {
    Several several;
    for (u64 part = 0; part < set.parts.size(); ++part) {
        set.parts[part].asked = FORMAT_AUTO;
        know_count(set.parts[part], set_between(set.counts[2 * part], set.counts[2 * part + 1]));
        several.push_back(&set.parts[part]);
    }
    make_bodies(queue, several, static_cast<u64>(row_bytes(queue.call)));
    Segments segments;
    for (const Held& held : set.parts) segments.push_back(held.at);
    return segments;
}

// The times of one run: mark and rank, the counts on their way to the host, place, encode; milliseconds a
// set.
void run(Call& call, i64 parts, i64 sets, u64 set_bytes, float* times, i64* counts) {
    Staging staging;
    Queue queue(call, staging);
    Capacity exactly(queue);
    Marks marks;
    std::vector<Set> all;
    for (i64 i = 0; i < sets; ++i)
        all.push_back({Pack(queue, exactly, parts), std::vector<Held>(static_cast<u64>(parts)),
                       static_cast<const u8*>(call.values) + static_cast<u64>(i) * set_bytes, nullptr});
    const void* const first = call.values;
    const auto for_each = [&](auto work) {
        for (Set& set : all) {
            call.values = set.values;
            work(set);
        }
        call.values = first;
        marks.set();
    };
    std::vector<Segments> segments;
    marks.set();
    for_each([&](Set& set) { set.pack.mark(); });
    for_each([&](Set& set) { fetch_counts(queue, set); });
    wait();
    for (Set& set : all) segments.push_back(with_bodies(queue, set));
    marks.set();
    for_each([&](Set& set) { set.pack.place(segments[static_cast<u64>(&set - all.data())]); });
    for_each([&](Set& set) { encode(queue, segments[static_cast<u64>(&set - all.data())]); });
    wait();
    if (!ok(call) && failure[0] == 0) std::strcpy(failure, call.message);
    times[0] = marks.between(0, 1) / static_cast<float>(sets);
    times[1] = marks.between(1, 3) / static_cast<float>(sets);
    times[2] = marks.between(3, 4) / static_cast<float>(sets);
    times[3] = marks.between(4, 5) / static_cast<float>(sets);
    for (u64 part = 0; part < all[0].parts.size(); ++part)
        counts[part] = static_cast<i64>(all[0].parts[part].at.count);
}

}  // namespace

extern "C" {

// What failed first, or "".
ZENC_EXPORT const char* bench_failure() {
    return failure;
}

ZENC_EXPORT void bench_open(const char* cuda, i64 ordinal) {
    CUcontext context = nullptr;
    int device = 0;
    if (!bind_cuda(cuda, api, {failure, sizeof failure}) || !find_more(cuda)) return;
    if (good(more.cuDeviceGet(&device, static_cast<int>(ordinal)), "cuDeviceGet") &&
        good(more.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain") &&
        good(api.cuCtxSetCurrent(context), "cuCtxSetCurrent"))
        good(more.cuStreamCreate(&stream, 1), "cuStreamCreate");
}

ZENC_EXPORT u64 bench_allocate(u64 bytes) {
    CUdeviceptr memory = 0;
    good(more.cuMemAlloc_v2(&memory, bytes), "cuMemAlloc");
    return memory;
}

ZENC_EXPORT void bench_free(u64 memory) {
    good(more.cuMemFree_v2(memory), "cuMemFree");
}

ZENC_EXPORT void bench_upload(u64 to, const void* from, u64 bytes) {
    good(api.cuMemcpyHtoDAsync_v2(to, from, bytes, stream), "cuMemcpyHtoDAsync");
    wait();
}

// Milliseconds a copy of `bytes` from one half of memory [2, sets, bytes] to the other takes, `sets` in a
// row.
ZENC_EXPORT float bench_copy(u64 memory, u64 bytes, i64 sets) {
    Marks marks;
    marks.set();
    for (u64 i = 0; i < static_cast<u64>(sets); ++i)
        good(api.cuMemcpyDtoDAsync_v2(memory + (static_cast<u64>(sets) + i) * bytes, memory + i * bytes,
                                      bytes, stream),
             "cuMemcpyDtoDAsync");
    marks.set();
    wait();
    return marks.between(0, 1) / static_cast<float>(sets);
}

// `call` has an arena that suffices, and values [sets] of set_bytes each.
ZENC_EXPORT void bench_pack(Call* call, i64 parts, i64 sets, u64 set_bytes, float* times, i64* counts) {
    call->stream = stream;
    if (failure[0] == 0) run(*call, parts, sets, set_bytes, times, counts);
}
}
