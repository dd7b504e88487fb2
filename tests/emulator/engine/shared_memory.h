// __shared__ arrays of the block that runs on one OS thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace emulator {

constexpr size_t MOST_SHARED = 48 * 1024;  // bytes a block may have without asking for more

// Arrays are made at first use by a block, and filled with 0xCD, so that reading what was never written
// shows.
//
// Each is an allocation of its own, for address sanitizers to guard. For race detectors no block gets memory
// that another one had: blocks that run one after the other would seem to race.
class SharedMemory {
public:
    SharedMemory() = default;
    ~SharedMemory();
    SharedMemory(const SharedMemory&) = delete;
    SharedMemory& operator=(const SharedMemory&) = delete;

    // Forgets the arrays of the block before; those of one kernel are kept for its next block.
    void begin_launch();
    void begin_block();

    // The array `tag`, or null if there is no room for it.
    void* array(const void* tag, size_t bytes);

    // Whether these bytes are within one array of the running block.
    bool has(const void* at, size_t bytes) const;

    // Memory that nobody has had before.
    void* unused(size_t bytes);

private:
    struct Array {
        const void* tag;
        void* memory;
        size_t bytes;
        bool in_use;  // by the running block
    };
    std::vector<Array> arrays_;
    size_t total_ = 0;  // bytes of the running block's
    char* arena_ = nullptr;
    size_t arena_left_ = 0;
};

}  // namespace emulator
