"""The offline search for the best scheme: the scheme that it finds and writes is the one it predicted."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from zenc.errors import CostError, Diagnostic, VerificationError
from zenc.gradients.profile_generators import uniform, zipf
from zenc.language.files import load_text
from zenc.language.formatter import format_text
from zenc.plan.ir import Plan
from zenc.plan.lower import lower
from zenc.scheme.library import shipped
from zenc.scheme.resolve import resolve
from zenc.select import search
from zenc.select.candidates import combined, of_shipped, refined, tiered
from zenc.select.search import NAME, TunedScheme, tune
from zenc.simulator.calibration import DEFAULTS
from zenc.simulator.predict import predict
from zenc.topology.shapes import nodes
from zenc.verify.proof import verify


@pytest.fixture(scope="module", autouse=True)
def short() -> Iterator[None]:
    """Try formats of the best scheme alone, in a third of the time; commands of the manual try all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "REFINED", 1)
        yield


@pytest.fixture(scope="module")
def sparse(short: None) -> TunedScheme:
    return tune([uniform(0.002, 50_000, 64)], 4, None, replace(DEFAULTS, bandwidth=1.25e8))


def test_what_is_written_is_what_was_predicted(sparse: TunedScheme) -> None:
    text = sparse.text("zenc tune ...")
    assert format_text(text, "best.zen") == text
    scheme, warnings = resolve(load_text(text, "best.zen"))
    assert scheme.name == NAME and warnings == ()
    plan = lower(scheme, 4)
    verify(plan, 4)
    again = predict(plan, 4, sparse.profiles[0], None, replace(DEFAULTS, bandwidth=1.25e8))
    assert again.seconds == pytest.approx(sparse.best[0].seconds)
    assert text.startswith("# Found by zenc tune ...:\n# the least predicted seconds of ")


def test_no_shipped_scheme_is_better(sparse: TunedScheme) -> None:
    for draft in of_shipped(4, {}):
        plan = lower(resolve(load_text(draft.text(NAME)), NAME)[0], 4)
        try:
            verify(plan, 4)
        except Exception:
            continue
        taken = predict(plan, 4, sparse.profiles[0], None, replace(DEFAULTS, bandwidth=1.25e8)).seconds
        assert taken >= sparse.best[0].seconds * (1 - 1e-9), draft.label
    seconds = [found.seconds for found in sparse.best]
    assert seconds == sorted(seconds)


def test_what_loses_something_is_tried_where_it_is_named(sparse: TunedScheme, tmp_path: Path) -> None:
    assert not any(found.loses for found in sparse.best)
    own = tmp_path / "own.zen"
    dimensions = "communication: point_to_point aggregation: incremental partition: parallelism balance: imbalanced"
    own.write_text(
        "compress mine { select: top(0.001) feedback: residual }\n"
        f"scheme own {{ {dimensions} compress: mine push: coo pull: auto }}\n"
    )
    found = tune([uniform(1.0, 50_000, 1)], 4, None, replace(DEFAULTS, bandwidth=1e7), named=["one_bit", own])
    assert [best.draft.label for best in found.best[:2]] == ["own", "one_bit"] and not found.best[2].loses
    assert "It loses something: a rank contributes top(0.001) of its gradient" in found.text().replace("\n# ", " ")
    assert found.rows()[0]["scheme"] == "own, which loses something"
    assert "one_bit: seconds of residual, encode sign, decode sign are estimated" in found.note
    assert resolve(load_text(found.text(), "best.zen"))[0].name == NAME


def test_drafts_of_shipped_schemes_are_those_schemes() -> None:
    drafts = {draft.label: draft for draft in of_shipped(8, {"node": 4})}
    for entry in shipped():
        if not entry["candidates"] and not entry["compression"]:
            program = load_text(drafts[entry["name"]].text(NAME))
            found, _ = resolve(program, NAME)
            own, _ = resolve(load_text(f'import "{entry["name"]}.zen"'), entry["name"])
            assert lower(replace(found, name=own.name), None).digest == lower(own, None).digest
    assert "torus2d(columns = 4)" in drafts and "zen_cluster(gpus = 4)" in drafts


def test_all_combinations_and_formats_mean_something() -> None:
    drafts = list(combined())
    assert len(drafts) == 18 + 3
    assert len({lower(resolve(load_text(draft.text(NAME)), NAME)[0]).digest for draft in drafts}) == 21
    assert len(list(refined(drafts[1], elements=False))) == 48
    assert list(refined(drafts[-1], elements=False)) == [], "values travel alone"
    assert list(refined(next(tiered(8, {"node": 4})), elements=False)) == []


def test_dense_is_found_where_all_is_dense() -> None:
    slow = replace(DEFAULTS, bandwidth=1.25e8)
    found = tune([uniform(1.0, 20_000, 16)], 2, None, slow)
    ring = lower(resolve(load_text("scheme a { tier cluster: dense_ring }"))[0], 2)
    assert found.best[0].seconds <= predict(ring, 2, found.profiles[0], None, slow).seconds


def test_tiers_are_found_on_a_cluster_of_machines_and_several_gradients_take_one_scheme() -> None:
    topology = nodes(2, gpus=4)
    profiles = [zipf(0.01, 1.05, 50_000, 64, name="a"), uniform(0.5, 1_000, 16, name="b")]
    found = tune(profiles, 8, topology, DEFAULTS)
    first, text = found.best[0], found.text("zenc tune")
    assert first.draft.tiers and "tier node(4):" in text
    assert json.loads(json.dumps(found.to_json()))["network"] == topology.name
    assert found.rows()[0]["ratio"] == "1.000"
    assert first.seconds == pytest.approx(sum(prediction.seconds for prediction in first.predictions))
    assert len(first.predictions) == 2 and "Gradient a: 50,000 units" in text and "Gradient b: 1,000" in text


def test_what_has_no_proof_is_passed_over_and_counted(sparse: TunedScheme, monkeypatch: pytest.MonkeyPatch) -> None:
    first = sparse.best[0]

    def without_first(plan: Plan, size: int) -> None:
        if plan.digest == first.plan.digest:
            raise VerificationError(Diagnostic("never-arrives", "part 0 never arrives"))

    monkeypatch.setattr(search, "verify", without_first)
    found = tune(list(sparse.profiles), 4, None, replace(DEFAULTS, bandwidth=1.25e8))
    assert (found.refused, found.tried) == (sparse.refused + 1, sparse.tried)
    assert first.plan.digest not in {each.plan.digest for each in found.best}
    assert found.best[0].seconds >= first.seconds


def test_a_topology_of_other_ranks_is_refused() -> None:
    with pytest.raises(CostError, match=r"error\[wrong-topology-size\]"):
        tune([uniform(0.001, 1000, 16)], 5, nodes(2, gpus=2), DEFAULTS)
