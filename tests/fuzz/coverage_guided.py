"""Coverage-guided fuzzing: inputs that reach new code are kept and changed further.

    pip install atheris                                    # 3.0; for this alone, so no dependency
    PYTHONPATH=. python tests/fuzz/coverage_guided.py TARGET FOLDER [-max_total_time=300 ...]

TARGET is layout, plan, scheme or topology: ``tests/support`` has the properties of any input, for the tests
too. FOLDER collects inputs; it starts with the files of that kind that come with zenc. What follows are options of
libFuzzer. An input that fails is written to the working directory, and given in place of FOLDER it is tried alone.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["zenc"]):
    from tests.support.layout import layout_or_refusal_faults
    from tests.support.survival import Faults, import_faults, plan_faults, reading_faults
    from tests.support.words import FOREIGN, WORDS
    from zenc.errors import ZencError
    from zenc.language.files import decode

ROOT = Path(__file__).parents[2]
FOLDER = Path(tempfile.mkdtemp())
SEEDS = {
    "layout": ["schemes/**/*.zen", "diagnostics/*.zen"],
    "plan": ["tests/golden/*.plan.json"],
    "scheme": ["schemes/**/*.zen", "diagnostics/*.zen"],
    "topology": ["tests/topology/samples/*", "schemes/topologies/*.zen", "diagnostics/*.xml"],
}


def of_text(faults: Callable[[str], Faults]) -> Callable[[bytes], None]:
    def target(data: bytes) -> None:
        try:
            text = decode("given.zen", data).text
        except ZencError:
            return
        assert faults(text) == []

    return target


def plan(data: bytes) -> None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return
    assert plan_faults(value) == []


def topology(data: bytes) -> None:
    assert import_faults(FOLDER / "given", data) == []


TARGETS = {
    "layout": of_text(layout_or_refusal_faults),
    "plan": plan,
    "scheme": of_text(reading_faults),
    "topology": topology,
}


def dictionary() -> Path:
    """Return words that libFuzzer may insert anywhere."""
    written = ("".join(f"\\x{byte:02x}" for byte in word.encode()) for word in (*WORDS, *FOREIGN) if word)
    path = FOLDER / "words"
    path.write_text("".join(f'"{word}"\n' for word in written))
    return path


def main() -> None:
    name, corpus, *options = sys.argv[1:]
    if not Path(corpus).exists():
        Path(corpus).mkdir(parents=True)
        for pattern in SEEDS[name]:
            for path in ROOT.glob(pattern):
                shutil.copy(path, corpus)
    atheris.Setup([sys.argv[0], corpus, f"-dict={dictionary()}", "-max_len=4096", *options], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
