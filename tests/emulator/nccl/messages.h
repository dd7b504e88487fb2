// Messages between ranks of this process: a digest for each pair, for tests that compare them.
#pragma once

#include <cstddef>

namespace emulator {

void note_message(int from, int to, const void* bytes, size_t n);

}  // namespace emulator

extern "C" {

// A digest of all messages from one rank to another, in their order, and of where each ends.
unsigned long long emulatorMessages(int from, int to);

void emulatorForgetMessages();
}
