// Submission to streams: an item runs there, or goes into the graph of a capture.
#include <utility>

#include "driver/captures.h"

namespace emulator {

namespace {

Nodes joined(Nodes nodes, const Nodes& others) {
    for (const size_t number : others) nodes.push_back(number);
    return nodes;
}

// The error of a stream of one capture that waits for an event of another; each may be null.
Result check_hold(Stream* stream, const SharedCapture& own, const SharedCapture& other, Event& event) {
    const auto fail = [&](Result why) {
        if (own) invalidate(own, why);
        return other ? invalidate(other, why) : why;
    };
    if (const SharedCapture capture = implied(stream)) return invalidate(capture, STREAM_CAPTURE_IMPLICIT);
    if (own && !own->valid) return STREAM_CAPTURE_INVALIDATED;
    if (other && (!stream || !other->open)) return fail(CAPTURED_EVENT);
    if (other && !other->valid) return STREAM_CAPTURE_INVALIDATED;
    if (own && other && own != other) return fail(STREAM_CAPTURE_MERGE);
    if (own && !other && event.recorded()) return fail(STREAM_CAPTURE_ISOLATION);
    return SUCCESS;
}

// Has `add` put nodes into the stream's capture: it gets the nodes that they come after, and returns those
// that what is next comes after. Calls `otherwise` if there is no capture.
template <class Add, class Otherwise>
Result into_capture(Stream* stream, const Add& add, const Otherwise& otherwise) {
    {
        Locked locked;
        if (const SharedCapture capture = implied(stream))
            return invalidate(capture, STREAM_CAPTURE_IMPLICIT);
        if (const SharedCapture capture = capture_of(stream)) {
            if (!capture->valid) return STREAM_CAPTURE_INVALIDATED;
            Nodes& next = capture->streams[stream];
            next = add(*capture, next);
            return SUCCESS;
        }
    }
    otherwise();
    return SUCCESS;
}

}  // namespace

Result submit(Stream* stream, Post post, const void* series) {
    const auto add = [&](Capture& capture, Nodes after) -> Nodes {
        Nodes& last = capture.series[series];
        const size_t node =
            capture.graph.add(post, series ? joined(std::move(after), last) : std::move(after));
        last = {node};
        return {node};
    };
    return into_capture(stream, add, [&] { push(stream, post(stream)); });
}

Result submit(Stream* stream, Work work) {
    return submit(stream, [work = std::move(work)](Stream*) { return work; }, nullptr);
}

Result submit(Stream* stream, GraphExec& exec) {
    {
        Locked locked;  // the driver of CUDA 13 refuses it
        if (const SharedCapture capture = capture_of(stream))
            return capture->valid ? invalidate(capture, STREAM_CAPTURE_UNSUPPORTED)
                                  : STREAM_CAPTURE_INVALIDATED;
    }
    return into_capture(
        stream, [](Capture&, const Nodes& after) { return after; }, [&] { exec.launch(stream); });
}

Result record(Event& event, Stream* stream) {
    const auto add = [&](Capture& capture, const Nodes& after) {
        event.captured = {capture_of(stream), after};
        return after;
    };
    return into_capture(stream, add, [&] {
        event.captured = {};
        event.record(stream);
    });
}

Result hold(Stream* stream, Event& event) {
    {
        Locked locked;
        const SharedCapture own = capture_of(stream), other = event.captured.capture;
        if (const Result wrong = check_hold(stream, own, other, event)) return wrong;
        if (own || other) {
            Nodes& next = (own ? own : other)->streams[stream];
            next = joined(next, event.captured.nodes);
            return SUCCESS;
        }
    }
    event.hold(stream);
    return SUCCESS;
}

}  // namespace emulator
