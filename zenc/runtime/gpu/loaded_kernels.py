"""Kernels on a GPU, compiled and loaded a module at a time: each when a call first launches one of its kernels.

A module that takes a second to compile delays one call; peers wait for it as for any rank that is late.
"""

from __future__ import annotations

from collections.abc import Callable

from zenc.runtime.gpu.library import FETCH, CallLibrary

ImageOf = Callable[[str], bytes]
"""The cubin that has a kernel, by the kernel's name. Raises what compiling raises."""

FIRST = "zenc_gather"
"""A kernel of the module that every call needs."""


class LoadedKernels:
    """The kernels of ``image_of`` in the current context; ``handle`` is what calls take.

    Raises BuildError and ArtifactError, here or as the ``failure`` of the call that first needs a module.
    """

    def __init__(self, library: CallLibrary, image_of: ImageOf) -> None:
        self._library, self._image_of = library, image_of
        self.failure: Exception | None = None
        self.handle = library.load_kernels(image_of(FIRST))
        self._fetching = FETCH(self._fetch)
        library.fetch_kernels(self.handle, self._fetching)

    def _fetch(self, _: int | None, name: bytes) -> int:
        try:
            self._library.add_kernels(self.handle, self._image_of(name.decode()))
        except Exception as error:  # no exception crosses C++
            self.failure = error
            return 0
        return 1
