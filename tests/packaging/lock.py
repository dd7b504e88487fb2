"""``python -m tests.packaging.lock``: constraints.lock anew, with the hashes of the wheels that constraints.txt pins.

    pip install --require-hashes --no-deps --only-binary :all: -r constraints.lock

takes these wheels and no others. They are those that pip chooses on this platform for each Python that zenc supports.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
CONSTRAINTS, LOCK = ROOT / "constraints.txt", ROOT / "constraints.lock"
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
LEFT_OUT = {"torch", "cupy-cuda12x", "cupy-cuda13x", "nvidia-cuda-nvrtc-cu12"}
"""Packages with a build for each CUDA, which depends on the machine."""
HEAD = """\
# The wheels of constraints.txt by their hashes, for Linux on x86_64; `make lock` writes it.
# Left out are those with a build for each CUDA: {left_out}.
#   pip install --require-hashes --no-deps --only-binary :all: -r constraints.lock
"""


def pins(text: str) -> list[Requirement]:
    """Return the requirements in a file, each with one version and, where it has one, its marker."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [Requirement(line) for line in lines if line]


def pinned() -> list[Requirement]:
    """Return the requirements of the lock."""
    return [pin for pin in pins(CONSTRAINTS.read_text("utf-8")) if canonicalize_name(pin.name) not in LEFT_OUT]


def holds(pin: Requirement, python: str) -> bool:
    full = {"python_version": python, "python_full_version": f"{python}.0"}
    return pin.marker is None or pin.marker.evaluate(full)


def chosen(requirements: Sequence[str], python: str) -> dict[str, str]:
    """Return name -> hash of the wheel that pip would install, by a ``python``; from PyPI, whatever other places are
    set.

    Some packages ask for a later release than the first of a Python.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [
            sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps",
            "--ignore-requires-python", "--only-binary=:all:", "--index-url", "https://pypi.org/simple",
            "--python-version", f"{python}.9", "--target", folder, "--report", str(report), *requirements,
        ]  # fmt: skip
        others = {"PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"}
        environment = {name: value for name, value in os.environ.items() if name not in others}
        subprocess.run(command, check=True, env={**environment, "PIP_CONFIG_FILE": os.devnull})
        found = json.loads(report.read_text("utf-8"))["install"]
    hashes = {each["metadata"]["name"]: each["download_info"]["archive_info"]["hashes"]["sha256"] for each in found}
    return {canonicalize_name(name): digest for name, digest in hashes.items()}


def lock_text(hashes: Mapping[str, Sequence[str]]) -> str:
    """Return the text of the lock: ``hashes`` by requirement, as it is written in constraints.txt."""
    lines = [f"{pin} \\\n" + " \\\n".join(f"    --hash=sha256:{each}" for each in of) for pin, of in hashes.items()]
    return HEAD.format(left_out=", ".join(sorted(LEFT_OUT))) + "\n".join(lines) + "\n"


def main() -> None:
    hashes: dict[str, set[str]] = defaultdict(set)
    for python in PYTHONS:
        wanted = [pin for pin in pinned() if holds(pin, python)]
        found = chosen([f"{pin.name}{pin.specifier}" for pin in wanted], python)
        for pin in wanted:
            hashes[str(pin)].add(found[canonicalize_name(pin.name)])
    LOCK.write_text(lock_text({str(pin): sorted(hashes[str(pin)]) for pin in pinned()}), "utf-8")


if __name__ == "__main__":
    main()
