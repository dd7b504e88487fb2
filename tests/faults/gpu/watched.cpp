// Behind the text of the interpreter of tables: it tells of each statement before it is played.
#include <atomic>

#include "zenc_host/table.h"

namespace zenc {

// Called by the thread of a rank, with the number of the statement, from 0.
using Told = void (*)(i64 rank, i64 statement);

static std::atomic<Told> told{nullptr};

inline void play_and_tell(const Program& program, Sequence& rank) {
    const i64* const end = program.statements + program.number_of_words;
    i64 statement = 0;
    for (Words words(program.statements); words.at() != end; ++statement) {
        told.load()(program.of.rank, statement);
        play_statement(words, rank);
    }
}

extern "C" {

ZENC_EXPORT void watched_tell(Told to) {
    told = to;
}

// A program that zenc_load_program has made tells from now on.
ZENC_EXPORT void watched_program(void* program) {
    static_cast<LoadedProgram*>(program)->program.play = play_and_tell;
}
}

}  // namespace zenc
