#!/usr/bin/env bash
# The wheel alone must do: build it, install it into an empty environment, and compile from a folder that is not the
# checkout. PYTHON is an interpreter that has `build`; it also makes the empty environment.
set -euo pipefail
checkout=$(cd "$(dirname "$0")/../.." && pwd)
python=$(realpath -s "${PYTHON:-python3}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m build --outdir "$work/dist" "$checkout" # the sdist, and the wheel from the sdist

# The same bytes again from the same sources at another place and time, by another user's umask, clock and order of hashes.
mkdir "$work/elsewhere"
tar -xzf "$work"/dist/zenc-*.tar.gz -C "$work/elsewhere"
find "$work/elsewhere" -exec touch -d 2001-02-03 {} +
chmod -R g-w,o-rwx "$work/elsewhere"
(umask 077 && TZ=Pacific/Chatham LC_ALL=C PYTHONHASHSEED=7 "$python" -m build --outdir "$work/again" "$work"/elsewhere/zenc-*)
for file in "$work"/dist/*; do
    cmp "$file" "$work/again/$(basename "$file")"
done

"$python" -m venv "$work/empty"
"$work/empty/bin/python" -m pip install --quiet --disable-pip-version-check -c "$checkout/constraints.txt" "$work"/dist/zenc-*.whl

cd "$work"
kernels_cache=${ZENC_CACHE_DIR:-} # where they are compiled once
export ZENC_CACHE_DIR="$work/cache"
zenc=$work/empty/bin/zenc
"$zenc" list
"$zenc" check balanced
"$zenc" help unknown-key
"$zenc" new begun.zen
"$zenc" check begun.zen
"$zenc" doctor
"$zenc" topo show two_boxes
"$zenc" check balanced --topology two_boxes
"$zenc" compile balanced --ranks 4 -o "$work/by_name"
cp "$checkout/schemes/balanced.zen" mine.zen
"$zenc" compile mine.zen --ranks 4 -o "$work/by_path"
test -n "$(ls "$work/by_name")" && test -n "$(ls "$work/by_path")"
"$work/empty/bin/python" - <<'PYTHON'
from pathlib import Path

import zenc
from zenc.runtime.cpu import library

assert "site-packages" in zenc.__file__, zenc.__file__
assert (Path(zenc.__file__).parent / "py.typed").is_file()
artifact = zenc.compile("balanced")
library.load(artifact.sources, artifact.plan.mapping)  # g++ finds the headers that the wheel carries
PYTHON

# Without compiled kernels it works, too; with them, for one architecture here, they are found under the keys of its own sources.
cd "$work"/elsewhere/zenc-*
PYTHONPATH=. ZENC_CACHE_DIR="$kernels_cache" "$python" -m tests.packaging.kernels sm_90
"$python" -m build --wheel --outdir "$work/shipped" .
cd "$work"
"$work/empty/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$work"/shipped/zenc-*.whl
"$work/empty/bin/python" - <<'PYTHON'
from zenc.codegen.build.arch import Arch
from zenc.codegen.build.gpu_kernels import modules_of
from zenc.codegen.build.shipped import shipped
from zenc.codegen.render import KINDS, compression_unit, render

for unit in [*(render(kind, "cuda") for kind in KINDS), compression_unit()]:
    found = shipped(unit, Arch(9, 0), 99)
    assert found is not None and found.image.startswith(b"\x7fELF")
    assert all(f".text.{kernel}\0".encode() in found.image for kernel in modules_of(unit)), modules_of(unit)
PYTHON
echo "wheel-check: the wheel works outside the checkout"
