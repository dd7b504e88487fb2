// What the environment says about every launch. Read once.
#pragma once

namespace emulator {

struct Settings {
    unsigned long long seed;  // EMULATOR_SEED: above 0, threads run in an order drawn from it; 0: ascending
    unsigned workers;  // EMULATOR_WORKERS: OS threads a launch may use; at least 2 unless said otherwise
    double seconds;    // EMULATOR_SECONDS: how long a launch may spin, or a rank wait for its peers
};

const Settings& settings();

// splitmix64: the next of a row of numbers.
inline unsigned long long draw(unsigned long long& state) {
    unsigned long long x = state += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

}  // namespace emulator
