// Addresses that a GPU does not load from, or store to: kernels are compiled with -fsanitize=alignment, and
// this is whom the compiler calls, in place of its own library (__ubsan_handle_type_mismatch_v1 in GCC's
// libubsan).
#include "emulator/engine.h"

namespace {

// Written by the compiler beside each access.
struct Access {
    const char* file;
    unsigned line, column;
    const void* type;
    unsigned char alignment;  // its logarithm
    unsigned char kind;       // of KINDS
};

constexpr const char* KINDS[] = {"a load", "a store", "a reference"};

}  // namespace

extern "C" void __ubsan_handle_type_mismatch_v1(const Access* access, const void* address) {
    const char* const kind = access->kind < 3 ? KINDS[access->kind] : "an access";
    emulator_misaligned(kind, address, 1ULL << access->alignment, access->file,
                        static_cast<int>(access->line));
}
