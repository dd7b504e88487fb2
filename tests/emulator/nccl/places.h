// Places on a device for kernels of NCCL, of all communicators: each is there until its messages have met.
// The blocks of a kernel that finds no room wait behind those that have it.
#pragma once

#include "nccl/world.h"

namespace emulator {

class Place {
public:
    // Waits until there is one, or the rank's communicator has ended.
    Place(int device, World& world, int rank);
    ~Place();
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

private:
    const int device_;
};

}  // namespace emulator

extern "C" {
// Sets how many of them fit on every device from now on; 0: any number, as at first.
void emulator_places(int kernels);

// Number of them on a device now.
int emulator_messages(int device);
}
