// Threads of a block take turns on one OS thread; each has a stack of its own.
#pragma once

#include <cstddef>

namespace emulator {

// A stack and where it stands, or, made without an entry, the OS thread itself.
class Fiber {
public:
    Fiber();
    explicit Fiber(void (*entry)());
    ~Fiber();
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;

    // Leaves `from`, which runs; returns when something switches back to it.
    static void change(Fiber& from, Fiber& to);

    // Must be called first on a new stack, which came from `from`.
    static void arrived_from(Fiber& from);

    // Forgets what was on the stack: the fiber starts at its entry again.
    void restart();

private:
    void (*entry_)() = nullptr;
    void* pointer_ = nullptr;       // of the stack, while it does not run
    const void* bottom_ = nullptr;  // of the stack
    size_t size_ = 0;
    void* of_address_sanitizer_ = nullptr;
    void* of_thread_sanitizer_ = nullptr;
};

}  // namespace emulator
