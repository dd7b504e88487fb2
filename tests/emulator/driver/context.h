// Shared parts of the stand-in for CUDA's driver: results, the current context, handles.
#pragma once

#include <mutex>
#include <set>

#include "driver/cuda.h"
#include "driver/faults.h"
#include "engine/errors.h"
#include "engine/sanitizers.h"

namespace emulator {

constexpr Result SUCCESS = 0;
constexpr Result INVALID_VALUE = 1;
constexpr Result OUT_OF_MEMORY = 2;
constexpr Result NOT_INITIALIZED = 3;
constexpr Result INVALID_DEVICE = 101;
constexpr Result INVALID_IMAGE = 200;
constexpr Result INVALID_CONTEXT = 201;
constexpr Result INVALID_HANDLE = 400;
constexpr Result ILLEGAL_STATE = 401;
constexpr Result NOT_FOUND = 500;
constexpr Result NOT_READY = 600;
constexpr Result LAUNCH_FAILED = 719;
constexpr Result STREAM_CAPTURE_UNSUPPORTED = 900;
constexpr Result STREAM_CAPTURE_INVALIDATED = 901;
constexpr Result STREAM_CAPTURE_MERGE = 902;
constexpr Result STREAM_CAPTURE_UNMATCHED = 903;
constexpr Result STREAM_CAPTURE_UNJOINED = 904;
constexpr Result STREAM_CAPTURE_ISOLATION = 905;
constexpr Result STREAM_CAPTURE_IMPLICIT = 906;
constexpr Result CAPTURED_EVENT = 907;
constexpr Result STREAM_CAPTURE_WRONG_THREAD = 908;

constexpr int DEVICES = 8;

struct Context {
    int device;
};

// The context of this thread; null until it sets one, as on a GPU.
Context* current_context();

// The device of the current context, or -1.
int current_device();

// The result of a function that needs a context, before it does anything: a fault on demand, or that a kernel
// has failed, after which CUDA does nothing more, or that something is missing.
Result ready(const char* function);

// Live objects of one kind.
template <class T>
class Handles {
public:
    void add(T* object) {
        Unseen unseen;
        const std::lock_guard lock(mutex_);
        objects_.insert(object);
    }

    bool has(const void* handle) {
        Unseen unseen;
        const std::lock_guard lock(mutex_);
        return objects_.count(static_cast<T*>(const_cast<void*>(handle))) > 0;
    }

    // The object, which is no longer live; null for what never was.
    T* remove(const void* handle) {
        Unseen unseen;
        const std::lock_guard lock(mutex_);
        auto* object = static_cast<T*>(const_cast<void*>(handle));
        return objects_.erase(object) ? object : nullptr;
    }

private:
    std::mutex mutex_;
    std::set<T*> objects_;
};

bool is_stream(const Stream* stream);  // or null

// Messages of NCCL that are under way on a device: CUDA may wait for them where memory is asked for, and they
// for peers that are no more, so that to ask for any is an error here.
void begin_messages(int device);
void end_messages(int device);

}  // namespace emulator
