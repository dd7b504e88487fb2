"""A report is one file that loads nothing, escapes users' texts, and shows the right numbers."""

import json
import os
import re
import shutil
import subprocess
from dataclasses import fields
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from jinja2 import meta
from typer.testing import CliRunner

from zenc.cli import app
from zenc.errors import CostError
from zenc.gradients.profile_generators import zipf
from zenc.gradients.profile_io import dump_profiles
from zenc.language.files import locate, read
from zenc.pipeline.request import Request
from zenc.pipeline.shown import planners_of
from zenc.report.findings import findings
from zenc.report.measured import read_measured
from zenc.report.page import TEMPLATE, ReportPage, environment
from zenc.simulator.calibration import read_calibration
from zenc.simulator.sweep import SweepPoint, simulate

ROOT = Path(__file__).resolve().parents[2]
SUITE, LAB = ROOT / "docs" / "benchmarks" / "rows-8.json", ROOT / "benchmarks" / "lab" / "measured" / "calibration.json"
VOID = {"meta", "br", "link", "img", "input", "hr"}
GIVEN = ("--ranks", "4", "--bandwidth", "1 Gbit/s", "--units", "2000", "--density", "0.02", "--zipf", "1.05")


class Page(HTMLParser):
    """The elements of a page, in order, each of which has to be closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        assert self.open == [], "elements that nobody closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["report", *arguments, "-o", "out.html"])
        assert done.exit_code == 0, done.output
        return (tmp_path / "out.html").read_text(encoding="utf-8")

    return run


def assert_self_contained(text: str) -> Page:
    page = Page(text)
    urls = set(re.findall(r"https?://[^\s\"'<>)]+", text))
    assert urls <= {"http://www.w3.org/2000/svg"}, "a name space, which nothing is loaded from"
    assert not re.search(r"@import|@font-face|url\((?!#)", text)
    assert not {"script", "link", "img", "iframe", "object", "embed"} & {tag for tag, _ in page.elements}
    for tag, attributes in page.elements:
        assert not any(name == "src" or name.startswith("on") for name in attributes)
        assert tag != "a" or (attributes.get("href") or "").startswith("#")
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {f"#{name}" for name in ids} >= {attributes["href"] for tag, attributes in page.elements if tag == "a"}
    policy = [a.get("content") for tag, a in page.elements if tag == "meta" and a.get("http-equiv")]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]
    return page


def test_texts_are_those_of_the_files(tmp_path: Path) -> None:
    """A file of one's own may be called like a shipped scheme; what chooses shows the texts of its candidates."""
    own = tmp_path / "own.zen"
    own.write_text(read(locate("dense_ring")).text.replace('"', '"Mine: ', 1))
    place = SweepPoint(4, {"words": zipf(0.02, 1.05, 2000)}, None, read_calibration(LAB), {})
    texts = {subject.name: subject.text for subject in findings([str(own), "auto"], place).subjects}
    assert texts["dense_ring"] == own.read_text() and texts["balanced"] == read(locate("balanced")).text


def test_predicted_beside_measured(report: Any) -> None:
    names = ["holders", "balanced", "agsparse"]
    page = assert_self_contained(report(*names, "--measured", str(SUITE), "--calibration", str(LAB)))
    for name in names:
        took = json.loads(SUITE.read_text())["peers"][name]["seconds"]["median"]
        assert f"{took * 1e3:.4g} ms" in page.text, "as measured"
    assert "Predictions are off by" in page.text and "torch-coo (measured only)" in page.text
    assert "8 ranks, 100mbit" in page.text and "not calibrated" not in page.text
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in page.elements


def test_the_data_say_the_same(report: Any, tmp_path: Path) -> None:
    given = ["--measured", str(SUITE), "--calibration", str(LAB), "--json"]
    done = CliRunner().invoke(app, ["report", "balanced", *given])
    data = json.loads(done.stdout)
    (scheme,) = data["schemes"]
    assert data["ok"] and data["file"] is None and data["ranks"] == 8
    assert scheme["error"] == pytest.approx(scheme["seconds"] / scheme["measured"]["seconds"] - 1)
    assert scheme["measured"]["seconds"] == 0.47829 and data["gradients"][0]["units"] == 200_000
    place = SweepPoint(8, {"zipf": zipf(0.02, 1.05, 200_000, 64)}, None, read_calibration(LAB), {})
    assert scheme["seconds"] == pytest.approx(
        simulate(planners_of(["balanced"], Request()), [place]).points[0].outcomes[0].seconds
    )


def test_a_topology_and_a_profile(report: Any, tmp_path: Path) -> None:
    two = [zipf(0.02, 1.05, 2000, 8, name="words"), zipf(0.1, 1.0, 500, 4, name="tags")]
    (tmp_path / "model.json").write_text(dump_profiles(two))
    page = assert_self_contained(report("balanced", "--topology", "nodes(2, gpus = 4)", "--profile", "model.json"))
    assert "2 machines of 4 devices" in page.text and "450 GB/s" in page.text, "the network is drawn"
    assert "words" in page.text and "tags" in page.text and "not calibrated" in page.text
    assert sum(tag == "svg" for tag, _ in page.elements) == 2
    assert "among 8 ranks" in page.text and "every contribution is summed exactly once" in page.text


def test_what_a_reader_has_to_know(report: Any, tmp_path: Path) -> None:
    (tmp_path / "took.json").write_text('{"balanced": 0.5, "ours": 0.25}')
    text = report("balanced", "kylix", "--ranks", "7", "--density", "0.1", "--units", "999", "--measured", "took.json")
    page = assert_self_contained(text)
    assert "kylix is left out at 7 ranks" in page.text and "the gradient is even" in page.text
    assert "ours (measured only)" in page.text and "not calibrated" in page.text
    assert "the fastest there, ours, is not predicted" in page.text
    other = report("balanced", "--measured", str(SUITE), "--ranks", "4")
    assert "measured with ranks 8, predicted for 4" in Page(other).text


def test_a_scheme_that_chooses_is_reported_by_its_candidates(report: Any) -> None:
    page = assert_self_contained(report("auto", "agsparse", *GIVEN))
    assert "auto takes the cheapest of balanced, holders, hierarchical_centralization, dense_ring" in page.text
    assert sum(tag == "svg" for tag, _ in page.elements) == 5


def test_a_bar_that_has_no_room_is_cut_and_that_is_said(report: Any) -> None:
    slow = report("balanced", "dense_ring", *GIVEN)
    assert 'z-bar z-cut" style="width: 100%"' in slow and "Striped bars are cut" in slow
    assert "Striped" not in report("balanced", "holders", *GIVEN)


def test_more_ranks_than_can_be_drawn_or_proved(report: Any) -> None:
    page = assert_self_contained(report("balanced", "--ranks", "300", "--zipf", "1"))
    assert "Not drawn: a drawing has room for 256 ranks, not for 300" in page.text
    assert "not tried among 300" in page.text


def test_text_of_a_user_is_escaped(report: Any, tmp_path: Path) -> None:
    evil = '<script>alert("1")</script>&amp;{{ 7 * 7 }}<img src=x onerror=y>'
    (tmp_path / "mine.zen").write_text(
        f'scheme mine {{ "{evil.replace(chr(34), "")}" # {evil}\n communication: ring aggregation: incremental '
        "partition: parallelism balance: imbalanced }\n"
        f'topology cluster {{ "{evil.replace(chr(34), "")}" like nodes(2, gpus = 2) }}'
    )
    profile = dump_profiles([zipf(0.1, 1.0, 500, 4, name=evil)])
    (tmp_path / "evil.json").write_text(profile)
    (tmp_path / "took.json").write_text(json.dumps({"mine": 0.1, evil: 0.2}))
    text = report("mine.zen", "--topology", "mine.zen:cluster", "--profile", "evil.json", "--measured", "took.json")
    page = assert_self_contained(text)
    assert "<script" not in text and "<img" not in text and "{{ 7 * 7 }}" in page.text
    assert evil in page.text, "as it was written"


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["balanced", *GIVEN], 2, "say where to write"),
        (["balnced", *GIVEN, "-o", "x.html"], 2, "did you mean 'balanced'"),
        (["balanced", "--measured", "bad.json", *GIVEN, "-o", "x.html"], 1, "bad-measurement"),
        (["balanced", "--measured", "other.json", *GIVEN, "-o", "x.html"], 1, "none of the schemes is among"),
        (["balanced", "--measured", "took.json", "--ranks", "4", "-o", "x.html"], 2, "by which law"),
        (["balanced", "--bandwidth", "1 GB/s,2 GB/s", "--zipf", "1", "-o", "x.html"], 2, "about one bandwidth"),
        (["balanced", *GIVEN, "-o", "no/such.html"], 2, "there is no folder"),
    ],
)
def test_bad_input_is_said(
    arguments: list[str], status: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.json").write_text('{"balanced": "fast"}')
    (tmp_path / "other.json").write_text('{"zen": 1.0}')
    (tmp_path / "took.json").write_text('{"balanced": 1.0}')
    done = CliRunner().invoke(app, ["report", *arguments])
    found = done.output + str(done.exception or "")
    assert done.exit_code == status and words in " ".join(found.split()), found
    assert not (tmp_path / "x.html").exists()


@pytest.mark.parametrize(
    "text",
    ["", "[]", "3", "{}", '{"a": -1}', '{"a": true}', '{"a": NaN}', '{"a": {}}', '{"a": {"w": {}}}', '{"peers": {}}',
     '{"peers": {"a": 3}}', '{"peers": {"a": {"seconds": {"median": 1}}}}', '{"a": 1e999}', "[" * 10_000],
)  # fmt: skip
def test_files_without_measurements(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(CostError, match=r"error\[bad-measurement\]"):
        read_measured(tmp_path / "x.json")


def test_measurements_in_all_forms(tmp_path: Path) -> None:
    suite = read_measured(SUITE)
    assert (suite.at.ranks, suite.at.bandwidth, suite.at.zipf, suite.at.drawn) == (8, 12.5e6, 1.05, True)
    assert suite.rows["holders"].sent == 4_991_648 and suite.rows["torch-coo"].sent == 7_419_192
    stats = {"words": {"seconds": 0.2, "bytes_sent": 10}, "tags": {"seconds": 0.1, "bytes_sent": 5}}
    (tmp_path / "run.json").write_text(json.dumps({"balanced": stats}))
    row = read_measured(tmp_path / "run.json").rows["balanced"]
    assert (row.seconds, row.sent) == (pytest.approx(0.3), 15)
    assert not read_measured(SUITE.with_name("trace-8.json")).at.drawn


def test_inputs_are_exactly_the_undeclared_variables() -> None:
    loader = environment().loader
    assert loader is not None
    source, _, _ = loader.get_source(environment(), TEMPLATE)
    assert meta.find_undeclared_variables(environment().parse(source)) == {field.name for field in fields(ReportPage)}


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 1280])
def test_in_a_browser_nothing_is_wider_than_the_page(report: Any, width: int, tmp_path: Path) -> None:
    """A script of the test asks the page in headless Chromium, for which its policy is lifted."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None and os.environ.get("ZENC_WITHOUT_CHROMIUM"):
        pytest.skip("ZENC_WITHOUT_CHROMIUM is set and there is no Chromium: the report is not opened in a browser")
    assert browser, "there is no Chromium (Debian: apt install chromium); ZENC_WITHOUT_CHROMIUM=1 skips this test"
    text = report("balanced", "holders", "--measured", str(SUITE), "--calibration", str(LAB))
    asked = "const e = document.documentElement; document.title = [e.scrollWidth, e.clientWidth, innerWidth]"
    text = re.sub(r"<meta http-equiv.*?>", "", text).replace("</body>", f"<script>{asked}</script></body>")
    (tmp_path / "inner.html").write_text(text, encoding="utf-8")
    frame = f'<iframe src="inner.html" style="width: {width}px; height: 800px; border: 0"></iframe>'
    told = "<script>onload = () => document.title = frames[0].document.title</script>"
    (tmp_path / "frame.html").write_text(f"<body style='margin: 0'>{frame}{told}</body>")
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", "--dump-dom"]
    command = [browser, *options, f"--user-data-dir={tmp_path / 'browser'}", f"--window-size={width},800"]
    done = subprocess.run([*command, f"file://{tmp_path}/frame.html"], capture_output=True, text=True, timeout=120)
    found = re.search(r"<title>(\d+),(\d+),(\d+)</title>", done.stdout)
    assert found, done.stdout[-500:] + done.stderr[-500:]
    assert found[1] == found[2] and int(found[3]) == width, "the page scrolls down, and not sideways"
