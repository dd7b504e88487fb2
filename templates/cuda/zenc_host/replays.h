// Calls that CUDA graphs hold, and waits for what graphs replay.
#pragma once

#include "zenc_host/communicator.h"

extern "C" ZENC_EXPORT zenc::i64 zenc_all_reduce(zenc::Call* call);

namespace zenc {

// A graph of one call, and the peers that it awaits.
struct Replay {
    std::shared_ptr<Graphs> graphs;
    CUgraphExec graph;
    Awaited awaited;
};

// Whether a call can't be made, since its stream is captured.
inline bool is_captured_instead(Call& call) {
    if (!is_captured(static_cast<CUstream>(call.stream))) return false;
    fail(call, NOT_CAPTURABLE, -1, "the stream is captured for a graph, and this call waits for the device");
    return true;
}

// Captures a call that has a report, on a stream of its own; null if it failed, or there is no graph.
inline CUgraphExec captured(Call& call, Communicator& group) {
    CUstream stream = nullptr;
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    if (api.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) return nullptr;
    if (api.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS) {
        const bool in_graphs = group.in_graphs;
        call.stream = stream;
        zenc_all_reduce(&call);
        group.in_graphs = in_graphs;  // of others: this one ends with the group
        if (api.cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS && graph != nullptr) {
            if (!ok(call) || api.cuGraphInstantiateWithFlags(&exec, graph, 0) != CUDA_SUCCESS) exec = nullptr;
            api.cuGraphDestroy(graph);
        }
    }
    api.cuStreamDestroy_v2(stream);
    return exec;
}

extern "C" {

// Captures a call with a report, of a dense tensor, which is `values` and gets the sum. Returns what replays
// it, or null: the call has failed if its outcome says so, and otherwise nothing has happened.
ZENC_EXPORT void* zenc_capture(Call* call) {
    Communicator& group = *static_cast<Communicator*>(call->communicator);
    const BesideCaptures beside;
    call->outcome = DONE;
    if (api.cuCtxSetCurrent(group.context) != CUDA_SUCCESS) return nullptr;
    const CUgraphExec graph = captured(*call, group);
    if (graph == nullptr) return nullptr;
    group.graphs->add(graph);
    return new Replay{group.graphs, graph, std::move(group.awaited)};
}

// Replays a call for `tensor`, which gets the sum, on the call's stream; for a null `replay` others have
// launched a graph there. Waits for the stream, and returns the outcome.
ZENC_EXPORT i64 zenc_replay(Call* call, const Replay* replay, void* tensor) {
    Communicator& group = *static_cast<Communicator*>(call->communicator);
    const CUstream stream = static_cast<CUstream>(call->stream);
    const auto given = reinterpret_cast<CUdeviceptr>(tensor),
               held = reinterpret_cast<CUdeviceptr>(call->dense_out);
    const u64 bytes = static_cast<u64>(call->units * call->width * DTYPE_BYTES[call->dtype]);
    const BesideCaptures beside;
    call->outcome = DONE;
    call->peer = -1;
    call->message[0] = 0;
    if (group.broken) {
        fail(*call, UNUSABLE_GROUP, -1, "an earlier call of this group failed");
        return call->outcome;
    }
    bool queued = check(*call, api.cuCtxSetCurrent(group.context), "cuCtxSetCurrent");
    if (queued && is_captured_instead(*call)) return call->outcome;
    if (queued && replay != nullptr)
        queued = check(*call, api.cuMemcpyDtoDAsync_v2(held, given, bytes, stream), "cuMemcpyDtoDAsync") &&
                 check(*call, api.cuGraphLaunch(replay->graph, stream), "cuGraphLaunch") &&
                 check(*call, api.cuMemcpyDtoDAsync_v2(given, held, bytes, stream), "cuMemcpyDtoDAsync");
    if (queued && check(*call, api.cuEventRecord(group.ready, stream), "cuEventRecord"))
        await(*call, group, "the replay of", replay == nullptr ? Awaited() : replay->awaited);
    if (!ok(*call)) {
        abort(group);
        drain(stream, call->deadline);
    }
    return call->outcome;
}

// Releases a replay. Its group may have ended.
ZENC_EXPORT void zenc_release_replay(Replay* replay) {
    replay->graphs->destroy(replay->graph);
    delete replay;
}
}

}  // namespace zenc
