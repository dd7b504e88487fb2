// Initialisation, devices, contexts, and names of errors.
#include "driver/context.h"

#include <atomic>
#include <cstdlib>
#include <utility>

namespace emulator {

namespace {

constexpr int VERSION = 13000;  // 1000 * major + 10 * minor

std::atomic<bool> initialised{false};
Context contexts[DEVICES] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}};
thread_local Context* current = nullptr;

struct Name {
    Result result;
    const char *name, *text;
};

constexpr Name NAMES[] = {
    {SUCCESS, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {STREAM_CAPTURE_MERGE, "CUDA_ERROR_STREAM_CAPTURE_MERGE",
     "operation would result in a merge of separate capture sequences"},
    {STREAM_CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
     "capture was not ended in the same stream as it began"},
    {STREAM_CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {STREAM_CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {STREAM_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
    {STREAM_CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "attempt to terminate a thread-local capture sequence from another thread"},
};

const Name* name_of(Result result) {
    for (const Name& name : NAMES)
        if (name.result == result) return &name;
    return nullptr;
}

}  // namespace

Context* current_context() {
    return current;
}

int current_device() {
    return current ? current->device : -1;
}

Result ready(const char* function) {
    if (!initialised) return NOT_INITIALIZED;
    if (!current) return INVALID_CONTEXT;
    if (const int code = fault(function, current_device())) return code;
    return has_error() ? LAUNCH_FAILED : SUCCESS;
}

}  // namespace emulator

using namespace emulator;

extern "C" {

Result cuInit(unsigned flags) {
    if (const int code = fault("cuInit", current_device())) return code;
    if (flags != 0) return INVALID_VALUE;
    initialised = true;
    return SUCCESS;
}

// EMULATOR_DRIVER is the version to claim.
Result cuDriverGetVersion(int* version) {
    const char* claimed = std::getenv("EMULATOR_DRIVER");
    *version = claimed ? std::atoi(claimed) : VERSION;
    return SUCCESS;
}

Result cuDeviceGetCount(int* count) {
    if (!initialised) return NOT_INITIALIZED;
    *count = DEVICES;
    return SUCCESS;
}

Result cuDeviceGet(int* device, int ordinal) {
    if (!initialised) return NOT_INITIALIZED;
    if (ordinal < 0 || ordinal >= DEVICES) return INVALID_DEVICE;
    *device = ordinal;
    return SUCCESS;
}

Result cuDevicePrimaryCtxRetain(Context** context, int device) {
    if (!initialised) return NOT_INITIALIZED;
    if (device < 0 || device >= DEVICES) return INVALID_DEVICE;
    *context = &contexts[device];
    return SUCCESS;
}

Result cuCtxGetCurrent(Context** context) {
    if (!initialised) return NOT_INITIALIZED;
    *context = current;
    return SUCCESS;
}

Result cuCtxSetCurrent(Context* context) {
    if (!initialised) return NOT_INITIALIZED;
    if (context && (context < contexts || context >= contexts + DEVICES)) return INVALID_CONTEXT;
    current = context;
    return SUCCESS;
}

Result cuGetErrorName(Result result, const char** name) {
    const Name* found = name_of(result);
    *name = found ? found->name : nullptr;
    return found ? SUCCESS : INVALID_VALUE;
}

Result cuGetErrorString(Result result, const char** text) {
    const Name* found = name_of(result);
    *text = found ? found->text : nullptr;
    return found ? SUCCESS : INVALID_VALUE;
}
}
