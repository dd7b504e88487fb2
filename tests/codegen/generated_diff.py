"""The effect of a change on generated code: its difference between a git revision and the working tree.

    python tests/codegen/generated_diff.py [REVISION]            # default: HEAD; `make generated-diff REVISION=HEAD~3`

All targets and all shipped schemes are rendered, by the zenc of the revision and by that of the working tree; call
sequences are those of 4 ranks, and of 16 where a scheme is not for 4. A difference that several schemes share is shown
once. Static headers are not generated: `git diff` shows them.
"""

import difflib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("zenc", "grammar", "templates", "schemes")
RENDER = """
import json, sys
from pathlib import Path
from zenc.codegen.render import render
from zenc.codegen.render import NOT_TARGETS, templates_dir
from zenc import compile
from zenc.errors import ZencError

targets = sorted(path.name for path in templates_dir().iterdir() if path.is_dir() and path.name not in NOT_TARGETS)
names = sorted(path.stem for path in Path("schemes").glob("*.zen") if path.stem not in ("patterns", "compressors"))
plans = {name: compile(name, target="plan").plan for name in names}
made = {f"{target}/{file}/{name}": text for target in targets for name, plan in plans.items()
        for file, text in render(type(plan.mapping), target).items()}
try:
    from zenc.codegen.call_program import CODE, render_sequence
    from zenc.rank_ir.lower import lower_all
except ImportError:
    plans = {}  # this revision has none
for name, plan in plans.items():
    for size in (16, 4):
        try:
            made[f"cuda/{CODE}/{name}"] = render_sequence(lower_all(plan, size))
        except ZencError:
            continue  # a scheme for other numbers of ranks
json.dump(made, sys.stdout)
"""

Generated = dict[str, str]
"""target/file/scheme -> text."""


def generated(tree: Path) -> Generated:
    """Return what the zenc in ``tree`` generates. Raise SystemExit with its output if it fails."""
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, "-c", RENDER]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"the zenc in {tree} can't be asked:\n{done.stderr}")
    made: Generated = json.loads(done.stdout)
    return made


def unpack(revision: str, folder: Path) -> None:
    """Unpack the files of ``revision`` that generate code. Raise SystemExit where there is no such revision."""
    command = ["git", "-C", str(ROOT), "archive", revision, *NEEDED]
    done = subprocess.run(command, capture_output=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr.decode())
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")


def differences(before: Generated, after: Generated) -> dict[str, list[str]]:
    """Return each difference as a text, with the schemes that have it."""
    found: dict[str, list[str]] = defaultdict(list)
    for label in sorted({*before, *after}):
        old, new = (text.get(label, "").splitlines() for text in (before, after))
        name = label.rpartition("/")[0]
        text = "\n".join(difflib.unified_diff(old, new, f"before/{name}", f"after/{name}", lineterm=""))
        if text:
            found[text].append(label.rpartition("/")[2])
    return found


def report(revision: str, before: Generated, after: Generated) -> str:
    found = differences(before, after)
    if not found:
        return f"generated code is as in {revision}: {len(after)} files"
    return "\n\n".join(f"{text}\n== {', '.join(schemes)}" for text, schemes in found.items())


def main(revision: str = "HEAD") -> None:
    with tempfile.TemporaryDirectory() as folder:
        unpack(revision, Path(folder))
        print(report(revision, generated(Path(folder)), generated(ROOT)))


if __name__ == "__main__":
    main(*sys.argv[1:])
