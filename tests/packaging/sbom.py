"""``python -m tests.packaging.sbom``: the components of an installed zenc, as CycloneDX 1.6, by the packages' metadata.

SBOM = zenc component* dependency*      # of what zenc asks for at run time, all the way down, as it is installed here
"""

import argparse
import json
import uuid
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any
from urllib.parse import quote

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LICENSES = "License :: OSI Approved :: "


def sbom(name: str = "zenc", extras: Iterable[str] = ()) -> dict[str, Any]:
    """Return the SBOM of ``name`` with its ``extras``; the same bytes for the same packages.

    Raise PackageNotFoundError where something of it is not installed.
    """
    found: dict[str, tuple[Distribution, list[str]]] = {}
    pending = [(canonicalize_name(name), frozenset(extras))]
    while pending:
        key, chosen = pending.pop()
        of = distribution(key)
        needed = list(needs(of, chosen))
        known = found.get(key, (of, []))[1]
        found[key] = of, sorted({*known, *(each for each, _ in needed)})
        pending += [(each, more) for each, more in needed if each not in found or more]
    root, _ = found[canonicalize_name(name)]
    others = [component(of) for key, (of, _) in sorted(found.items()) if of is not root]
    links = [
        {"ref": ref(of), "dependsOn": [ref(found[each][0]) for each in on]} for _, (of, on) in sorted(found.items())
    ]
    content = {"metadata": {"component": component(root)}, "components": others, "dependencies": links}
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{number}",
        "version": 1,
        **content,
    }


def needs(of: Distribution, extras: Iterable[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield what a package requires in this environment: names, and the extras of each."""
    for line in of.requires or ():
        asked = Requirement(line)
        if asked.marker is None or any(asked.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield canonicalize_name(asked.name), frozenset(asked.extras)


def ref(of: Distribution) -> str:
    return f"pkg:pypi/{canonicalize_name(of.metadata['Name'])}@{quote(of.version)}"


def component(of: Distribution) -> dict[str, Any]:
    about: dict[str, Any] = {"type": "library", "bom-ref": ref(of), "name": of.metadata["Name"], "version": of.version}
    licenses = licenses_of(of)
    return {**about, "purl": ref(of), **({"licenses": licenses} if licenses else {})}


def licenses_of(of: Distribution) -> list[dict[str, Any]]:
    """Return the package's expression of SPDX, else its classifiers, else the first line of its license text."""
    if expression := of.metadata.get("License-Expression"):
        return [{"expression": expression}]
    classified = [each for each in of.metadata.get_all("Classifier") or () if each.startswith(LICENSES)]
    names = [each.removeprefix(LICENSES) for each in classified] or (of.metadata.get("License") or "").splitlines()[:1]
    return [{"license": {"name": name}} for name in names if name.strip()]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.packaging.sbom", description=__doc__)
    parser.add_argument("--extra", action="append", default=[], help="an extra of zenc, such as plots")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/zenc.cdx.json"))
    given = parser.parse_args()
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(sbom(extras=given.extra), indent=2) + "\n", "utf-8")
    print(given.output)


if __name__ == "__main__":
    main()
