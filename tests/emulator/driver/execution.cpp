// Modules, launches, streams and events.
#include <dlfcn.h>

#include <memory>
#include <vector>

#include "driver/capture.h"
#include "driver/context.h"
#include "driver/faults.h"
#include "engine/settings.h"
#include "engine/worker.h"

namespace emulator {

namespace {

constexpr unsigned MOST_ROWS = 65535;  // of a grid, in y and z
constexpr unsigned MOST_BLOCKS = 0x7fffffff;
constexpr unsigned STREAM_NON_BLOCKING = 1;

// A load of a library of kernels, which may be loaded by several ranks.
struct Module {
    void* library;
};

Handles<Stream> streams;
Handles<Event> events;
Handles<Module> modules;

bool fits(dim3 blocks, dim3 threads) {
    const u64 size = static_cast<u64>(threads.x) * threads.y * threads.z;
    return size > 0 && size <= MOST_THREADS && blocks.x > 0 && blocks.x <= MOST_BLOCKS && blocks.y > 0 &&
           blocks.y <= MOST_ROWS && blocks.z > 0 && blocks.z <= MOST_ROWS;
}

// Result of functions that only look: 0, or an error.
Result known(const char* function, bool is_known) {
    if (const Result result = ready(function)) return result;
    return is_known ? SUCCESS : INVALID_HANDLE;
}

}  // namespace

bool is_stream(const Stream* stream) {
    return !stream || streams.has(stream);
}

}  // namespace emulator

using namespace emulator;

extern "C" {

Result cuModuleLoadData(void** module, const void* image) {
    if (const Result result = ready("cuModuleLoadData")) return result;
    void* library = dlopen(static_cast<const char*>(image), RTLD_NOW | RTLD_LOCAL);
    if (!library) return INVALID_IMAGE;
    auto* made = new Module{library};
    modules.add(made);
    *module = made;
    return SUCCESS;
}

Result cuModuleUnload(void* module) {
    if (const Result result = ready("cuModuleUnload")) return result;
    const Module* found = modules.remove(module);
    if (!found) return INVALID_HANDLE;
    delete found;  // the library stays, for sanitizers to name its lines at the end of the program
    return SUCCESS;
}

Result cuModuleGetFunction(const Kernel** function, void* module, const char* name) {
    if (const Result result = known("cuModuleGetFunction", modules.has(module))) return result;
    const std::string symbol = std::string("emulator_kernel_") + name;
    *function = static_cast<const Kernel*>(dlsym(static_cast<Module*>(module)->library, symbol.c_str()));
    return *function ? SUCCESS : NOT_FOUND;
}

Result cuLaunchKernel(const Kernel* kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                      unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                      Stream* stream, void** parameters, void** extra) {
    if (const Result result = known("cuLaunchKernel", is_stream(stream))) return result;
    const dim3 blocks(grid_x, grid_y, grid_z), threads(block_x, block_y, block_z);
    if (!kernel || !fits(blocks, threads) || shared_bytes || extra) return INVALID_VALUE;
    if (const int code = fault(kernel->name, current_device())) return code;
    std::vector<u64> words;
    for (int i = 0; i < kernel->count; i++) {
        const u64* const first = static_cast<const u64*>(parameters[i]);
        words.insert(words.end(), first, first + kernel->sizes[i]);
    }
    return submit(stream, [=] {
        if (!has_error()) run(*kernel, blocks, threads, words.data(), settings().seed);
    });
}

Result cuStreamCreate(Stream** stream, unsigned flags) {
    if (const Result result = ready("cuStreamCreate")) return result;
    *stream = new Stream(current_device(), !(flags & STREAM_NON_BLOCKING));
    streams.add(*stream);
    return SUCCESS;
}

// Destroys a stream once all that is on it is done.
Result cuStreamDestroy_v2(Stream* stream) {
    if (!streams.remove(stream)) return INVALID_HANDLE;
    forget(stream);
    delete stream;
    return SUCCESS;
}

Result cuStreamSynchronize(Stream* stream) {
    if (const Result result = known("cuStreamSynchronize", is_stream(stream))) return result;
    if (const Result result = check_wait(stream)) return result;
    if (stream) {
        const HostWait waiting(stream->groups());
        stream->wait();
    }
    return has_error() ? LAUNCH_FAILED : SUCCESS;
}

Result cuStreamQuery(Stream* stream) {
    if (const Result result = known("cuStreamQuery", is_stream(stream))) return result;
    if (const Result result = check_wait(stream)) return result;
    return !stream || stream->idle() ? SUCCESS : NOT_READY;
}

// Without flags: an event from outside of a capture is none of its nodes here.
Result cuStreamWaitEvent(Stream* stream, Event* event, unsigned flags) {
    if (const Result result = known("cuStreamWaitEvent", is_stream(stream) && events.has(event)))
        return result;
    return flags ? INVALID_VALUE : hold(stream, *event);
}

Result cuEventCreate(Event** event, unsigned) {
    if (const Result result = ready("cuEventCreate")) return result;
    *event = new Event;
    events.add(*event);
    return SUCCESS;
}

Result cuEventRecord(Event* event, Stream* stream) {
    if (const Result result = known("cuEventRecord", is_stream(stream) && events.has(event))) return result;
    return record(*event, stream);
}

Result cuEventQuery(Event* event) {
    if (const Result result = known("cuEventQuery", events.has(event))) return result;
    if (const Result result = check_wait(*event)) return result;
    if (event->asked_first()) fault("wait", current_device());
    return event->complete() ? SUCCESS : NOT_READY;
}

Result cuEventSynchronize(Event* event) {
    if (const Result result = known("cuEventSynchronize", events.has(event))) return result;
    if (const Result result = check_wait(*event)) return result;
    const HostWait waiting(event->groups());
    event->wait();
    return has_error() ? LAUNCH_FAILED : SUCCESS;
}

Result cuEventElapsedTime(float* milliseconds, Event* start, Event* end) {
    if (const Result result = known("cuEventElapsedTime", events.has(start) && events.has(end)))
        return result;
    if (!start->recorded() || !end->recorded()) return INVALID_HANDLE;
    if (!start->complete() || !end->complete()) return NOT_READY;
    *milliseconds = end->milliseconds_since(*start);
    return SUCCESS;
}

Result cuEventDestroy_v2(Event* event) {
    if (!events.remove(event)) return INVALID_HANDLE;
    delete event;
    return SUCCESS;
}
}
