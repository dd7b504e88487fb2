// run_kernel LIBRARY KERNEL BLOCKS THREADS WORDS: runs a kernel (u64* out, i64 n) on n words, which are 0 at
// first, and prints them. Ends with 1 if the kernel failed.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "engine/launch.h"
#include "engine/settings.h"

int main(int, char** arguments) {
    void* library = dlopen(arguments[1], RTLD_NOW);
    const std::string symbol = std::string("emulator_kernel_") + arguments[2];
    const auto* kernel =
        library ? static_cast<const emulator::Kernel*>(dlsym(library, symbol.c_str())) : nullptr;
    if (!kernel) {
        std::fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    const unsigned blocks[3] = {static_cast<unsigned>(std::atoi(arguments[3])), 1, 1};
    const unsigned threads[3] = {static_cast<unsigned>(std::atoi(arguments[4])), 1, 1};
    const size_t n = static_cast<size_t>(std::atoi(arguments[5]));
    auto* out = static_cast<emulator::u64*>(std::calloc(n, sizeof(emulator::u64)));
    const emulator::u64 words[2] = {reinterpret_cast<emulator::u64>(out), n};
    const int done = emulator_run(kernel, blocks, threads, words, emulator::settings().seed);
    for (size_t i = 0; i < n; i++) std::printf("%llu ", out[i]);
    std::free(out);
    return done ? 0 : 1;
}
