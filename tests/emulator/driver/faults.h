// Failures on demand: which call of which function fails, and how.
#pragma once

namespace emulator {

// The result that this call of `function` returns instead of doing its work; 0: no fault. `where`
// is the device or rank it is for.
int fault(const char* function, int where);

}  // namespace emulator

extern "C" {
// NAME:K=CODE[,...]: the K-th call of NAME from now on returns CODE; NAME@W:K=CODE counts those for device or
// rank W alone. Replaces what $EMULATOR_FAULTS or an earlier call said; "" for none. Returns 0 if it can't be
// read.
int emulator_faults(const char* text);

// Number of calls of a function for a device or rank so far.
long long emulator_calls(const char* function, int where);
}
