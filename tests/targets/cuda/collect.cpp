// The launchers of collect.h on the emulator, whose devices' memory is that of the host; and the words of a
// memory.
#include <thread>

#include "zenc_host/pack.h"

using namespace zenc;

extern "C" void shape(double r1, double r2, u64 n, u64 parts, u64* out) {
    const HashRows rows(r1, r2, n, parts);
    out[0] = rows.parallel, out[1] = rows.serial, out[2] = rows.words(parts);
}

extern "C" i64 collect(Call* call, i64 parts, u64* bitmap, i64* slots, u64* status) {
    Communicator alone;
    Queue queue(*call, alone, parts);
    Segment marked = {};
    marked.bitmap = bitmap;
    collect_units(queue, marked, slots, status, nullptr);
    CUevent event = nullptr;
    check(*call, api.cuEventCreate(&event, 0), "cuEventCreate");
    check(*call, api.cuEventRecord(event, static_cast<CUstream>(call->stream)), "cuEventRecord");
    CUresult result;
    while ((result = api.cuEventQuery(event)) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
    check(*call, result, "the stream");
    api.cuEventDestroy_v2(event);
    return call->outcome;
}
