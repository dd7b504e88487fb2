// Capture: work that is put on capturing streams goes into a graph, and does not run.
//
// Calls that a capture forbids invalidate it; it then fails until it is ended.
#pragma once

#include <memory>

#include "driver/context.h"
#include "driver/graph.h"

namespace emulator {

enum class CaptureMode : int { GLOBAL, THREAD_LOCAL, RELAXED };
enum class CaptureStatus : int { NONE, ACTIVE, INVALIDATED };

// Puts work on a stream: makes it now, or each time that the graph of the stream's capture is launched. Of a
// `series` one comes after the other, whatever streams they are on.
Result submit(Stream* stream, Post post, const void* series = nullptr);
Result submit(Stream* stream, Work work);
Result submit(Stream* stream, GraphExec& graph);

// The result of an attempt to wait for a stream or ask for its state, to wait for an event, or to make calls
// that CUDA has as unsafe while streams capture, as of memory: a failure if captures stand in the way.
Result check_wait(Stream* stream);
Result check_wait(const Event& event);
Result check_unsafe();

Result record(Event& event, Stream* stream);
Result hold(Stream* stream, Event& event);

Result begin_capture(Stream* stream, CaptureMode mode);
Result end_capture(Stream* stream, Graph& graph);
Result capture_status(Stream* stream, CaptureStatus& status);

// A stream that is no more: nobody can end its capture.
void forget(Stream* stream);

// Sets the mode of this thread, and returns the one before.
CaptureMode exchange_mode(CaptureMode mode);

}  // namespace emulator
