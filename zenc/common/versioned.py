"""Versioned data: files and states that carry the version of their form.

    VersionedForm = key version what again error unnumbered?
    FORMS         = key -> VersionedForm        # all that zenc writes and reads again: docs/reference/versions.md

``{"zenc_calibration": 2, ...}`` is a calibration of version 2. A form's number changes whenever files of an earlier
zenc can no longer be read; data of another number are refused by name (``other-version``), and never read by guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from zenc._version import __version__
from zenc.errors import ArtifactError, CostError, Diagnostic, ZencError


@dataclass(frozen=True, slots=True)
class VersionedForm:
    """A form of files or of states; ``again`` is how to make one anew, ``error`` the class for unreadable ones.

    ``unnumbered``: the version of data that have no number; None: data without one are not of this form.
    """

    key: str
    version: int
    what: str
    again: str
    error: type[ZencError] = CostError
    unnumbered: int | None = None

    @property
    def head(self) -> dict[str, int]:
        """The beginning of data of this form."""
        return {self.key: self.version}

    def is_form_of(self, data: object) -> bool:
        """Return whether ``data`` are of this form, in whichever version."""
        return isinstance(data, Mapping) and (self.key in data or self.unnumbered is not None)

    def ensure(self, data: Mapping[str, Any], shown: str, again: str = "") -> None:
        """Raise the form's error (``other-version``) unless ``data``, called ``shown``, are of the version read."""
        found = data.get(self.key, self.unnumbered)
        if type(found) is int and found == self.version:
            return
        wrote = f", written by zenc {data['zenc']:.20}" if isinstance(data.get("zenc"), str) else ""
        message = f"{shown} is of version {found!r:.20} of {self.what}{wrote}; zenc {__version__} reads {self.version}"
        newer = "a newer zenc wrote it: use that one, or " if isinstance(found, int) and found > self.version else ""
        raise self.error(Diagnostic("other-version", message, help=newer + (again or self.again)))


ARTIFACT = VersionedForm(
    "zenc_artifact", 3, "compiled schemes", "compile it again: zenc compile SCHEME -o DIRECTORY", ArtifactError
)
STRATEGY = VersionedForm(
    "zenc_strategy", 1, "compiled strategies", "compile it again: zenc compile STRATEGY -o DIRECTORY", ArtifactError
)
PLAN = VersionedForm("zenc_plan", 3, "plans", "compile it again: zenc compile SCHEME -o DIRECTORY", ArtifactError)
PROFILES = VersionedForm(
    "zenc_profiles", 1, "profiles", "record it again: zenc.Profiler.save, handle.save(FILE), or zenc profile draw"
)
CALIBRATION = VersionedForm("zenc_calibration", 2, "calibrations", "measure again: zenc calibrate -o FILE")
HANDLE = VersionedForm(
    "zenc_state", 1, "states of handles", "go on without it: what was left out, decided and counted begins anew"
)
RESIDUALS = VersionedForm("zenc_residuals", 1, "residuals", "go on without it: residuals begin at zero")
CHOICES = VersionedForm("zenc_choices", 1, "decisions", "go on without it: candidates are tried again", unnumbered=1)
COUNTS = VersionedForm("zenc_counts", 1, "counts of profilers", "go on without it: counts begin anew", unnumbered=1)
STEPS = VersionedForm("zenc_averaging", 1, "states of averagers", "go on without it, at step 0", unnumbered=1)
ROWS = VersionedForm(
    "zenc_rows", 1, "sharded states", "save state_dict(whole=True) with the zenc that wrote it", unnumbered=1
)

FORMS: Mapping[str, VersionedForm] = MappingProxyType(
    {
        form.key: form
        for form in (
            ARTIFACT, STRATEGY, PLAN, PROFILES, CALIBRATION, HANDLE, RESIDUALS, CHOICES, COUNTS, STEPS, ROWS
        )
    }
)  # fmt: skip
"""The forms by their keys."""
