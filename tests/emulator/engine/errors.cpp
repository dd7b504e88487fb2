#include "engine/errors.h"

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>

#include "engine/sanitizers.h"
#include "engine/settings.h"

namespace emulator {

namespace {

std::mutex mutex;
std::string kept;
std::atomic<bool> any{false};

constexpr unsigned MOST_WORKERS = 4;  // unless asked for: every one maps a stack for each thread of a block

double number(const char* name, double otherwise) {
    const char* value = std::getenv(name);
    return value && *value ? std::atof(value) : otherwise;
}

}  // namespace

const Settings& settings() {
    static const Settings read = {
        static_cast<unsigned long long>(number("EMULATOR_SEED", 0)),
        std::max(1U,
                 static_cast<unsigned>(number(
                     "EMULATOR_WORKERS", std::clamp(std::thread::hardware_concurrency(), 2U, MOST_WORKERS)))),
        number("EMULATOR_SECONDS", 20),
    };
    return read;
}

std::string text(const char* format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    return line;
}

void keep_error(const std::string& message) {
    Unseen unseen;
    const std::lock_guard lock(mutex);
    std::fprintf(stderr, "emulator: %s\n", message.c_str());
    if (!any) kept = message;
    any = true;
}

bool has_error() {
    return any;
}

std::string take_error() {
    Unseen unseen;
    const std::lock_guard lock(mutex);
    any = false;
    return std::exchange(kept, {});
}

}  // namespace emulator
