// Captures of streams for graphs: what is done beside them, and whether a call is in one.
#pragma once

#include "zenc_host/driver/api.h"

namespace zenc {

// As long as one lives this thread may do what CUDA calls unsafe while streams are captured: allocate, ask
// for events. None of it is meant for a graph. Without this it would end a capture in mode `global`,
// PyTorch's default, on whatever thread that is (cuThreadExchangeStreamCaptureMode in the manual of the
// driver).
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

}  // namespace zenc
