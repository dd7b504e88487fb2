#include "nccl/places.h"

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>

#include "engine/sanitizers.h"

namespace emulator {

namespace {

constexpr std::chrono::milliseconds PAUSE{1};  // of looking whether a communicator has ended

std::mutex of_places;
std::condition_variable changed;
std::map<int, int> taken;  // of each device
int places = 0;

}  // namespace

Place::Place(int device, World& world, int rank) : device_(device) {
    Unseen unseen;
    std::unique_lock lock(of_places);
    while (places != 0 && taken[device] >= places && !world.is_over(rank)) changed.wait_for(lock, PAUSE);
    ++taken[device];
}

Place::~Place() {
    Unseen unseen;
    const std::lock_guard lock(of_places);
    --taken[device_];
    changed.notify_all();
}

}  // namespace emulator

void emulator_places(int kernels) {
    const std::lock_guard lock(emulator::of_places);
    emulator::places = kernels;
    emulator::changed.notify_all();
}

int emulator_messages(int device) {
    const std::lock_guard lock(emulator::of_places);
    return emulator::taken[device];
}
