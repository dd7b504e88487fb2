"""Files of a megabyte made to cost as much as they can, by one kind of trick each.

Trick    = kind make                # kind of READERS; make(folder): the file or the folder, of MEGABYTE bytes at most
TRICKS   = name -> Trick
"""

import io
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tests.support.artifacts import edit, rewrite
from tests.untrusted.readers import MEASURED, READERS, SETS, dumped, written
from zenc.gradients.profile_generators import uniform
from zenc.gradients.profile_io import dump_profiles
from zenc.language.files import MOST_BYTES, MOST_IMPORTED
from zenc.simulator.calibration import DEFAULTS

MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Trick:
    kind: str
    make: Callable[[Path], Path]


def filled(head: str, item: str, tail: str, most: int) -> str:
    """Return ``item`` as often as it fits; ``@`` in it is a number."""
    room, parts, number = most - len(head) - len(tail), [], 0
    while (room := room - len(part := item.replace("@", str(number)))) >= 0:
        parts.append(part)
        number += 1
    return head + "".join(parts) + tail


def text(head: str, item: str, tail: str, most: int = MOST_IMPORTED) -> Callable[[Path], Path]:
    """Return a maker of a text of the language, by default of about as many words as are read."""
    return lambda folder: written("long.zen", filled(head, item, tail, most), folder)


def many_imports(folder: Path) -> Path:
    """Write imports, each as long as may be."""
    imports = "".join(f'import "{number}.zen"\n' for number in range(8))
    for number in range(8):
        written(
            f"{number}.zen",
            filled("schedule s { push { ", "let a = 1+1+1\n", "} pull { } }", MOST_IMPORTED - 5000),
            folder,
        )
    return written("main.zen", f"{imports}scheme a {{ push: auto }}", folder)


def topology(name: str, head: str, item: str, tail: str) -> Callable[[Path], Path]:
    return lambda folder: written(name, filled(head, item, tail, MEGABYTE), folder)


def object_with(name: str, data: dict[str, Any], key: str, head: str, item: str, tail: str) -> Callable[[Path], Path]:
    """Return a maker of JSON ``data`` whose ``key`` is filled with ``item``."""

    def make(folder: Path) -> Path:
        whole = json.dumps({**data, key: "@here@"}, allow_nan=False)
        before, _, after = whole.partition('"@here@"')
        return written(name, before + filled(head, item, tail, MEGABYTE - len(whole)) + after, folder)

    return make


PROFILES = json.loads(dump_profiles([uniform(0.1, 9, name="w")]))
PROFILE = json.dumps(PROFILES["profiles"][0]).replace('"w"', '"w@"')
MODEL = {
    "ranks": 4, "backend": "gloo", "device": "cpu", "steps": 1, "seconds_step": 1, "seconds_synchronising": 0,
    "seconds_exposed": 0,
}  # fmt: skip
PARAMETER = {"name": "w", "dtype": "f32", "layout": "dense", "density": 0.5}


def many_classes(folder: Path) -> Path:
    head, _, tail = json.dumps({**PROFILES["profiles"][0], "ranges": "@here@"}).partition('"@here@"')
    text = filled(f'{{"zenc_profiles": 1, "profiles": [{head}[', "[[0.5, 1.0]],", f"[[0, 1]]]{tail}]}}", MEGABYTE)
    return written("p.json", text, folder)


def model_of_many_extents(folder: Path) -> Path:
    parameter = {**PARAMETER, "shape": [9_223_372_036_854_775_807] * 40_000}
    return dumped("model.json", {**PROFILES, "model": {**MODEL, "parameters": [parameter]}}, folder)


def one_long_name(folder: Path) -> Path:
    """Write a name that is in each of many messages."""
    speeds = {str(number): 0 for number in range(40_000)}
    return dumped("here.json", {**DEFAULTS.to_json(), "name": "x" * 400_000, "compression": speeds}, folder)


def text_among_numbers(folder: Path) -> Path:
    """Write a text among numbers: as an array of numpy, each number would take as much as the text."""
    return dumped("sets.json", {**SETS, "ranks": [["x" * 400_000, *[1] * 200_000]]}, folder)


def archive(arrays: Callable[[], Mapping[str, bytes]]) -> Callable[[Path], Path]:
    """Return a maker of an archive of arrays that are made on demand: some take a gigabyte."""

    def make(folder: Path) -> Path:
        with zipfile.ZipFile(folder / "sets.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
            for name, content in arrays().items():
                file.writestr(f"{name}.npy", content)
        return folder / "sets.npz"

    return make


def array(shape: str, dtype: str, content: bytes) -> bytes:
    """Return a file of numpy with a given header."""
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + content


UNITS = {"units": array("()", "<i8", (10).to_bytes(8, "little"))}


def plan(head: str, item: str, tail: str = "]") -> Callable[[Path], Path]:
    """Return a maker of an artifact whose plan has other moves in its first push, with checksums that fit."""

    def make(folder: Path) -> Path:
        path = READERS["artifact"].sample(folder)
        data = json.loads((path / "plan.json").read_text())
        data["pushes"][0]["moves"] = "@here@"
        whole = json.dumps(data)
        before, _, after = whole.partition('"@here@"')
        rewrite(path, "plan.json", before + filled(head, item, tail, MEGABYTE - 100_000 - len(whole)) + after)
        return path

    return make


def tiers(folder: Path) -> Path:
    path = READERS["artifact"].sample(folder)
    data = json.loads((path / "plan.json").read_text())
    (tier,), (push,), (pull,) = data["tiers"], data["pushes"], data["pulls"]
    count = 2000
    data["tiers"] = [{**tier, "name": f"t{n}", "size": 1 if n < count - 1 else None} for n in range(count)]
    data["pushes"] = [{**push, "tier": n, "moves": []} for n in range(count)]
    data["pulls"] = [{**pull, "tier": n, "moves": []} for n in reversed(range(count))]
    rewrite(path, "plan.json", json.dumps(data))
    return path


def one_file_by_many_names(folder: Path) -> Path:
    path = READERS["artifact"].sample(folder)
    (path / "large.cpp").write_bytes(b"x" * 600_000)
    digest = "0" * 64
    edit(path, lambda manifest: manifest["files"].update({f"{'./' * n}large.cpp": digest for n in range(300)}))
    return path


def one_file_by_many_links(folder: Path) -> Path:
    path = READERS["artifact"].sample(folder)
    rewrite(path, "large.cpp", "x" * 800_000)
    for number in range(900):
        os.symlink("large.cpp", path / f"{number}.cpp")
    digest = json.loads((path / "manifest.json").read_text())["files"]["large.cpp"]
    edit(path, lambda manifest: manifest["files"].update({f"{number}.cpp": digest for number in range(900)}))
    return path


def choices_in_choices(folder: Path) -> Path:
    """Write a choice whose candidates are the whole again: two to the power of as many levels as there can be."""
    path = READERS["choice"].sample(folder)
    for number in ("0", "1"):
        candidate = path / "candidates" / number
        for each in sorted(candidate.rglob("*"), reverse=True):
            each.rmdir() if each.is_dir() else each.unlink()
        candidate.rmdir()
        os.symlink("..", candidate)
    return path


def strategy_of_many_links(folder: Path) -> Path:
    path = READERS["strategy"].sample(folder)
    data = json.loads((path / "strategy.json").read_text())
    first = data["rules"][0]
    for number in range(3000):
        os.symlink(first["directory"], path / f"d{number}")
    data["rules"] = [*({**first, "directory": f"d{number}"} for number in range(3000)), *data["rules"]]
    (path / "strategy.json").write_text(json.dumps(data))
    return path


def strategy_of_many_rules(folder: Path) -> Path:
    path = READERS["strategy"].sample(folder)
    data = json.loads((path / "strategy.json").read_text())
    data["rules"] = [*data["rules"][:1] * 4000, *data["rules"]]
    (path / "strategy.json").write_text(json.dumps(data))
    return path


def state_with(kind: str, place: tuple[Any, Any], **changes: Any) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = READERS[kind].sample(folder)
        state = torch.load(path, weights_only=True)
        state[place[0]][place[1]].update(changes)
        torch.save(state, path)
        return path

    return make


residuals = partial(state_with, "residuals", ("tensors", "w"))
counts = partial(state_with, "counts", ("tallies", 0))


def zeros(count: int) -> bytes:
    return io.BytesIO(bytes(count)).getvalue()


BODY, END = "schedule s { push { ", "} pull { } }"
GRAPH = "<graphml><graph edgedefault='directed'>"
TRICKS: Mapping[str, Trick] = {
    "a text beyond the limit": Trick("text", text(BODY, "let a = 1\n", END, MEGABYTE)),
    "statements": Trick("text", text(BODY, "let a@ = 1+1\n", END)),
    "expressions": Trick("text", text(BODY, "let a = 1+1+1+1+1+1+1+1+1+1+1+1+1+1+1\n", END, 50_000)),
    "mistakes": Trick("text", text(BODY, "let = = 1\n", END)),
    "schemes": Trick("text", text("", "scheme s@ { push: auto }\n", "")),
    "more words than are read": Trick("text", text(BODY, "let a@ = 1+1\n", END, MOST_BYTES)),
    "words": Trick("text", text("scheme a { compress: ", "x ", "}", MOST_BYTES)),
    "comments": Trick("text", text("#", "x", "\nscheme a { push: auto }", MOST_BYTES)),
    "imports": Trick("text", many_imports),
    "links of a text": Trick("topology", text("topology t { levels: gpu(9) ", "link gpu(0) - gpu(1): 1 GB/s\n", "}")),
    "levels": Trick("topology", partial(written, "t.zen", "topology t { levels: node(256), gpu(256) switch a }")),
    "nodes of JSON": Trick(
        "node-link", topology("t.json", '{"edges": [], "nodes": [{"id": 0}', ', {"id": "n@"}', "]}")
    ),
    "edges of JSON": Trick(
        "node-link",
        topology(
            "t.json",
            '{"nodes": [{"id": 0}], "edges": [{"source": 0, "target": 0}',
            ', {"source": 0, "target": @}',
            "]}",
        ),
    ),
    "too many nodes of GraphML": Trick(
        "topology", topology("t.graphml", GRAPH, '<node id="n@"/>', "</graph></graphml>")
    ),
    "nodes of GraphML": Trick(
        "topology", topology("t.graphml", GRAPH, '<node id="of the cluster @"/>', "</graph></graphml>")
    ),
    "elements of XML": Trick("topology", topology("t.xml", '<system version="1">', '<cpu numaid="@"/>', "</system>")),
    "a matrix": Trick("topology", topology("t.txt", "\tGPU0", "\tGPU@", "\nGPU0\t X \n")),
    "one long name": Trick("calibration", one_long_name),
    "a curve": Trick(
        "calibration",
        object_with("here.json", DEFAULTS.to_json(), "pack", '{"speed": 1, "curve": [[0, 0]', ", [@, 0]", "]}"),
    ),
    "profiles": Trick(
        "profiles", object_with("p.json", {"zenc_profiles": 1}, "profiles", "[" + PROFILE, "," + PROFILE, "]")
    ),
    "classes": Trick("profiles", many_classes),
    "extents": Trick("model profile", model_of_many_extents),
    "measurements": Trick(
        "measurements", object_with("m.json", MEASURED, "peers", '{"a": {}', ', "a@": {"seconds": 1}', "}")
    ),
    "events": Trick("timeline", object_with("t.json", {}, "traceEvents", "[{}", ", {}", "]")),
    "deep JSON": Trick("timeline", object_with("t.json", {}, "traceEvents", "", "[", "")),
    "ranks": Trick("index sets", object_with("s.json", SETS, "ranks", "[[0]", ",[@]", "]")),
    "a text among numbers": Trick("index sets", text_among_numbers),
    "an archive of zeros": Trick(
        "index archive", archive(lambda: {**UNITS, "rank0": array("(115000000,)", "<i8", zeros(920_000_000))})
    ),
    "an array that is not there": Trick(
        "index archive", archive(lambda: {**UNITS, "rank0": array("(99999999999,)", "<i8", b"")})
    ),
    "arrays": Trick(
        "index archive", archive(lambda: {**UNITS, **{f"rank{n}": array("(1,)", "<i8", zeros(8)) for n in range(3000)}})
    ),
    "statements of a plan": Trick("artifact", plan('[{"let": "a", "be": "1"}', ', {"let": "a@", "be": "@+1"}')),
    "expressions of a plan": Trick("artifact", plan('[{"let": "a", "be": "1', "+1+1+1", '"}]')),
    "places of a plan": Trick(
        "artifact", plan('[{"let": "a", "be": "1"}', ', {"let": "a", "be": "1", "at": "x:1048576:1048576"}')
    ),
    "tiers of a plan": Trick("artifact", tiers),
    "one file by many names": Trick("artifact", one_file_by_many_names),
    "one file by many links": Trick("artifact", one_file_by_many_links),
    "choices in choices": Trick("choice", choices_in_choices),
    "a strategy of many links": Trick("strategy", strategy_of_many_links),
    "a strategy of many rules": Trick("strategy", strategy_of_many_rules),
    "a tensor without memory": Trick("residuals", residuals(shape=[1 << 40], residual=torch.zeros(1).expand(1 << 40))),
    "a state of many extents": Trick("residuals", residuals(shape=[1 << 62] * 100_000)),
    "counts of many units": Trick(
        "counts", counts(units=1 << 40, sampled=1 << 40, held=torch.zeros(1).expand(1 << 40))
    ),
    "counts of many ranks": Trick("counts", counts(size=1 << 40)),
}
