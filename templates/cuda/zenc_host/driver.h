// CUDA's driver API and NCCL, as far as the call sequence uses them: declared here, bound by dlsym at run
// time; what becomes of a call of theirs that fails; and waits of the host, each with a deadline. So the
// sequence needs no toolkit to be built, and a stand-in can take the place of either library.
//
// Declared after the headers of CUDA 12.0 and of NCCL 2.28. That the libraries are new enough is seen before
// (zenc/runtime/gpu/driver.py).
#pragma once

#include <dlfcn.h>
#include <sched.h>
#include <time.h>

#include <cstdio>
#include <cstring>
#include <mutex>

#include "zenc/entry_points.h"
#include "zenc_host/call_args.h"

namespace zenc {

using CUresult = int;
using CUdeviceptr = u64;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphExec = struct CUgraphExec_st*;

constexpr CUresult CUDA_SUCCESS = 0;
constexpr CUresult CUDA_ERROR_NOT_READY = 600;
constexpr unsigned CU_EVENT_DISABLE_TIMING = 2;
constexpr unsigned CU_STREAM_NON_BLOCKING = 1;
constexpr int CU_STREAM_CAPTURE_STATUS_NONE = 0;
constexpr int CU_STREAM_CAPTURE_MODE_RELAXED = 2;

using ncclResult_t = int;
using ncclComm_t = struct ncclComm*;

struct ncclUniqueId {
    char internal[NCCL_ID_BYTES];
};

// ncclConfig_t as NCCL 2.18 has it: later versions take shorter structures, told by `size`, and give fields
// that came after `version` their defaults. A field of 2.25 lies in what is padding here, so neither size nor
// version may say more than there is.
struct ncclConfig_t {
    unsigned long size = sizeof(ncclConfig_t);
    unsigned magic = 0xcafebeef;
    unsigned version = 21800;
    int blocking = static_cast<int>(0x80000000);  // this and the others: not set
    int cgaClusterSize = static_cast<int>(0x80000000);
    int minCTAs = static_cast<int>(0x80000000);
    int maxCTAs = static_cast<int>(0x80000000);
    const char* netName = nullptr;
    int splitShare = static_cast<int>(0x80000000);
};

static_assert(sizeof(ncclConfig_t) == 48, "the size in NCCL 2.18");

constexpr ncclResult_t ncclSuccess = 0;
constexpr ncclResult_t ncclInProgress = 7;  // of the watchdog: communicators block
constexpr int ncclUint8 = 1;
constexpr int ncclUint64 = 5;
constexpr int ncclMax = 2;  // an operation of ncclAllReduce

#define ZENC_CUDA_CALLS(X)                                                                                  \
    X(CUresult, cuInit, (unsigned flags))                                                                   \
    X(CUresult, cuGetErrorName, (CUresult error, const char** name))                                        \
    X(CUresult, cuGetErrorString, (CUresult error, const char** text))                                      \
    X(CUresult, cuCtxGetCurrent, (CUcontext * context))                                                     \
    X(CUresult, cuCtxSetCurrent, (CUcontext context))                                                       \
    X(CUresult, cuModuleLoadData, (CUmodule * module, const void* image))                                   \
    X(CUresult, cuModuleUnload, (CUmodule module))                                                          \
    X(CUresult, cuModuleGetFunction, (CUfunction * function, CUmodule module, const char* name))            \
    X(CUresult, cuLaunchKernel,                                                                             \
      (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,            \
       unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void** parameters,       \
       void** extra))                                                                                       \
    X(CUresult, cuMemHostAlloc, (void** memory, unsigned long bytes, unsigned flags))                       \
    X(CUresult, cuMemFreeHost, (void* memory))                                                              \
    X(CUresult, cuMemcpyHtoDAsync_v2,                                                                       \
      (CUdeviceptr to, const void* from, unsigned long bytes, CUstream stream))                             \
    X(CUresult, cuMemcpyDtoHAsync_v2, (void* to, CUdeviceptr from, unsigned long bytes, CUstream stream))   \
    X(CUresult, cuMemcpyDtoDAsync_v2,                                                                       \
      (CUdeviceptr to, CUdeviceptr from, unsigned long bytes, CUstream stream))                             \
    X(CUresult, cuMemsetD8Async,                                                                            \
      (CUdeviceptr memory, unsigned char value, unsigned long bytes, CUstream stream))                      \
    X(CUresult, cuStreamCreate, (CUstream * stream, unsigned flags))                                        \
    X(CUresult, cuStreamDestroy_v2, (CUstream stream))                                                      \
    X(CUresult, cuStreamBeginCapture_v2, (CUstream stream, int mode))                                       \
    X(CUresult, cuStreamEndCapture, (CUstream stream, CUgraph * graph))                                     \
    X(CUresult, cuStreamIsCapturing, (CUstream stream, int* status))                                        \
    X(CUresult, cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags)) \
    X(CUresult, cuGraphDestroy, (CUgraph graph))                                                            \
    X(CUresult, cuGraphLaunch, (CUgraphExec exec, CUstream stream))                                         \
    X(CUresult, cuGraphExecDestroy, (CUgraphExec exec))                                                     \
    X(CUresult, cuThreadExchangeStreamCaptureMode, (int* mode))                                             \
    X(CUresult, cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))                        \
    X(CUresult, cuEventCreate, (CUevent * event, unsigned flags))                                           \
    X(CUresult, cuEventRecord, (CUevent event, CUstream stream))                                            \
    X(CUresult, cuEventQuery, (CUevent event))                                                              \
    X(CUresult, cuEventDestroy_v2, (CUevent event))

#define ZENC_NCCL_CALLS(X)                                                                                   \
    X(const char*, ncclGetErrorString, (ncclResult_t result))                                                \
    X(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id))                                                    \
    X(ncclResult_t, ncclCommInitRankConfig,                                                                  \
      (ncclComm_t * communicator, int size, ncclUniqueId id, int rank, ncclConfig_t* config))                \
    X(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t communicator, ncclResult_t * error))                  \
    X(ncclResult_t, ncclCommAbort, (ncclComm_t communicator))                                                \
    X(ncclResult_t, ncclCommDestroy, (ncclComm_t communicator))                                              \
    X(ncclResult_t, ncclGroupStart, ())                                                                      \
    X(ncclResult_t, ncclGroupEnd, ())                                                                        \
    X(ncclResult_t, ncclSend,                                                                                \
      (const void* from, unsigned long count, int type, int peer, ncclComm_t communicator, CUstream stream)) \
    X(ncclResult_t, ncclRecv,                                                                                \
      (void* to, unsigned long count, int type, int peer, ncclComm_t communicator, CUstream stream))         \
    X(ncclResult_t, ncclAllReduce,                                                                           \
      (const void* from, void* to, unsigned long count, int type, int op, ncclComm_t communicator,           \
       CUstream stream))

#define ZENC_MEMBER(Result, name, parameters) Result(*name) parameters = nullptr;

// The functions of the driver and of NCCL, bound by name.
struct Api {
    ZENC_CUDA_CALLS(ZENC_MEMBER)
    ZENC_NCCL_CALLS(ZENC_MEMBER)
};

#undef ZENC_MEMBER

// Bound once a process, before all else.
static Api api;

inline const char* name_of(CUresult error, const Api& from = api) {
    const char* name = nullptr;
    from.cuGetErrorName(error, &name);
    return name != nullptr ? name : "an unknown error";
}

// While one is alive, its thread may do what CUDA calls unsafe while streams are captured, such as allocate
// memory or query events; none of it is meant for a graph. Without it, such a call would end any thread's
// capture in mode `global`, PyTorch's default (cuThreadExchangeStreamCaptureMode in the driver's manual).
class BesideCaptures {
public:
    BesideCaptures() { exchange(); }
    ~BesideCaptures() { exchange(); }
    BesideCaptures(const BesideCaptures&) = delete;
    BesideCaptures& operator=(const BesideCaptures&) = delete;

private:
    void exchange() { api.cuThreadExchangeStreamCaptureMode(&mode_); }

    int mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

inline bool is_captured(CUstream stream) {
    int status = CU_STREAM_CAPTURE_STATUS_NONE;
    return api.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

inline bool ok(const Call& call) {
    return call.outcome == DONE;
}

// The place for the text of a failure: `size` bytes at `text`; longer texts are cut off.
struct ErrorText {
    char* text;
    u64 size;
};

// Says why and returns false. `words` fill in `format` as printf does.
template <class... Words>
inline bool refuse(ErrorText error, const char* format, Words... words) {
    if (error.size == 0) return false;
    if constexpr (sizeof...(words) == 0)
        std::snprintf(error.text, error.size, "%s", format);
    else
        std::snprintf(error.text, error.size, format, words...);
    return false;
}

// Keeps the first failure of a call; whatever comes after it does nothing.
template <class... Words>
inline void fail(Call& call, Outcome outcome, i64 peer, const char* format, Words... words) {
    if (!ok(call)) return;
    call.outcome = outcome;
    call.peer = peer;
    refuse({call.message, sizeof call.message}, format, words...);
}

// Whether a call of the driver went well; `what` names it, and `detail` what it was for.
inline bool check(Call& call, CUresult result, const char* what, const char* detail = "") {
    if (result == CUDA_SUCCESS) return true;
    const char* text = nullptr;
    api.cuGetErrorString(result, &text);
    fail(call, CUDA_FAILED, -1, "%s%s%s failed: %s, %s", what, *detail ? " of " : "", detail, name_of(result),
         text ? text : "");
    return false;
}

inline void* open_library(const char* path, ErrorText error) {
    void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) refuse(error, "%s can't be loaded: %s", path, dlerror());
    return library;
}

template <class Function>
inline bool bind(void* library, const char* path, const char* name, Function*& function, ErrorText error) {
    function = reinterpret_cast<Function*>(dlsym(library, name));
    return function != nullptr || refuse(error, "%s has no function %s", path, name);
}

#define ZENC_BIND(Result, name, parameters) \
    if (!bind(library, path, #name, found.name, error)) return false;

inline bool bind_cuda(const char* path, Api& found, ErrorText error) {
    void* const library = open_library(path, error);
    if (library == nullptr) return false;
    ZENC_CUDA_CALLS(ZENC_BIND)
    const CUresult result = found.cuInit(0);
    return result == CUDA_SUCCESS || refuse(error, "cuInit of %s failed: %s", path, name_of(result, found));
}

inline bool bind_nccl(const char* path, Api& found, ErrorText error) {
    void* const library = open_library(path, error);
    if (library == nullptr) return false;
    ZENC_NCCL_CALLS(ZENC_BIND)
    return true;
}

#undef ZENC_BIND

inline i64 nanoseconds_now() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

// Polls with patience: without pauses at first, since most waits are short, then with pauses.
class Backoff {
public:
    explicit Backoff(i64 microseconds) : start_(nanoseconds_now()), end_(start_ + microseconds * 1000) {}

    // Gives way to others. False when the deadline has passed.
    bool wait() {
        const i64 now = nanoseconds_now();
        if (now >= end_) return false;
        if (now - start_ < BUSY) {
            sched_yield();
        } else {
            const timespec pause = {0, PAUSE};
            nanosleep(&pause, nullptr);
        }
        return true;
    }

    // Whether it is time for a question whose answer is costly.
    bool asks() {
        const i64 now = nanoseconds_now();
        if (now - asked_ < SELDOM) return false;
        asked_ = now;
        return true;
    }

private:
    static constexpr i64 BUSY = 2000000;  // nanoseconds
    static constexpr i64 PAUSE = 50000;
    static constexpr i64 SELDOM = 1000000;

    const i64 start_;
    const i64 end_;
    i64 asked_ = start_;
};

// Waits for all that is on a stream, up to `deadline` microseconds; returns CUDA_ERROR_NOT_READY after that.
inline CUresult drain(CUstream stream, i64 deadline) {
    Backoff patience(deadline);
    CUevent event = nullptr;
    CUresult result = api.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS) return result;
    result = api.cuEventRecord(event, stream);
    if (result == CUDA_SUCCESS)
        while ((result = api.cuEventQuery(event)) == CUDA_ERROR_NOT_READY && patience.wait()) continue;
    api.cuEventDestroy_v2(event);
    return result;
}

extern "C" {

// Binds CUDA's driver and NCCL from the libraries at two paths, or names that the loader knows. Returns 1, or
// 0 with the reason in `error`. One rank alone needs no NCCL: its path may be null.
ZENC_EXPORT i64 zenc_bind(const char* cuda_path, const char* nccl_path, char* error, u64 size) {
    static std::mutex binding;  // ranks that are threads of one process bind at once
    std::lock_guard<std::mutex> guard(binding);
    Api found = api;
    if (!bind_cuda(cuda_path, found, {error, size})) return 0;
    if (nccl_path != nullptr && !bind_nccl(nccl_path, found, {error, size})) return 0;
    if (std::memcmp(&api, &found, sizeof api) != 0) api = found;
    return 1;
}
}

}  // namespace zenc
