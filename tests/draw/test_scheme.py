"""Drawings are well-formed, show every move once, stay on the paper, and take no text unescaped."""

import dataclasses
import itertools
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support.cases import COMBINATIONS, scheme_text
from tests.support.fuzz import tried
from tests.support.pictures import marks_of, numbers, words
from tests.support.plans import plan_of
from tests.support.refusals import refusals
from tests.support.shipped import SHIPPED, plan_of_shipped
from tests.support.survival import Faults, faults_of
from zenc.analysis.expected_bytes import expected_bytes
from zenc.api import draw as draw_file
from zenc.draw.colour import palette, ramp
from zenc.draw.scene import Mark, Scene
from zenc.draw.scheme import Drawing, draw
from zenc.draw.shown import StepRange
from zenc.draw.steps import MOST_RANKS, Steps, steps_of
from zenc.errors import DrawingError
from zenc.gradients.spec import GradientSpec
from zenc.plan.ir import Plan
from zenc.plan.requirements import allowed
from zenc.topology.shapes import nodes

NAMESPACE = "{http://www.w3.org/2000/svg}"
HOSTILE = '</title><script>alert("1")</script> & {{ 7 * 7 }} {% raw %} ]]> \x00\x1b \ud800 \u2028 "\' onload=x'


def drawn(plan: Plan, size: int, choice: StepRange | None = None) -> tuple[Steps, Scene, ElementTree.Element]:
    steps = steps_of(plan, size, choice)
    picture = draw(plan, steps)
    return steps, picture, ElementTree.fromstring(picture.svg())


def moves_in(root: ElementTree.Element) -> list[ElementTree.Element]:
    return [group for group in root.iter(f"{NAMESPACE}g") if group.get("class") == "move"]


def stroke(arrow: Mark) -> object:
    """Return the colour of an arrow's curve."""
    return marks_of(arrow, "path", "arrow")[0].attributes["stroke"]


def incomplete(steps: Steps, root: ElementTree.Element) -> Faults:
    """Return faults: a move without exactly one arrow with curve, head and words, a step without its row of nodes."""
    bands = [group for group in root.iter(f"{NAMESPACE}g") if group.get("class") == "band"]
    nodes = [rect for rect in root.iter(f"{NAMESPACE}rect") if rect.get("class") == "node"]
    kinds = [step.announces for step in steps.steps]
    rows = len(kinds) + sum(
        kind != before for before, kind in zip([None, *kinds], kinds, strict=False)
    )  # one before each
    found = faults_of(
        other_bands=len(bands) == len(steps.steps), other_rows=len(nodes) == (steps.size * rows if steps.steps else 0)
    )
    for step, band in zip(steps.steps, bands, strict=False):
        arrows = moves_in(band)
        ends = Counter((int(arrow.get("data-src", "")), int(arrow.get("data-dst", ""))) for arrow in arrows)
        found += faults_of(
            other_arrows=ends == Counter((move.src, move.dst) for move in step.moves),
            no_curve_and_head=all(len(arrow.findall(f"{NAMESPACE}path")) == 2 for arrow in arrows),
            no_words=all("sends" in (arrow.findtext(f"{NAMESPACE}title") or "") for arrow in arrows),
        )
    return found


def off_paper(root: ElementTree.Element) -> list[str]:
    _, _, width, height = (float(number) for number in root.get("viewBox", "").split())
    return [ElementTree.tostring(element, "unicode") for element in root.iter() if not _inside(element, width, height)]


def _inside(element: ElementTree.Element, width: float, height: float) -> bool:
    limits = {"x": width, "x1": width, "x2": width, "y": height, "y1": height, "y2": height}
    places = [(float(element.get(name, "0")), most) for name, most in limits.items()]
    for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", element.get("d", "")):
        places += [(float(x), width), (float(y), height)]
    return all(0 <= place <= most for place, most in places)


@pytest.mark.parametrize("scheme", SHIPPED)
@given(size=st.integers(1, 9))
@settings(max_examples=tried(9), deadline=None)
def test_shipped_schemes_are_drawn_whole(scheme: str, size: int) -> None:
    assume(allowed(plan_of_shipped(scheme), [size]))
    drawing = draw_file(scheme, size)
    root = ElementTree.fromstring(drawing.svg())
    assert incomplete(drawing.steps, root) == []
    assert off_paper(root) == []


@given(combination=st.sampled_from(COMBINATIONS), size=st.integers(1, 9))
@settings(max_examples=tried(40), deadline=None)
def test_combinations_are_drawn_whole(combination: tuple[str, str, str], size: int) -> None:
    steps, _, root = drawn(plan_of(scheme_text(*combination)), size)
    assert incomplete(steps, root) == []
    assert off_paper(root) == []
    assert not steps.steps or bool(steps.steps[-1].after.all()), "all ranks end with everything"


@pytest.mark.parametrize("few", [1, 9])
@pytest.mark.parametrize("inside", ["balanced", "hierarchical_centralization"])
def test_index_sets_of_an_outermost_tier_are_drawn_as_parts(inside: str, few: int) -> None:
    """Each rank ends the announcement with just the index sets of its group for the parts that it owns inside."""
    steps, _, root = drawn(plan_of(f"scheme two {{ tier a(2): {inside} tier b: holders(few = {few}) }}"), 6)
    assert incomplete(steps, root) == []
    assert off_paper(root) == []
    *_, last = (step for step in steps.steps if step.announces)
    parts = last.after.shape[1]
    wanted = [[parts == 3 or part // 3 == rank % 2 for part in range(parts)] for rank in range(6)]
    assert last.after.all(axis=2).tolist() == wanted
    assert {move.first for step in steps.steps if step.announces for move in step.moves} == set(range(parts))


def test_the_file_needs_nothing_else() -> None:
    text = draw_file("balanced", 8).svg()
    assert text.count("http") == 1, "only the name space"
    assert not re.search(r"<script|href|@import|@font-face|url\((?!#)|\son\w+=", text)
    root = ElementTree.fromstring(text)
    assert root.get("role") == "img"
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    for name in (root.get("aria-labelledby") or "").split():
        assert name in ids
    gradients = set(re.findall(r"url\(#([^)]+)\)", text))
    assert gradients <= set(ids)
    assert "prefers-color-scheme: dark" in text


@pytest.mark.parametrize(("scheme", "size"), [("kylix", 8), ("dense_ring", 9), ("double_binary_tree", 7)])
def test_no_label_lies_on_another(scheme: str, size: int) -> None:
    bands = marks_of(draw_file(scheme, size).picture, "g", "band")
    assert any(marks_of(band, "text", "label") for band in bands)
    for band in bands:
        for one, other in itertools.combinations(marks_of(band, "text", "label"), 2):
            across, down = (abs(a - b) for a, b in zip(numbers(one, "x", "y"), numbers(other, "x", "y"), strict=True))
            assert across >= 5 * (len(one.words) + len(other.words)) / 2 or down >= 9


def test_groups_of_inner_tiers_are_named() -> None:
    plan = plan_of("scheme two { tier rack(2): dense_ring tier rest: dense_ring }")
    _, picture, _ = drawn(plan, 6)
    quiet = [text.words for text in marks_of(picture, "text", "quiet")]
    assert [each for each in quiet if each.startswith("rack")] == ["rack 0", "rack 1", "rack 2"]


def test_who_keeps_what_a_phase_loses_is_marked() -> None:
    """Losses of a part in ``one_bit`` are kept by its sender and then its owner; a single rounding is kept by all."""
    steps, picture, root = drawn(plan_of_shipped("one_bit"), 3)
    push, pull = [{(mark.rank, mark.part, mark.what) for mark in step.kept} for step in steps.steps]
    assert push == {(rank, part, "encoded") for rank in range(3) for part in range(3) if rank != part}
    assert pull == {(part, part, "encoded") for part in range(3)}
    titles = [
        path.findtext(f"{NAMESPACE}title") for path in root.iter(f"{NAMESPACE}path") if path.get("class") == "keeper"
    ]
    assert len(titles) == 9 and titles[-1] == "rank 2 keeps what part 2 loses where it is encoded"
    assert any("A diamond: the rank keeps" in each for each in words(picture))
    rounded = steps_of(plan_of_shipped("oscar_hw"), 3).steps
    assert [len(step.kept) for step in rounded] == [9, 0, 0, 0] and rounded[0].kept[0].what == "rounded"
    selected = steps_of(plan_of_shipped("topk_a2a"), 3).to_json()["steps"]
    assert {each["what"] for each in selected[0]["kept"]} == {"selected"} and "kept" not in selected[-1]
    assert not any(step.kept for step in steps_of(plan_of_shipped("qsgd"), 3).steps), "kept nowhere"
    merged = [
        [m.rank for m in step.kept if m.what == "merged"] for step in steps_of(plan_of_shipped("gtop_k"), 5).steps
    ]
    assert merged == [[0], [0, 2], [0], []], "the lower of two"
    assert "in all, to 1 to 16; it keeps what 16 parts lost</title>" in draw_file("one_bit", 17).svg()


def test_text_of_a_user_is_escaped() -> None:
    plan = dataclasses.replace(plan_of(scheme_text(*COMBINATIONS[-1])), scheme=HOSTILE, doc=HOSTILE)
    steps, picture, root = drawn(plan, 3)
    assert incomplete(steps, root) == []
    assert not list(root.iter(f"{NAMESPACE}script")) and "<script" not in picture.svg()
    kept = root.findtext(f"{NAMESPACE}title") or ""
    assert '</title><script>alert("1")</script> & {{ 7 * 7 }}' in kept
    picture.svg().encode("utf-8")


@given(st.text(max_size=60))
@settings(max_examples=tried(50), deadline=None)
def test_any_doc_gives_well_formed_xml(doc: str) -> None:
    plan = dataclasses.replace(plan_of(scheme_text(*COMBINATIONS[-1])), doc=doc)
    steps, picture, root = drawn(plan, 2)
    assert incomplete(steps, root) == []
    kept = re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\N{REPLACEMENT CHARACTER}", picture.title)
    assert (root.findtext(f"{NAMESPACE}title") or "").split() == kept.split()


def test_places_in_files_with_strange_names_are_escaped() -> None:
    plan = plan_of(
        "scheme s { communication: schedule { push { step { send all to 0 where rank == 1 } } "
        "pull { step { send all to 1 where rank == 0 } } } aggregation: incremental partition: centralization }",
        name='a"<b>&.zen',
    )
    _, _, root = drawn(plan, 2)
    titles = [arrow.findtext(f"{NAMESPACE}title") or "" for arrow in moves_in(root)]
    assert all('a"<b>&.zen:1:' in title for title in titles)


def test_steps_can_be_chosen() -> None:
    plan = plan_of(scheme_text("ring", "incremental", COMBINATIONS[1][2]))
    steps, picture, root = drawn(plan, 5, StepRange("push", 2, 3))
    assert [(step.phase, step.number) for step in steps.steps] == [("push", 2), ("push", 3)]
    assert incomplete(steps, root) == []
    assert any("in the 2 steps shown" in each for each in words(picture))
    both = steps_of(plan, 5, StepRange(None, 4))
    assert [(step.phase, step.number) for step in both.steps] == [("push", 4), ("pull", 4)]


def test_json_is_the_moves() -> None:
    drawing: Drawing = draw_file("balanced", 3, phase="pull")
    data = drawing.to_json()
    (step,) = data["steps"]
    assert (data["size"], data["parts"], data["rounds"]) == (3, 3, {"push": 1, "pull": 1})
    assert {(move["src"], move["dst"], move["first"]) for move in step["moves"]} == {
        (src, dst, src) for src in range(3) for dst in range(3) if src != dst
    }


def test_limits() -> None:
    ring = plan_of(scheme_text("ring", "incremental", COMBINATIONS[1][2]))
    one_by_one = plan_of(
        "scheme s { communication: schedule { push { step { for p in 0 .. size - 1 { for d in 1 .. size - 1 "
        "{ send part p to (rank + d) mod size } } } } pull { } } "
        "aggregation: one_shot partition: parallelism balance: imbalanced }"
    )
    assert refusals(DrawingError, steps_of, ring, MOST_RANKS + 1)[0].id == "drawing-too-large"
    assert refusals(DrawingError, steps_of, one_by_one, 16)[0].id == "drawing-too-large"
    assert refusals(DrawingError, steps_of, ring, 8, StepRange("pull", 9))[0].id == "no-such-step"
    assert steps_of(one_by_one, 8).moves == 8 * 8 * 7
    assert steps_of(one_by_one, 1).steps == ()


def test_loads_colour_the_arrows() -> None:
    """Arrows within a machine of four are colder than those between machines, in colours of the legend."""
    plan, topology = plan_of(scheme_text(*COMBINATIONS[-1])), nodes(2, gpus=2)
    steps = steps_of(plan, 4, None, topology, expected_bytes(plan, 4, GradientSpec(10_000, 8, "f32", 0.1)))
    picture = draw(plan, steps)
    ElementTree.fromstring(picture.svg())
    for step, band in zip(steps.steps, marks_of(picture, "g", "band"), strict=True):
        arrows = marks_of(band, "g", "move")
        ends = [tuple(numbers(arrow, "data-src", "data-dst")) for arrow in arrows]
        colours = dict(zip(ends, map(stroke, arrows), strict=True))
        for move in step.moves:
            assert move.heat is not None and 0 < move.heat.seconds <= steps.limit
            place = ramp().index(colours[move.src, move.dst])
            inside = move.src // 2 == move.dst // 2
            assert place < 4 if inside else place >= 3
            assert ("nic" in move.heat.link) == (not inside)
    legend = [swatch.attributes["fill"] for swatch in picture.marks if swatch.tag == "rect"]
    assert legend[-len(ramp()) :] == list(ramp())
    assert max(move.heat.seconds for step in steps.steps for move in step.moves if move.heat) == steps.limit


def test_index_sets_are_announced_in_a_phase_of_their_own() -> None:
    plan = plan_of_shipped("holders")
    steps, picture, root = drawn(plan, 4)
    assert incomplete(steps, root) == []
    assert [(step.phase, len(step.moves)) for step in steps.steps[:2]] == [("announce", 12), ("push", 12)]
    assert dict(steps.rounds) == {"announce": 1, "push": 1, "pull": 3}
    first, second = steps.steps[:2]
    assert first.before.shape == first.after.shape == (4, 1, 4) and first.after.all()
    assert first.before.sum() == 4, "at first each rank has its own"
    assert second.before.shape == (4, 4, 4) and second.before.sum() == 16
    announced, pushed = marks_of(picture, "g", "band")[:2]
    arrows = marks_of(announced, "g", "move")
    assert {(arrow.attributes["data-src"], stroke(arrow)) for arrow in arrows} == set(enumerate(palette(4)))
    assert not marks_of(announced, "text", "label") and len(marks_of(pushed, "text", "label")) == 12
    assert "rank 0 sends index sets to rank 1" in arrows[0].title
    row = marks_of(picture, "g", "row")[1]
    assert marks_of(row, "rect", "node")[2].title == "rank 2 after announce step 1: index sets of 4 of 4 ranks"
    assert "In the announce" in " ".join(words(picture))


def test_the_picture_in_the_manual_is_what_zenc_draws(assert_golden: Callable[[str, str], None]) -> None:
    """Places in the text may differ, since they move when the patterns are edited."""
    text = re.sub(r"\n[^<\n]*patterns\.zen[^<\n]*</title>", "</title>", draw_file("balanced", 4).svg())
    assert_golden("../../docs/images/balanced.svg", text)
