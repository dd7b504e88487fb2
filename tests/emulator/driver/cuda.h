// CUDA's driver API, as far as it is here.
#pragma once

#include <cstddef>

#include "emulator/engine.h"

namespace emulator {

using Result = int;
using Address = u64;
struct Context;
class Stream;
class Event;
class Graph;
class GraphExec;

}  // namespace emulator

extern "C" {
emulator::Result cuInit(unsigned flags);
emulator::Result cuDriverGetVersion(int* version);
emulator::Result cuDeviceGetCount(int* count);
emulator::Result cuDeviceGet(int* device, int ordinal);
emulator::Result cuDevicePrimaryCtxRetain(emulator::Context** context, int device);
emulator::Result cuCtxGetCurrent(emulator::Context** context);
emulator::Result cuCtxSetCurrent(emulator::Context* context);
emulator::Result cuGetErrorName(emulator::Result result, const char** name);
emulator::Result cuGetErrorString(emulator::Result result, const char** text);

emulator::Result cuMemAlloc_v2(emulator::Address* out, size_t bytes);
emulator::Result cuMemFree_v2(emulator::Address memory);
emulator::Result cuMemHostAlloc(void** out, size_t bytes, unsigned flags);
emulator::Result cuMemFreeHost(void* memory);
emulator::Result cuMemcpyAsync(emulator::Address to, emulator::Address from, size_t bytes,
                               emulator::Stream* stream);
emulator::Result cuMemcpyHtoDAsync_v2(emulator::Address to, const void* from, size_t bytes,
                                      emulator::Stream* stream);
emulator::Result cuMemcpyDtoHAsync_v2(void* to, emulator::Address from, size_t bytes,
                                      emulator::Stream* stream);
emulator::Result cuMemcpyDtoDAsync_v2(emulator::Address to, emulator::Address from, size_t bytes,
                                      emulator::Stream* stream);
emulator::Result cuMemsetD8Async(emulator::Address memory, unsigned char value, size_t bytes,
                                 emulator::Stream* stream);
emulator::Result cuMemsetD32Async(emulator::Address memory, unsigned value, size_t words,
                                  emulator::Stream* stream);

// The image is the path of a library of kernels, as text that ends with a 0.
emulator::Result cuModuleLoadData(void** module, const void* image);
emulator::Result cuModuleUnload(void* module);
emulator::Result cuModuleGetFunction(const emulator::Kernel** function, void* module, const char* name);
emulator::Result cuLaunchKernel(const emulator::Kernel* kernel, unsigned grid_x, unsigned grid_y,
                                unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                                unsigned shared_bytes, emulator::Stream* stream, void** parameters,
                                void** extra);

emulator::Result cuStreamCreate(emulator::Stream** stream, unsigned flags);
emulator::Result cuStreamDestroy_v2(emulator::Stream* stream);
emulator::Result cuStreamSynchronize(emulator::Stream* stream);
emulator::Result cuStreamQuery(emulator::Stream* stream);
emulator::Result cuStreamWaitEvent(emulator::Stream* stream, emulator::Event* event, unsigned flags);
emulator::Result cuEventCreate(emulator::Event** event, unsigned flags);
emulator::Result cuEventRecord(emulator::Event* event, emulator::Stream* stream);
emulator::Result cuEventQuery(emulator::Event* event);
emulator::Result cuEventSynchronize(emulator::Event* event);
emulator::Result cuEventElapsedTime(float* milliseconds, emulator::Event* start, emulator::Event* end);
emulator::Result cuEventDestroy_v2(emulator::Event* event);

// Modes are 0 (global), 1 (of the thread) and 2 (relaxed); a status is 0 (none), 1 (active) or 2
// (invalidated).
emulator::Result cuStreamBeginCapture_v2(emulator::Stream* stream, int mode);
emulator::Result cuStreamEndCapture(emulator::Stream* stream, emulator::Graph** graph);
emulator::Result cuStreamIsCapturing(emulator::Stream* stream, int* status);
emulator::Result cuThreadExchangeStreamCaptureMode(int* mode);
emulator::Result cuGraphInstantiateWithFlags(emulator::GraphExec** exec, emulator::Graph* graph,
                                             unsigned long long flags);
emulator::Result cuGraphLaunch(emulator::GraphExec* exec, emulator::Stream* stream);
emulator::Result cuGraphExecDestroy(emulator::GraphExec* exec);
emulator::Result cuGraphDestroy(emulator::Graph* graph);
}
