"""Jobs of ranks for the tests of the manual."""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
from pathlib import Path
from typing import Any

import torch.distributed as dist

from tests.docs.pages import blocks_of, write_files
from zenc.errors import ZencError


@contextlib.contextmanager
def at_home(folder: str, rank: int) -> Any:
    """Give every rank a folder of its own, since pages write files."""
    home, before = Path(folder) / str(rank), Path.cwd()
    home.mkdir(parents=True, exist_ok=True)
    os.chdir(home)
    try:
        yield home
    finally:
        os.chdir(before)


def run_page(group: dist.ProcessGroup, page: str, folder: str) -> list[str]:
    """Run the Python of a page, and return what each block printed."""
    blocks = blocks_of(Path(page))
    names: dict[str, Any] = {"__name__": "page"}
    random.seed(0)
    printed = []
    with at_home(folder, group.rank()) as home:
        write_files(Path(page), home)
        for block in blocks:
            with contextlib.redirect_stdout(io.StringIO()) as shown:
                if block.runs:
                    exec(compile(block.text, f"{page}, {block.heading}", "exec"), names)
            printed.append(shown.getvalue())
    return printed


def bad_and_good(group: dist.ProcessGroup, text: str, folder: str) -> list[str]:
    """Run a block of the page about diagnostics, and return the ids and messages that its bad part raises."""
    before, _, rest = text.partition("\n# bad: ")
    bad, _, good = rest.partition("\n# good\n")
    names: dict[str, Any] = {"__name__": "page"}
    found = []
    with at_home(folder, group.rank()):
        exec(before, names)
        try:
            exec(re.sub(r"^.*", "", bad, count=1), names)
        except ZencError as error:
            found = [error.diagnostics[0].id, str(error)]
        exec(good, names)
    return found
