"""``benchmarks/compress.py`` runs and reports the right bytes; its times are not tested."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import compress
from zenc.wire.codes import encoded_bytes


def test_every_kernel_has_a_line(tmp_path, monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    report, n = tmp_path / "compress.json", 5000
    monkeypatch.setattr(sys, "argv", ["compress.py", "--values", str(n), "--rounds", "1", "--json", str(report)])
    compress.main()
    lines = capsys.readouterr().out.splitlines()
    found = {each["kernel"]: each for each in json.loads(report.read_text())["kernels"]}
    assert len(lines) == len(found) + 2 and all(each["memcpys"] > 0 for each in found.values())
    for name, code in compress.CODES.items():
        assert found[f"{name}, with residual"]["bytes_per_value"] * n == pytest.approx(encoded_bytes(code, n))
    assert found["fixed(8) by asc"]["bytes_per_value"] < 0.8 * found["fixed(8)"]["bytes_per_value"]


def test_the_page_has_figures_of_the_last_run_and_bounds_are_kept() -> None:
    rows = json.loads((Path(compress.__file__).parent / "results" / "compress.json").read_text("utf-8"))["kernels"]
    page = Path(compress.__file__).parents[1] / "docs" / "internals" / "performance.md"
    copies = {each["kernel"]: each["memcpys"] for each in rows}
    codes = [copies[f"{name}, with residual"] for name in compress.CODES]
    assert copies["top 1 %, exact"] <= 5 and max(codes) <= 4
    said = " ".join(
        page.read_text("utf-8").partition("\n### Kernels of compression\n")[2].partition("\n## ")[0].split()
    )
    assert f"exact top 1 % takes {copies['top 1 %, exact']:.1f} (5" in said
    assert f"residual {min(codes):.1f} (`f16`) to {max(codes):.1f} (`ternary`) (4" in said
    assert f"a sketch {copies['sketch(3, 0.02)']:.1f}, `fixed(8)` by asc {copies['fixed(8) by asc']:.1f}." in said
