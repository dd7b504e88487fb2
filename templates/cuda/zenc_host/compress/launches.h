// Kernels of compression on a stream, within calls and outside of them: functions of these take device
// pointers and counts, and put their kernels on the stream. Nothing is waited for but where a result crosses
// to the host.
#pragma once

#include "zenc/geometry.h"
#include "zenc_host/kernels.h"

namespace zenc {

// Launches on one stream. After a failure nothing more is done; once all that is on the stream has been
// waited for, `error` says why.
class Launches {
public:
    Launches(void* kernels, void* stream, i64 dtype, char* error, u64 size)
        : kernels(*static_cast<Kernels*>(kernels)),
          stream(static_cast<CUstream>(stream)),
          dtype(dtype),
          error{error, size} {
        api.cuCtxSetCurrent(this->kernels.context);
    }

    bool ok() const { return zenc::ok(call_); }

    static u64 blocks_for(u64 n) { return blocks_up_to(512, n); }

    // Launches the kernel for `type`, if it is typed. Arguments are words, or structures of words, in the
    // order of the kernel's parameters.
    template <class... Arguments>
    void launch_of(i64 type, const Kernel& kernel, u64 blocks, u64 rows, const Arguments&... arguments) {
        static_assert((... && (sizeof(Arguments) % 8 == 0)), "parameters are made of words");
        if (!ok()) return;
        const CUfunction function = kernels.of(kernel, type);
        if (function == nullptr) return fail(call_, CUDA_FAILED, -1, "the kernels lack %s", kernel.name);
        const void* parameters[] = {&arguments...};
        check(api.cuLaunchKernel(function, static_cast<unsigned>(blocks), static_cast<unsigned>(rows), 1,
                                 THREADS, 1, 1, 0, stream, const_cast<void**>(parameters), nullptr),
              kernel.name);
    }

    template <class... Arguments>
    void launch(const Kernel& kernel, u64 blocks, u64 rows, const Arguments&... arguments) {
        launch_of(dtype, kernel, blocks, rows, arguments...);
    }

    // Launches a thread for each of n things.
    template <class... Arguments>
    void launch_for(i64 n, const Kernel& kernel, const Arguments&... arguments) {
        launch_of(dtype, kernel, blocks_for(static_cast<u64>(n)), 1, arguments...);
    }

    void clear(void* memory, u64 bytes) {
        if (ok() && bytes != 0)
            check(api.cuMemsetD8Async(address(memory), 0, bytes, stream), "cuMemsetD8Async");
    }

    void copy(void* to, const void* from, u64 bytes) {
        if (ok())
            check(api.cuMemcpyDtoDAsync_v2(address(to), address(from), bytes, stream), "cuMemcpyDtoDAsync");
    }

    // Copies from host memory, which must stay unchanged until the stream is drained.
    void copy_in(void* memory, const void* host, u64 bytes) {
        if (ok() && bytes != 0)
            check(api.cuMemcpyHtoDAsync_v2(address(memory), host, bytes, stream), "cuMemcpyHtoDAsync");
    }

    // Waits, up to `deadline` microseconds, for all that is on the stream, and these bytes.
    void fetch(void* host, const void* memory, u64 bytes, i64 deadline) {
        if (ok() && bytes != 0)
            check(api.cuMemcpyDtoHAsync_v2(host, address(memory), bytes, stream), "cuMemcpyDtoHAsync");
        if (ok()) check(drain(stream, deadline), "a kernel of compression");
        if (!ok()) refuse(error, "%s", call_.message);
    }

    Kernels& kernels;
    const CUstream stream;
    const i64 dtype;
    const ErrorText error;

private:
    static CUdeviceptr address(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

    void check(CUresult result, const char* what) { zenc::check(call_, result, what); }

    Call call_ = {};  // of which there is the failure alone
};

}  // namespace zenc
