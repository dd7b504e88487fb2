"""Parts of a page: its fenced blocks, and what the comments before them say about running them.

    Block = language x text x comment x heading x output?

``<!-- not run: REASON -->``  before a Python block: it is only compiled
``<!-- run first ... -->``    Python that runs at this place and is not shown
``<!-- continues -->``        before shell lines that need what those before them under the same heading made
``<!-- output -->``           before a block of text: what the code before it prints; ``...`` stands for anything

A block whose first line is ``# NAME.py``, ``# NAME.zen`` or ``# NAME.txt`` is a file; one that ends in ``, started by:
COMMAND`` is started so. Blocks of Python run in the order of the page, on two ranks, and see what those before them
have named. Lines of shell blocks that start with ``zenc`` or ``torchrun`` run in the folder of the files. The page of
an example is its README; the files beside it are in that folder, too.
"""

import re
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from runpy import run_path

from zenc.assist.manual import completed

ROOT = Path(__file__).resolve().parents[2]
_FOLDERS = ("docs", "docs/start", "docs/guides", "docs/reference", "docs/internals", "benchmarks/reports")
_MANUAL = [path for folder in _FOLDERS for path in sorted((ROOT / folder).glob("*.md"))]
MADE = {ROOT / "docs" / page: make for page, make in run_path(str(ROOT / "docs" / "hooks.py"))["MADE"].items()}
"""Pages with a part that is made when the site is built -> its source."""
_EXAMPLES = sorted((ROOT / "examples").glob("*/README.md"))
PAGES = [path for path in (*_MANUAL, *_EXAMPLES, ROOT / "README.md") if path.exists()]

_PIECE = re.compile(
    r"^(?P<heading>#+ [^\n]*)$|^<!-- run first\n(?P<hidden>.*?)^-->$|^(?:<!-- (?P<comment>[^\n]*) -->\n)?"
    r"^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_FILE = re.compile(r"# ([\w.-]+\.(?:py|zen|txt))(?:, started by: ([^\n]+))?\n")


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    comment: str
    heading: str
    output: str | None = None

    @property
    def file(self) -> str | None:
        """The name of the file that the block is."""
        found = _FILE.match(self.text)
        return found[1] if found else None

    @property
    def start(self) -> str | None:
        """The command that the first line of a file says it is started by."""
        found = _FILE.match(self.text)
        return found[2] if found else None

    @property
    def runs(self) -> bool:
        return self.language == "python" and self.file is None and not self.comment.startswith("not run: ")


@cache
def text_of(page: Path) -> str:
    text = page.read_text(encoding="utf-8")
    return completed(text, MADE[page]()) if page in MADE else text


def blocks_of(page: Path) -> list[Block]:
    """Return the fenced blocks of ``page``, in order; those of output belong to the block before them."""
    found: list[Block] = []
    heading = ""
    for piece in _PIECE.finditer(text_of(page)):
        if piece["heading"]:
            heading = piece["heading"].strip("# `")
        elif piece["hidden"]:
            found.append(Block("python", piece["hidden"], "", heading))
        elif piece["comment"] == "output":
            last = found.pop()
            found.append(Block(last.language, last.text, last.comment, last.heading, piece["text"]))
        else:
            found.append(Block(piece["language"], piece["text"], piece["comment"] or "", heading))
    return found


def write_files(page: Path, folder: Path) -> None:
    """Write the files that are blocks of ``page``, and those beside the page of an example."""
    folder.mkdir(parents=True, exist_ok=True)
    if page in _EXAMPLES:
        shutil.copytree(page.parent, folder, dirs_exist_ok=True)
    for block in blocks_of(page):
        if block.file:
            (folder / block.file).write_text(block.text)
