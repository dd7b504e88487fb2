// Captures of streams, and graphs.
#include "driver/capture.h"

namespace emulator {

namespace {

constexpr unsigned long long FLAGS = 15;  // of cuGraphInstantiateWithFlags, which change nothing here

Handles<Graph> graphs;
Handles<GraphExec> execs;

bool is_mode(int mode) {
    return mode >= 0 && mode <= static_cast<int>(CaptureMode::RELAXED);
}

}  // namespace

}  // namespace emulator

using namespace emulator;

extern "C" {

Result cuStreamBeginCapture_v2(Stream* stream, int mode) {
    if (const Result result = ready("cuStreamBeginCapture")) return result;
    if (!is_stream(stream)) return INVALID_HANDLE;
    return is_mode(mode) ? begin_capture(stream, static_cast<CaptureMode>(mode)) : INVALID_VALUE;
}

// Without a graph if the capture has failed.
Result cuStreamEndCapture(Stream* stream, Graph** graph) {
    *graph = nullptr;
    if (const Result result = ready("cuStreamEndCapture")) return result;
    if (!is_stream(stream)) return INVALID_HANDLE;
    Graph captured;
    if (const Result result = end_capture(stream, captured)) return result;
    *graph = new Graph(captured);
    graphs.add(*graph);
    return SUCCESS;
}

Result cuStreamIsCapturing(Stream* stream, int* status) {
    if (const Result result = ready("cuStreamIsCapturing")) return result;
    if (!is_stream(stream)) return INVALID_HANDLE;
    CaptureStatus found;
    const Result result = capture_status(stream, found);
    if (!result) *status = static_cast<int>(found);
    return result;
}

Result cuThreadExchangeStreamCaptureMode(int* mode) {
    if (!is_mode(*mode)) return INVALID_VALUE;
    *mode = static_cast<int>(exchange_mode(static_cast<CaptureMode>(*mode)));
    return SUCCESS;
}

Result cuGraphInstantiateWithFlags(GraphExec** exec, Graph* graph, unsigned long long flags) {
    if (const Result result = ready("cuGraphInstantiate")) return result;
    if (!graphs.has(graph) || flags > FLAGS) return INVALID_VALUE;
    *exec = new GraphExec(*graph);
    execs.add(*exec);
    return SUCCESS;
}

Result cuGraphLaunch(GraphExec* exec, Stream* stream) {
    if (const Result result = ready("cuGraphLaunch")) return result;
    if (!is_stream(stream)) return INVALID_HANDLE;
    return execs.has(exec) ? submit(stream, *exec) : INVALID_VALUE;
}

// Destroys a graph once all its launches are done.
Result cuGraphExecDestroy(GraphExec* exec) {
    if (!execs.remove(exec)) return INVALID_VALUE;
    delete exec;
    return SUCCESS;
}

// Graphs that were instantiated of it stay.
Result cuGraphDestroy(Graph* graph) {
    if (!graphs.remove(graph)) return INVALID_VALUE;
    delete graph;
    return SUCCESS;
}
}
