// NCCL for the calls of one rank without its peers: what it received once is kept on the device, and comes
// from there when it asks again. Before that all goes to the NCCL at the path NCCL; the driver is at the path
// DRIVER. In exact mode only: no all-reduce is kept.
#include <map>
#include <mutex>
#include <vector>

#include "zenc_host/driver.h"

using namespace zenc;

namespace {

constexpr ncclResult_t SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5;
constexpr int NOBODY = -1;

struct Kept {
    CUdeviceptr memory;
    u64 bytes;
};

struct Received {
    void* to;
    u64 bytes;
    CUstream stream;
};

Api inner;
CUresult (*cuMemAlloc)(CUdeviceptr* memory, unsigned long bytes);
CUresult (*cuMemFree)(CUdeviceptr memory);
std::mutex mutex;  // of the ranks
std::map<ncclComm_t, int> ranks;
int recorded = NOBODY;
bool replays = false;
std::vector<Kept> kept;  // of the recorded rank, in the order in which it asked
u64 next = 0;
thread_local std::vector<Received> received;  // since the group began, until it is on the stream

bool bind_all() {
    static char why[256];
    static const bool bound = [] {
        const ErrorText error = {why, sizeof why};
        if (!bind_cuda(DRIVER, inner, error) || !bind_nccl(NCCL, inner, error)) return false;
        void* const library = open_library(DRIVER, error);
        return bind(library, DRIVER, "cuMemAlloc_v2", cuMemAlloc, error) &&
               bind(library, DRIVER, "cuMemFree_v2", cuMemFree, error);
    }();
    if (!bound) std::fprintf(stderr, "%s\n", why);
    return bound;
}

bool is_recorded(ncclComm_t communicator) {
    const std::lock_guard lock(mutex);
    const auto found = ranks.find(communicator);
    return recorded != NOBODY && found != ranks.end() && found->second == recorded;
}

// Keeps what a group has received, behind it on its stream.
ncclResult_t keep() {
    for (const Received& each : received) {
        CUdeviceptr memory = 0;
        if (cuMemAlloc(&memory, each.bytes) != CUDA_SUCCESS) return SYSTEM_ERROR;
        const CUdeviceptr from = reinterpret_cast<CUdeviceptr>(each.to);
        if (inner.cuMemcpyDtoDAsync_v2(memory, from, each.bytes, each.stream) != CUDA_SUCCESS)
            return SYSTEM_ERROR;
        kept.push_back({memory, each.bytes});
    }
    received.clear();
    return ncclSuccess;
}

ncclResult_t kept_if_done(ncclResult_t result) {
    return result == ncclSuccess && !received.empty() ? keep() : result;
}

ncclResult_t replay(void* to, u64 bytes, CUstream stream) {
    if (next == kept.size() || kept[next].bytes != bytes) return INVALID_ARGUMENT;
    const CUdeviceptr into = reinterpret_cast<CUdeviceptr>(to);
    const CUresult copied = inner.cuMemcpyDtoDAsync_v2(into, kept[next++].memory, bytes, stream);
    return copied == CUDA_SUCCESS ? ncclSuccess : SYSTEM_ERROR;
}

}  // namespace

extern "C" {

// Keeps the messages that `rank` receives from now on, in place of those that were kept.
ZENC_EXPORT void replay_record(int rank) {
    recorded = rank;
    replays = false;
    for (const Kept& each : kept) cuMemFree(each.memory);
    kept.clear();
}

// Leaves the recorded rank without peers from now on. Its requests begin anew: returns the bytes that it had
// asked for since it last did.
ZENC_EXPORT u64 replay_begin() {
    replays = true;
    const u64 before = next;
    next = 0;
    return before;
}

// Returns the number of messages that are kept, and in `bytes` their size together.
ZENC_EXPORT u64 replay_kept(u64* bytes) {
    *bytes = 0;
    for (const Kept& each : kept) *bytes += each.bytes;
    return kept.size();
}

ZENC_EXPORT const char* ncclGetErrorString(ncclResult_t result) {
    return inner.ncclGetErrorString(result);
}

ZENC_EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    return bind_all() ? inner.ncclGetUniqueId(id) : SYSTEM_ERROR;
}

ZENC_EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int size, ncclUniqueId id, int rank,
                                                ncclConfig_t* config) {
    if (!bind_all()) return SYSTEM_ERROR;
    const ncclResult_t result = inner.ncclCommInitRankConfig(communicator, size, id, rank, config);
    const std::lock_guard lock(mutex);
    if (*communicator != nullptr) ranks[*communicator] = rank;
    return result;
}

ZENC_EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* error) {
    *error = ncclSuccess;
    if (replays) return ncclSuccess;
    const ncclResult_t result = inner.ncclCommGetAsyncError(communicator, error);
    *error = kept_if_done(*error);
    return result;
}

ZENC_EXPORT ncclResult_t ncclCommAbort(ncclComm_t communicator) {
    return inner.ncclCommAbort(communicator);
}

ZENC_EXPORT ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
    return inner.ncclCommDestroy(communicator);
}

ZENC_EXPORT ncclResult_t ncclGroupStart() {
    return replays ? ncclSuccess : inner.ncclGroupStart();
}

ZENC_EXPORT ncclResult_t ncclGroupEnd() {
    return replays ? ncclSuccess : kept_if_done(inner.ncclGroupEnd());
}

ZENC_EXPORT ncclResult_t ncclSend(const void* from, unsigned long count, int type, int peer,
                                  ncclComm_t communicator, CUstream stream) {
    return replays ? ncclSuccess : inner.ncclSend(from, count, type, peer, communicator, stream);
}

ZENC_EXPORT ncclResult_t ncclRecv(void* to, unsigned long count, int type, int peer, ncclComm_t communicator,
                                  CUstream stream) {
    if (replays) return replay(to, count, stream);
    if (is_recorded(communicator)) received.push_back({to, count, stream});
    return inner.ncclRecv(to, count, type, peer, communicator, stream);
}

ZENC_EXPORT ncclResult_t ncclAllReduce(const void* from, void* to, unsigned long words, int type, int op,
                                       ncclComm_t communicator, CUstream stream) {
    if (replays) return INVALID_USAGE;
    return inner.ncclAllReduce(from, to, words, type, op, communicator, stream);
}
}
