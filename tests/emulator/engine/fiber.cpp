#include "engine/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

#include "engine/sanitizers.h"

#if !defined(__x86_64__) || defined(EMULATOR_PORTABLE)
#include <ucontext.h>
#endif

namespace emulator {

namespace {

constexpr size_t PAGE = 4096;
constexpr size_t STACK = 64 * 1024;
constexpr size_t SANITIZED_STACK = 256 * 1024;
constexpr unsigned NOT_ORDERED = 1;  // a change of fibers orders nothing

#if defined(__x86_64__) && !defined(EMULATOR_PORTABLE)

// Saves what a function must preserve on the stack, leaves the stack's pointer in *save, and does the
// reverse.
extern "C" void emulator_change_stack(void** save, void* load);
asm(R"(
.text
.type emulator_change_stack, @function
emulator_change_stack:
    pushq %rbx
    pushq %rbp
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbp
    popq %rbx
    ret
.size emulator_change_stack, . - emulator_change_stack
)");

void* prepared(void* bottom, size_t size, void (*entry)()) {
    auto* top = reinterpret_cast<uintptr_t*>(static_cast<char*>(bottom) + size);
    *--top = 0;  // the entry's return address; the stack is as after a call
    *--top = reinterpret_cast<uintptr_t>(entry);
    for (int saved = 0; saved < 6; saved++) *--top = 0;
    return top;
}

#else

void emulator_change_stack(void** save, void* load) {
    ucontext_t here;
    *save = &here;
    swapcontext(&here, static_cast<ucontext_t*>(load));
}

void* prepared(void* bottom, size_t size, void (*entry)()) {
    auto* context = new (bottom) ucontext_t;  // read once, before the stack grows down to it
    getcontext(context);
    context->uc_stack.ss_sp = bottom;
    context->uc_stack.ss_size = size;
    context->uc_link = nullptr;
    makecontext(context, entry, 0);
    return context;
}

#endif

}  // namespace

Fiber::Fiber() {
    if (thread_sanitizer()) of_thread_sanitizer_ = __tsan_get_current_fiber();
}

Fiber::Fiber(void (*entry)()) : entry_(entry) {
    size_ = address_sanitizer() || thread_sanitizer() ? SANITIZED_STACK : STACK;
    void* memory = mmap(nullptr, size_ + PAGE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    mprotect(memory, PAGE, PROT_NONE);
    bottom_ = static_cast<char*>(memory) + PAGE;
    restart();
}

Fiber::~Fiber() {
    if (!entry_) return;
    if (thread_sanitizer()) __tsan_destroy_fiber(of_thread_sanitizer_);
    munmap(static_cast<char*>(const_cast<void*>(bottom_)) - PAGE, size_ + PAGE);
}

void Fiber::restart() {
    void* bottom = const_cast<void*>(bottom_);
    if (address_sanitizer()) __asan_unpoison_memory_region(bottom, size_);
    if (thread_sanitizer()) {
        if (of_thread_sanitizer_) __tsan_destroy_fiber(of_thread_sanitizer_);
        of_thread_sanitizer_ = __tsan_create_fiber(0);
    }
    of_address_sanitizer_ = nullptr;
    pointer_ = prepared(bottom, size_, entry_);
}

void Fiber::change(Fiber& from, Fiber& to) {
    if (&__sanitizer_start_switch_fiber)
        __sanitizer_start_switch_fiber(&from.of_address_sanitizer_, to.bottom_, to.size_);
    if (thread_sanitizer()) __tsan_switch_to_fiber(to.of_thread_sanitizer_, NOT_ORDERED);
    emulator_change_stack(&from.pointer_, to.pointer_);
    if (&__sanitizer_finish_switch_fiber)
        __sanitizer_finish_switch_fiber(from.of_address_sanitizer_, nullptr, nullptr);
}

void Fiber::arrived_from(Fiber& from) {
    if (&__sanitizer_finish_switch_fiber)
        __sanitizer_finish_switch_fiber(nullptr, &from.bottom_, &from.size_);
}

}  // namespace emulator
