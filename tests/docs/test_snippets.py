"""Code and commands in the manual run, and print the output that the manual shows."""

import contextlib
import doctest
import io
import os
import random
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from tests.docs.pages import PAGES, ROOT, Block, blocks_of, text_of, write_files
from tests.docs.test_guides import GUIDES
from tests.support.forked import run_ranks, run_zenc
from tests.support.ranks import Ranks
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


DIAGNOSTICS = ROOT / "docs" / "reference" / "diagnostics.md"
PYTHON = [page for page in PAGES if page != DIAGNOSTICS and any(block.runs for block in blocks_of(page))]
SHELLS = ("shell", "sh", "bash", "console")
ALONE = ("compile", "checkpoints")
"""Guides whose scripts run by their command only: one compiles for long, another dies and is started again."""
CUDA = "cuda"
"""The page whose Python compiles all kernels of a scheme for a GPU: for slow tests."""
RANKS = re.compile(r"torchrun (?:--standalone )?--nproc-per-node (\d) (\w+\.py.*)")
SLOW = re.compile(r"torchrun |going_on\.py|--target cuda --arch sm_")
"""Commands with an agent of torchrun, with processes that die and meet again, or that compile all kernels of a GPU."""
RUN = re.compile(r"(?:\$ )?((?:zenc|torchrun) .*)")
EXAMPLES = [block for block in blocks_of(DIAGNOSTICS) if block.runs]


def shows(expected: str, found: str) -> bool:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(expected, found, flags)


@pytest.mark.parametrize(
    "page", [pytest.param(page, id=page.stem, marks=[pytest.mark.slow] if page.stem == CUDA else []) for page in PYTHON]
)
def test_python(two: Ranks, page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if page.stem == CUDA:
        request.getfixturevalue("nvrtc")
    printed = two.run("tests.docs.test_snippets:run_page", page=str(page), folder=str(tmp_path))[0]
    for block, found in zip(blocks_of(page), printed, strict=True):
        if block.runs and block.output is not None:
            assert shows(block.output, found), f"under '{block.heading}' this is printed:\n{found}"


@pytest.mark.parametrize("block", EXAMPLES, ids=lambda block: block.heading)
def test_bad_and_good(two: Ranks, block: Block, tmp_path: Path) -> None:
    promised = re.search(r"^# bad: (.*)$", block.text, re.MULTILINE)
    assert promised and "\n# good\n" in block.text
    found = two.run("tests.docs.test_snippets:bad_and_good", text=block.text, folder=str(tmp_path))
    ids = [rank[0] for rank in found]
    assert ids[0] == block.heading or ids[1] == block.heading, found
    assert set(ids) <= {block.heading, "peer-lost"}, "a rank may hear of it only by its peer's end"


def test_every_block_that_is_not_run_compiles_and_says_why() -> None:
    for page in PAGES:
        for block in blocks_of(page):
            if block.language == "python":
                compile(block.text, f"{page}, {block.heading}", "exec")
                assert not block.comment or re.match(r"not run: \w+", block.comment), (page, block.heading)


def commands() -> list[Any]:
    """Return the commands of shell blocks and of first lines of scripts; those in SLOW only for slow tests.

    Otherwise ``test_guides.py`` runs scripts that import frameworks, and ``test_ranks`` others.
    """
    return [
        pytest.param(page, block, command, marks=[pytest.mark.slow] if SLOW.search(command) else [])
        for page in PAGES
        for block in blocks_of(page)
        for command in commands_of(block)
    ]


def scripts() -> list[Any]:
    """Return the commands of torchrun for a few ranks, which do not use its agent."""
    found = [(given.values, RANKS.fullmatch(given.values[2])) for given in commands()]
    return [
        (page, block, command) for (page, block, command), few in found if few and page.stem not in (*GUIDES, *ALONE)
    ]


def commands_before(page: Path, block: Block) -> list[str]:
    before = list(takewhile(lambda other: other != block, blocks_of(page)))
    return [command for other in before if other.heading == block.heading for command in commands_of(other)]


def variables() -> dict[str, str]:
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}


def typed(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = shlex.split(command)
    settings = dict(word.split("=", 1) for word in takewhile(lambda word: re.match(r"[A-Z_]+=", word), words))
    program, *arguments = words[len(settings) :]
    if program == "zenc":
        arguments = [str(ROOT / word) if (ROOT / word).is_file() else word for word in arguments]
        return run_zenc(arguments, folder, variables(), seconds=200)
    agent = ["-m", "torch.distributed.run", "--standalone"] if program == "torchrun" else []
    line = [sys.executable, *agent, *arguments]
    return subprocess.run(
        line, cwd=folder, env={**variables(), **settings}, capture_output=True, text=True, timeout=200
    )


def commands_of(block: Block) -> list[str]:
    if block.start:
        return [block.start]
    if block.language not in SHELLS or block.comment.startswith("not run: "):
        return []
    lines = [line.partition("  #")[0].rstrip() for line in block.text.splitlines()]
    return [found[1] for line in lines if (found := RUN.fullmatch(line))]


@pytest.mark.parametrize(
    ("page", "block", "command"), commands(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_shell(
    page: Path,
    block: Block,
    command: str,
    tmp_path: Path,
    assert_plot: Callable[[str, str], None],
    request: pytest.FixtureRequest,
) -> None:
    """A command below ``# bad`` has to fail, and its output is what it says about that; plots are those of the page."""
    if "--target cuda" in command:
        request.getfixturevalue("nvrtc")
    write_files(page, tmp_path)
    for earlier in commands_before(page, block) if block.comment == "continues" else []:
        typed(earlier, tmp_path)
    assert not_as_shown(typed(command, tmp_path), block, command) == ""
    for name in re.findall(r"--plot (\S+)", command):
        (image,) = re.findall(rf"\.\./(images/(?:\w+-)?{name})\)", text_of(page))
        assert_plot(image, (tmp_path / name).read_text("utf-8"))


@pytest.mark.parametrize(("page", "block", "command"), scripts(), ids=lambda of: of if isinstance(of, str) else "")
def test_ranks(page: Path, block: Block, command: str, tmp_path: Path) -> None:
    write_files(page, tmp_path)
    few = RANKS.fullmatch(command)
    assert few
    assert not_as_shown(run_ranks(int(few[1]), shlex.split(few[2]), tmp_path, variables()), block, command) == ""


def not_as_shown(done: subprocess.CompletedProcess[str], block: Block, command: str) -> str:
    """Return the output of a command that did not end or print as the page says, else nothing."""
    good = "# bad" not in block.text.partition(command)[0].rpartition("# good")[2]
    shown = done.stdout if good else done.stderr
    right = (done.returncode == 0) == good and (block.output is None or shows(block.output, shown))
    return "" if right else f"exit {done.returncode}\n{done.stdout}{done.stderr}"
