// Settings of every launch from the environment, read once.
#pragma once

#include "zenc/mix.h"

namespace emulator {

struct Settings {
    unsigned long long seed;  // EMULATOR_SEED: above 0, threads run in an order drawn from it; 0: ascending
    unsigned workers;  // EMULATOR_WORKERS: OS threads a launch may use; at least 2 unless said otherwise
    double seconds;    // EMULATOR_SECONDS: how long a launch may spin, or a rank wait for its peers
};

const Settings& settings();

// SplitMix64: the next of a row of numbers.
inline unsigned long long draw(unsigned long long& state) {
    return zenc::mix(state += zenc::GOLDEN);
}

}  // namespace emulator
