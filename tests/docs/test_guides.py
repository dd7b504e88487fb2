"""The scripts of the quickstart and of guides, on two ranks each, forked from a process that imports frameworks once.

``tests/docs/test_snippets.py`` runs each of them by the very command in its first line, which takes longer.
"""

import contextlib
import importlib
import os
import re
import runpy
import traceback
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, blocks_of
from tests.support.forked import context
from tests.support.ranks import free_port

GUIDES = ("accelerate", "launch", "lightning", "migrate", "quickstart", "sharded_tables", "trainer")
PACKAGES = ("accelerate", "lightning", "transformers")
SECONDS = 200.0
SCRIPTS = {
    block.file: block.text
    for page in PAGES
    if page.stem in GUIDES
    for block in blocks_of(page)
    if block.file and block.start
}


def run_all(folder: Path, ports: dict[str, int]) -> None:
    """Start the two ranks of each script as forks, as torchrun starts them; they print into files."""
    os.chdir(folder)
    os.environ.update(WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", OMP_NUM_THREADS="1")
    os.environ.update(MASTER_ADDR="127.0.0.1", TORCHELASTIC_RUN_ID="guides", GROUP_RANK="0")
    for package in PACKAGES:
        importlib.import_module(package)
    importlib.import_module("transformers.trainer")
    for script, port in ports.items():
        ranks = []
        for rank in range(2):
            ranks.append(os.fork())
            if ranks[-1] == 0:
                run(folder / script, rank, port)
        for child in ranks:
            os.waitpid(child, 0)


def run(script: Path, rank: int, port: int) -> None:
    """Run a script, and end without freeing what it made.

    torch 2.13 ends a group of gloo with Python's lock held, and waits for a thread that may want it.
    """
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), MASTER_PORT=str(port))
    made = None
    with open(f"{script}.{rank}", "w") as out, contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            made = runpy.run_path(str(script), run_name="__main__")
            print("\nended")
        except BaseException:
            traceback.print_exc()
    os._exit(0 if made else 1)


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Output of both ranks, for each script."""
    for package in PACKAGES:
        pytest.importorskip(package, reason="pip install -c constraints.txt -e '.[guides]', Python 3.11 or newer")
    folder = tmp_path_factory.mktemp("guides")
    for name, text in SCRIPTS.items():
        (folder / name).write_text(text, encoding="utf-8")
    ports = {name: free_port() for name in SCRIPTS}
    parent = context().Process(target=run_all, args=(folder, ports))
    parent.start()
    parent.join(SECONDS)
    parent.kill()
    shown = {name: [folder / f"{name}.{rank}" for rank in range(2)] for name in SCRIPTS}
    return {name: [path.read_text() if path.exists() else "" for path in paths] for name, paths in shown.items()}


@pytest.mark.parametrize("script", SCRIPTS)
def test_script(script: str, printed: dict[str, list[str]]) -> None:
    shown = printed[script]
    assert all(text.endswith("\nended\n") for text in shown), "\n".join(shown)
    rows = [re.findall(r"^rank \d.*?(\d+ rows|differ by .*)", text, re.MULTILINE) for text in shown]
    assert rows[0] and rows[0] == rows[1]
