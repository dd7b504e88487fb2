// Communicators, as ranks hold them.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "driver/context.h"
#include "nccl/nccl.h"
#include "nccl/world.h"

namespace emulator {

// A rank's end.
class Communicator {
public:
    std::shared_ptr<World> world;
    int rank;
    bool blocking;
    bool settled = true;                     // false: what was called last must first be asked for
    std::string message;                     // that a caller was shown
    std::shared_ptr<const char> held;        // by graphs too, with each of its groups
    std::atomic<std::thread::id> user = {};  // who has it in a group
};

extern Handles<Communicator> communicators;

}  // namespace emulator
