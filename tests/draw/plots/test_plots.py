"""Plots: readable numbers, everything on the paper, distinct colours, and a dark mode."""

import itertools
import math
import re
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.textpath import TextPath

from tests.support.pictures import NAMESPACE, differences, meaning, texts
from zenc.draw.colour import distinct
from zenc.draw.plots import curves, profiles
from zenc.draw.plots.figure import DARK, MOST_TICKS, round_values, spread_out
from zenc.gradients.profile_generators import uniform, zipf
from zenc.pipeline.request import Request
from zenc.pipeline.shown import planners_of
from zenc.simulator.calibration import DEFAULTS
from zenc.simulator.sweep import SweepPoint, simulate

BARS = [
    curves.Bar(
        f"balanced in a node of {k}, then sparcml_split", 4e-4 + k * 1e-5, f"{k}.1 us, 1.2 MB at the busiest, 2 steps"
    )
    for k in range(8)
]
MANY = {f"scheme_{k}": ([2.0, 8.0, 32.0], [0.01 * (k + 1), 0.02, 0.3]) for k in range(20)}


def oklab(colour: str) -> tuple[float, float, float]:
    """Return lightness and two opponent axes (B. Ottosson, 2020), whose distances are perceptual."""
    encoded = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in encoded)
    long = (0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b) ** (1 / 3)
    middle = (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b) ** (1 / 3)
    short = (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.8086757660 * short,
    )


def placed(svg: str) -> list[tuple[float, float, float, str]]:
    """Return left end, right end, height and words of every text."""
    found = []
    for element in ElementTree.fromstring(svg).iter(f"{NAMESPACE}text"):
        style, words = element.get("style", ""), "".join(element.itertext())
        size = float((re.search(r"([\d.]+)px", style) or [0, "10"])[1])
        x, y = [float(n) for n in (element.get("x"), element.get("y"))] if element.get("x") else _moved(element)
        width = TextPath((0, 0), words, size=size).get_extents().width
        left = x - width * (0.5 if "middle" in style else 1.0 if "end" in style else 0.0)
        found.append((left, left + width, y, words))
    return found


def _moved(element: ElementTree.Element) -> list[float]:
    return [
        float(n) for n in (re.findall(r"translate\(([-\d.]+) ([-\d.]+)\)", element.get("transform", "")) or [(0, 0)])[0]
    ]


def test_bars_and_their_notes_stay_on_the_paper_and_apart() -> None:
    svg = curves.bars_svg(BARS, "The best", "16 ranks")
    width = float(ElementTree.fromstring(svg).get("viewBox", "").split()[2])
    found = placed(svg)
    assert all(left >= 0 and right <= width for left, right, _, _ in found)
    ticks = sorted(text for text in found if re.fullmatch(r"0|\d+ us", text[3]))
    assert len(ticks) > 3 and all(one[1] < other[0] for one, other in itertools.pairwise(ticks))
    assert {bar.note for bar in BARS} <= set(texts(svg))


def test_no_axis_reads_as_a_power() -> None:
    svg = curves.svg(MANY, "ranks", "t", "f")
    assert {"2", "8", "32", "10 ms", "100 ms"} <= set(texts(svg))
    assert not re.search("10\\^|\\$|mathdefault|\N{MINUS SIGN}", svg)
    for over, words in (("bandwidth", "1 Gbit/s"), ("density", "1 %")):
        scale = 125e6 if over == "bandwidth" else 0.01
        assert words in texts(curves.svg({"a": ([scale, 10 * scale], [1e-3, 2e-3])}, over, "t", "f"))


def test_no_colour_is_twice_in_a_plot() -> None:
    lines = meaning(curves.svg(MANY, "ranks", "t", "f")).shapes
    assert len(lines) == len(MANY)


@pytest.mark.parametrize("count", [1, 8, 16, 24])
def test_colours_of_a_series_lie_apart(count: int) -> None:
    found = distinct(count)
    assert found == distinct(24)[:count]
    assert all(math.dist(oklab(one), oklab(other)) > 0.07 for one, other in itertools.combinations(found, 2))
    assert len(set(distinct(200))) == 200


@given(st.floats(1e-9, 1e9), st.floats(1.01, 1e12))
def test_ticks_are_few_and_inside(low: float, ratio: float) -> None:
    found = round_values(low, low * ratio)
    assert 2 <= len(found) <= MOST_TICKS + 1 and found == sorted(set(found))
    assert all(low * 0.999 <= value <= low * ratio * 1.001 for value in found)


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=40))
def test_ticks_of_values_keep_the_ends(values: list[int]) -> None:
    found = spread_out(map(float, values))
    assert (found[0], found[-1]) == (min(values), max(values)) and len(found) <= MOST_TICKS + 1
    assert set(found) <= set(values)


def test_a_plot_turns_dark_with_the_page() -> None:
    """Everything but data has a colour with a dark counterpart; a reader without style sheets gets paper."""
    for svg in (curves.bars_svg(BARS, "t", "f"), curves.of_kernels(DEFAULTS), profiles.svg({"a": uniform(0.1, 99)}, 4)):
        body = ElementTree.fromstring(svg)
        styles = " ".join(element.get("style", "") for element in body.iter())
        assert set(re.findall(r"(?:fill|stroke): ?(#[0-9a-f]{6})", styles)) <= {*DARK, *distinct(24)}
        for light, dark in DARK.items():
            assert f'[style*="fill: {light}"] {{ fill: {dark} !important }}' in svg
        black = [text for text in body.iter(f"{NAMESPACE}text") if "fill: #" not in text.get("style", "")]
        assert not black, "which nothing replaces on a dark page"
        assert 'style="fill: #ffffff"' in svg


def test_a_profile_says_how_skewed_it_is() -> None:
    assert {"skewness of 8 parts: 1", "densification at 128: 72.4"} <= set(
        texts(profiles.svg({"a": uniform(0.01, 9999)}, 4))
    )


def test_titles_say_what_was_varied_and_what_was_fixed() -> None:
    places = [
        SweepPoint(size, {"words": zipf(density, 1.05, 20_000, 64, name="words")}, None, DEFAULTS, {})
        for size in (2, 4)
        for density in (0.01, 0.1)
    ]
    found = simulate(planners_of(["balanced"], Request()), places)
    words = texts(curves.of_simulation(found, places, "ranks"))
    assert "Predicted time of a call by number of ranks" in words
    assert "words: 20,000 units of 64 f32; one switch with 100 Gbit/s a rank; not calibrated" in words
    assert {"balanced, 1 %", "balanced, 10 %"} <= set(words), "what else is varied tells the curves apart"
    by_density = texts(curves.of_simulation(found, places, "density"))
    assert {"Predicted time of a call by density", "balanced, 2 ranks", "balanced, 4 ranks"} <= set(by_density)
    assert (
        "Predicted time of a call by number of ranks"
        in curves.of_simulation(found, places, "ranks").split("<style>")[0]
    )


def test_curves_go_from_left_to_right() -> None:
    places = [SweepPoint(size, {"a": uniform(0.01, 1000)}, None, DEFAULTS, {}) for size in (8, 2, 4)]
    ((xs, ys),) = curves.curves_of(simulate(planners_of(["balanced"], Request()), places).points, "ranks").values()
    assert xs == [2.0, 4.0, 8.0] and len(ys) == 3


def test_plots_of_other_data_mean_something_else() -> None:
    one, other = (meaning(curves.svg({"a": ([2, 4], [0.1, y])}, "ranks", "t", "f")) for y in (0.2, 0.4))
    assert differences(one, one) == []
    assert any("lies elsewhere" in each for each in differences(one, other))
    more = meaning(curves.svg({"a": ([2, 4], [0.1, 0.2]), "b": ([2, 4], [0.1, 0.2])}, "ranks", "t", "f"))
    assert "new: 'b'" in differences(one, more)
