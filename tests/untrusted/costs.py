"""Costs of reading a stranger's file: seconds of the processor and memory, in a separate process."""

import re
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.support.forked import ROOT, context
from tests.untrusted.megabytes import MEGABYTE, TRICKS
from tests.untrusted.readers import READERS, outcome

MOST_WAIT = 120.0
SECONDS, MEMORY = 0.4, 50_000_000
"""Costs from which on a file has a row on the page."""
KEPT_AT = ROOT / "tests" / "golden" / "untrusted.json"
PAGE = ROOT / "docs" / "internals" / "security.md"
_TABLE = re.compile(r"(?<=<!-- costs -->\n\n).*?(?=\n\n<!-- end of costs -->)", re.DOTALL)


@dataclass(frozen=True)
class Cost:
    """Cost of reading: ``bytes`` of the file, ``seconds`` of the processor, and ``memory``, the most bytes at once."""

    bytes: int
    seconds: float
    memory: int
    outcome: str


def cost_of(trick: str) -> Cost:
    """Measure the file of ``trick``; raise RuntimeError where its reader does not end."""
    ours, theirs = context().Pipe()
    process = context().Process(target=_measure, args=(trick, theirs))
    process.start()
    theirs.close()
    try:
        if not ours.poll(MOST_WAIT):
            raise RuntimeError(f"{trick}: not read within {MOST_WAIT:g} s")
        found = ours.recv()
    finally:
        process.kill()
        process.join()
    if not isinstance(found, Cost):
        raise RuntimeError(f"{trick}: {found}")
    return found


def _measure(trick: str, to: Connection) -> None:
    try:
        to.send(_measured(trick))
    except BaseException as error:
        to.send(f"{type(error).__name__}: {error!s:.300}")


def _measured(trick: str) -> Cost:
    of = TRICKS[trick]
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        outcome(
            of.kind, READERS[of.kind].sample(Path(first))
        )  # what is imported and compiled once is no cost of the file
        path = of.make(Path(second))
        files = [each for each in Path(second).rglob("*") if each.is_file() and not each.is_symlink()]
        size = sum(each.lstat().st_size for each in files)
        assert size <= 1.1 * MEGABYTE, size
        _forget_peak()
        before, start = _memory("VmRSS"), time.process_time()
        found = outcome(of.kind, path)
        return Cost(size, time.process_time() - start, max(0, _memory("VmHWM") - before), found)


def _forget_peak() -> None:
    """Reset the kernel's count of this process's most memory."""
    Path("/proc/self/clear_refs").write_text("5")


def _memory(name: str) -> int:
    (kilobytes,) = re.findall(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(kilobytes) * 1024


def with_table(page: str, found: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page with a row for each file that took SECONDS or MEMORY, and a line about all others."""
    head = ["| trick | read as | kB | seconds | MB | comes to |", "| --- | --- | --: | --: | --: | --- |"]
    rows = [
        f"| {trick} | {of['kind']} | {of['bytes'] / 1e3:,.0f} | {of['seconds']:.2f} | {of['memory'] / 1e6:,.0f} | "
        f"{', '.join(id if id == 'read' else f'`{id}`' for id in of['outcome'].split(', '))} |"
        for trick, of in found.items()
        if of["seconds"] >= SECONDS or of["memory"] >= MEMORY
    ]
    rest = f"{len(found) - len(rows)} others take less than {SECONDS:g} s and {MEMORY / 1e6:,.0f} MB."
    return _TABLE.sub(lambda _: "\n".join([*head, *rows, "", rest]), page)
