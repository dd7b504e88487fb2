"""The doctor finds faults of an installation, says what to do, and changes nothing else."""

import errno
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from zenc.assist.checks import _can_bind, examine
from zenc.assist.finding import Finding
from zenc.cli import app
from zenc.codegen.build import toolchain

WRONG = """#!/bin/sh
case "$*" in *--version*|*-dM*) echo wrong 1.0;; *) echo no vector >&2; exit 1;; esac
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ZENC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    return tmp_path / "cache"


def found() -> dict[str, Finding]:
    return {finding.name: finding for finding in examine()}


def test_a_machine_that_runs_the_tests_is_well(own_cache: Path) -> None:
    done = CliRunner().invoke(app, ["doctor", "--json"])
    shown = json.loads(done.stdout)
    assert done.exit_code == 0 and shown["ok"] is True
    by_name = {finding["name"]: finding for finding in shown["findings"]}
    assert {name for name, finding in by_name.items() if finding["status"] == "broken"} == set()
    assert by_name["torch"]["value"].startswith(str(sys.modules["torch"].__version__))
    assert by_name["kernels"]["status"] == "good"
    assert str(own_cache) in by_name["cache"]["value"]
    assert list(own_cache.iterdir()) == [], "the trial leaves nothing"


def test_what_is_broken_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    done = CliRunner().invoke(app, ["doctor"])
    assert done.exit_code == 1
    assert "broken   compiler" in done.stdout and "do: install g++" in done.stdout
    assert "see: zenc help compiler-missing" in done.stdout and "broken: compiler, kernels" in done.stdout
    assert "good     network" in done.stdout or "warning  network" in done.stdout, "the rest is looked at all the same"


def test_a_compiler_that_can_not_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = tmp_path / "wrong-compiler"
    wrong.write_text(
        '#!/bin/sh\ncase "$*" in *--version*|*-dM*) echo wrong 1.0;; *) echo no vector >&2; exit 1;; esac\n'
    )
    wrong.chmod(0o700)
    monkeypatch.setenv("CXX", str(wrong))
    toolchain._probe.cache_clear()
    trial = found()["kernels"]
    assert (trial.status, trial.notes) == ("broken", ("no vector",))
    wrong.write_text(wrong.read_text().replace("no vector", "No space left on device"))
    assert found()["kernels"].id == "cache-not-writable"


def test_a_cache_that_others_can_write(own_cache: Path) -> None:
    own_cache.mkdir()
    own_cache.chmod(0o777)
    cache = found()["cache"]
    assert (cache.status, cache.id) == ("broken", "cache-unsafe")


def test_a_cache_that_can_not_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    assert (found()["kernels"].status, found()["kernels"].id) == ("broken", "cache-not-writable")


def test_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is seen before the compiler runs, or by the compiler."""
    monkeypatch.setattr("shutil.disk_usage", lambda _path: SimpleNamespace(free=5000))
    assert (found()["cache"].status, found()["cache"].id) == ("broken", "cache-not-writable")


def test_a_wrong_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZENC_DEADLINE_S", "soon")
    assert found()["deadline"].id == "bad-deadline"


@pytest.mark.parametrize(("name", "status"), [("lo", "good"), ("nothing0", "broken"), ("lo,nothing0", "broken")])
def test_the_interface_that_is_named(name: str, status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", name)
    network = found()["network"]
    assert network.status == status, network
    assert name in network.value


def test_gloo_that_opens_no_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zenc.assist.checks._refused", lambda **_: "no such device")
    network = found()["network"]
    assert network.status == "broken" and "no such device" in network.value and "GLOO_SOCKET_IFNAME" in network.help


@pytest.mark.parametrize("resolved", [["127.0.0.1"], ["192.0.2.77"], []])
def test_loopback_is_no_way_to_other_machines(resolved: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's name leads to loopback, to an address of another machine, or nowhere."""
    monkeypatch.setattr("zenc.assist.checks._resolved", lambda host: resolved)
    network = found()["network"]
    assert network.status == "warning" and network.value.startswith("loopback: the name ")
    assert network.help and "export GLOO_SOCKET_IFNAME=" in network.help


def test_addresses_of_this_machine_can_be_bound() -> None:
    assert _can_bind("127.0.0.1") and not _can_bind("192.0.2.77") and not _can_bind("2001:db8::77")


def test_without_torch_the_rest_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch", "torch.distributed"):
        monkeypatch.setitem(sys.modules, name, None)
    shown = found()
    assert shown["torch"].status == "broken" and shown["torch"].help
    assert shown["compiler"].status == shown["kernels"].status == "good"


def test_a_torch_that_zenc_was_not_run_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["torch"], "__version__", "1.13.0+cpu")
    torch = found()["torch"]
    assert (torch.status, torch.value) == ("warning", "1.13.0+cpu") and "was not run with torch 1.13.0" in torch.notes[
        0
    ]


def test_nothing_of_the_environment_is_changed(tmp_path: Path) -> None:
    before = dict(os.environ)
    found()
    assert dict(os.environ) == before
