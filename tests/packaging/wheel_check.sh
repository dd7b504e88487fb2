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
echo "wheel-check: the wheel works outside the checkout"
