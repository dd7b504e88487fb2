// Notices to sanitizers. The engine itself is compiled without them; their functions are there if
// the program that loads it has them, and null if not.
#pragma once

#include <cstddef>

extern "C" {
[[gnu::weak]] void __sanitizer_start_switch_fiber(void** save, const void* bottom, size_t size);
[[gnu::weak]] void __sanitizer_finish_switch_fiber(void* save, const void** bottom, size_t* size);
[[gnu::weak]] void __asan_unpoison_memory_region(const volatile void* start, size_t size);
[[gnu::weak]] void* __tsan_get_current_fiber();
[[gnu::weak]] void* __tsan_create_fiber(unsigned flags);
[[gnu::weak]] void __tsan_destroy_fiber(void* fiber);
[[gnu::weak]] void __tsan_switch_to_fiber(void* fiber, unsigned flags);
[[gnu::weak]] void __tsan_acquire(void* object);
[[gnu::weak]] void __tsan_release(void* object);
[[gnu::weak]] void AnnotateIgnoreSyncBegin(const char* file, int line);
[[gnu::weak]] void AnnotateIgnoreSyncEnd(const char* file, int line);
[[gnu::weak]] void AnnotateIgnoreReadsBegin(const char* file, int line);
[[gnu::weak]] void AnnotateIgnoreReadsEnd(const char* file, int line);
[[gnu::weak]] void AnnotateIgnoreWritesBegin(const char* file, int line);
[[gnu::weak]] void AnnotateIgnoreWritesEnd(const char* file, int line);
}

namespace emulator {

inline bool address_sanitizer() {
    return &__asan_unpoison_memory_region != nullptr;
}

inline bool thread_sanitizer() {
    return &__tsan_create_fiber != nullptr;
}

// Writes before release(object) are seen after acquire(object): the only orders that a race detector
// knows.
inline void acquire(const volatile void* object) {
    if (thread_sanitizer()) __tsan_acquire(const_cast<void*>(object));
}

inline void release(const volatile void* object) {
    if (thread_sanitizer()) __tsan_release(const_cast<void*>(object));
}

// While one lives, nothing that this OS thread does orders threads, or counts as an access: the engine's
// locks would hide the races of those who use it.
class Unseen {
public:
    Unseen() { hide(); }
    ~Unseen() { show(); }
    Unseen(const Unseen&) = delete;
    Unseen& operator=(const Unseen&) = delete;

private:
    friend class Seen;

    static void hide() {
        if (!thread_sanitizer()) return;
        AnnotateIgnoreSyncBegin(nullptr, 0);
        AnnotateIgnoreReadsBegin(nullptr, 0);
        AnnotateIgnoreWritesBegin(nullptr, 0);
    }
    static void show() {
        if (!thread_sanitizer()) return;
        AnnotateIgnoreWritesEnd(nullptr, 0);
        AnnotateIgnoreReadsEnd(nullptr, 0);
        AnnotateIgnoreSyncEnd(nullptr, 0);
    }
};

// An exception within the scope of one Unseen.
class Seen {
public:
    Seen() { Unseen::show(); }
    ~Seen() { Unseen::hide(); }
    Seen(const Seen&) = delete;
    Seen& operator=(const Seen&) = delete;
};

}  // namespace emulator
