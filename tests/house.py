"""Counts of the house: lines of each room beside its budget, of tests and benchmarks, words of the documentation.

    python -m tests.house            # a table; --json FILE writes it as data

Lines are all lines of a file, words those between spaces; of what git knows, so that nothing built is counted.
"""

import argparse
import json
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/internals/architecture.md"
ROW = re.compile(r"^\| (`[^|]+) \| .* \| ([\d,]+) \|$", re.MULTILINE)
"""A room of the page: its names, and the most lines of it."""
MOST_WORDS = 85_000
"""Words of the pages in ``docs``."""


def known(*places: str) -> list[Path]:
    """Return the files below ``places`` that git knows or would add."""
    command = ["git", "ls-files", "-z", "-co", "--exclude-standard", "--", *places]
    told = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in filter(None, told.split("\0")) if (ROOT / name).is_file()]


def lines_of(files: Iterable[Path]) -> int:
    return sum(file.read_text(encoding="utf-8").count("\n") for file in files)


def rooms() -> dict[str, tuple[list[Path], int]]:
    """Return the rooms of the page, by their names there: folders or modules, and the most lines of all together."""
    found = {}
    for names, most in ROW.findall(PAGE.read_text(encoding="utf-8")):
        words = [word.rstrip("/") for word in re.findall(r"`([\w/]+)`", names)]
        places = [ROOT / word if word.startswith("templates/") else ROOT / "zenc" / word for word in words]
        modules = [each if each.is_dir() else each.with_suffix(".py") for each in places]
        found[names] = modules, int(most.replace(",", ""))
    return found


def lines(path: Path) -> int:
    """Return the lines of a module, of all modules below a folder, or of all files below a folder of templates."""
    suffix = "*" if path.is_relative_to(ROOT / "templates") else "*.py"
    return lines_of([path] if path.is_file() else [file for file in path.rglob(suffix) if file.is_file()])


def counts() -> dict[str, dict[str, int]]:
    """Return a row for each room and each kind of file: lines or words, and at most how many if there is a budget."""
    table = {
        names.replace("`", ""): {"lines": sum(map(lines, places)), "most": most}
        for names, (places, most) in rooms().items()
    }
    table["zenc, all modules"] = {"lines": lines_of(known("zenc/*.py"))}
    table["templates, all files"] = {"lines": lines_of(known("templates"))}
    table["tests"] = {"lines": lines_of(known("tests/*.py"))}
    table["benchmarks"] = {"lines": lines_of(known("benchmarks/*.py"))}
    pages = [file.read_text(encoding="utf-8") for file in known("docs") if file.suffix == ".md"]
    table["documentation"] = {"words": sum(len(page.split()) for page in pages), "most": MOST_WORDS}
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where to write the table as data")
    given, table = parser.parse_args(), counts()
    for name, row in table.items():
        unit = "words" if "words" in row else "lines"
        most = f"  of at most {row['most']:,}" if "most" in row else ""
        print(f"{name:48} {row[unit]:7,} {unit}{most}")
    if given.json:
        given.json.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
