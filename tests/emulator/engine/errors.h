// Errors of kernels: the first one is kept, and ends its launch.
#pragma once

#include <string>

namespace emulator {

// printf into a string.
[[gnu::format(printf, 1, 2)]] std::string text(const char* format, ...);

// Keeps `message` unless there is one already, and writes it to stderr.
void keep_error(const std::string& message);

bool has_error();

// The kept error, which is forgotten; empty if there is none.
std::string take_error();

}  // namespace emulator
