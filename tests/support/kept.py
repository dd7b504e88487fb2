"""Compiled files for tests: once for each content, kept in the directory of pytest's cache."""

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path

from zenc.codegen.build import cache
from zenc.codegen.build.build_once import acquire, open_lock

CACHE = Path(__file__).resolve().parents[2] / ".pytest_cache" / "d" / "zenc-compiled"
PRODUCT = "compiled"
SECONDS = 250.0


def kept(about: object, fill: Callable[[Path], dict[str, str]]) -> Path:
    """Return the file ``PRODUCT`` that ``fill(folder)`` makes, cached by the JSON data ``about``."""
    key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
    found = cache.lookup(CACHE, key, PRODUCT)
    if found is not None:
        return _executable(found)
    CACHE.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open_lock(CACHE / f"{key}{cache.LOCK_SUFFIX}") as lock:  # tests that run beside these may want the same
        assert acquire(lock, time.monotonic() + SECONDS), f"another process has compiled {key} for {SECONDS} s"
        return _executable(cache.lookup(CACHE, key, PRODUCT) or cache.publish(CACHE, key, PRODUCT, fill))


def _executable(product: Path) -> Path:
    """Make a file executable: the cache keeps files without that, and some are programs."""
    product.chmod(0o700)
    return product
