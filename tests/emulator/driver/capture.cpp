#include <utility>

#include "driver/captures.h"

namespace emulator {

std::set<SharedCapture> captures;

namespace {

thread_local CaptureMode thread_mode = CaptureMode::GLOBAL;

}  // namespace

SharedCapture capture_of(Stream* stream) {
    for (const SharedCapture& capture : captures)
        if (capture->streams.count(stream)) return capture;
    return nullptr;
}

SharedCapture implied(const Stream* stream) {
    if (stream) return nullptr;
    for (const SharedCapture& capture : captures)
        for (const auto& [one, nodes] : capture->streams)
            if (one->waits_for_null && one->device == current_device()) return capture;
    return nullptr;
}

Result invalidate(const SharedCapture& capture, Result why) {
    capture->valid = false;
    return why;
}

Result check_wait(Stream* stream) {
    Locked locked;
    if (const SharedCapture capture = implied(stream))
        return invalidate(capture, STREAM_CAPTURE_UNSUPPORTED);  // by the driver of CUDA 13 on an H100
    const SharedCapture capture = capture_of(stream);
    if (!capture) return SUCCESS;
    return capture->valid ? invalidate(capture, STREAM_CAPTURE_UNSUPPORTED) : STREAM_CAPTURE_INVALIDATED;
}

Result check_wait(const Event& event) {
    {
        Locked locked;
        if (event.captured.capture) return invalidate(event.captured.capture, CAPTURED_EVENT);
    }
    return check_unsafe();
}

Result check_unsafe() {
    Locked locked;
    Result result = SUCCESS;
    for (const SharedCapture& capture : captures) {
        const bool own = capture->thread == std::this_thread::get_id();
        const bool global = capture->mode == CaptureMode::GLOBAL && thread_mode == CaptureMode::GLOBAL;
        if (thread_mode == CaptureMode::RELAXED || capture->mode == CaptureMode::RELAXED) continue;
        if (own || global) result = invalidate(capture, STREAM_CAPTURE_UNSUPPORTED);
    }
    return result;
}

Result begin_capture(Stream* stream, CaptureMode mode) {
    if (!stream) return STREAM_CAPTURE_UNSUPPORTED;
    Locked locked;
    if (capture_of(stream)) return ILLEGAL_STATE;
    const auto capture = std::make_shared<Capture>(Capture{stream, mode, std::this_thread::get_id()});
    capture->streams[stream] = {};
    captures.insert(capture);
    return SUCCESS;
}

Result end_capture(Stream* stream, Graph& graph) {
    Locked locked;
    const SharedCapture capture = capture_of(stream);
    if (!capture) return ILLEGAL_STATE;
    if (capture->origin != stream) return invalidate(capture, STREAM_CAPTURE_UNMATCHED);
    if (capture->mode != CaptureMode::RELAXED && capture->thread != std::this_thread::get_id())
        return invalidate(capture, STREAM_CAPTURE_WRONG_THREAD);
    captures.erase(capture);
    capture->open = false;
    Graph captured = std::exchange(capture->graph, {});  // events that know of the capture keep nothing of it
    if (!capture->valid) return STREAM_CAPTURE_INVALIDATED;
    const std::vector<char> found = captured.behind(capture->streams[stream]);
    for (const auto& [one, nodes] : capture->streams)
        for (const size_t number : nodes)
            if (!found[number]) return STREAM_CAPTURE_UNJOINED;
    graph = std::move(captured);
    return SUCCESS;
}

Result capture_status(Stream* stream, CaptureStatus& status) {
    Locked locked;
    if (implied(stream)) return STREAM_CAPTURE_IMPLICIT;
    const SharedCapture capture = capture_of(stream);
    status = !capture         ? CaptureStatus::NONE
             : capture->valid ? CaptureStatus::ACTIVE
                              : CaptureStatus::INVALIDATED;
    return SUCCESS;
}

void forget(Stream* stream) {
    Locked locked;
    const SharedCapture capture = capture_of(stream);
    if (!capture) return;
    invalidate(capture, STREAM_CAPTURE_INVALIDATED);
    capture->streams.erase(stream);
    if (capture->origin != stream) return;
    capture->open = false;
    capture->graph = {};
    captures.erase(capture);
}

CaptureMode exchange_mode(CaptureMode mode) {
    return std::exchange(thread_mode, mode);
}

}  // namespace emulator
