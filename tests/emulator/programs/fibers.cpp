// Two fibers count up in turns, one of them starts again: prints who ran, in order.
#include <cstdio>

#include "engine/fiber.h"

namespace {

using emulator::Fiber;

struct Stage {
    Fiber main, first, second;
    Stage();
};

Stage* stage;

// Floating-point registers have to survive as well.
void count(Fiber& own, const char* name) {
    Fiber::arrived_from(stage->main);
    double steps = 0.5;
    for (;;) {
        std::printf("%s%g ", name, steps);
        steps += 1;
        Fiber::change(own, stage->main);
    }
}

Stage::Stage() : first([] { count(stage->first, "a"); }), second([] { count(stage->second, "b"); }) {}

}  // namespace

int main() {
    Stage made;
    stage = &made;
    for (int i = 0; i < 6; i++) {
        Fiber::change(made.main, i % 2 ? made.second : made.first);
        if (i == 3) made.first.restart();
    }
}
