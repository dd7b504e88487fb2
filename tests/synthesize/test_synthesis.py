"""Synthesized schemes: proved, near their bounds, exact sums of sparse gradients, and texts that can be read."""

import json
from itertools import product
from pathlib import Path
from time import process_time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import zenc
from tests.support.both_targets import differences
from tests.support.cases import same_bits, same_units, sparse_tensor, wrong_sums
from tests.support.fuzz import tried
from tests.support.local import collectives, run_all
from zenc.codegen.artifact import load_artifact
from zenc.gradients.profile_generators import uniform
from zenc.language.files import load_file, load_text
from zenc.language.formatter import format_text
from zenc.plan.from_json import plan_from_json
from zenc.plan.lower import lower
from zenc.scheme.resolve import resolve
from zenc.select.candidates import synthesized
from zenc.simulator.calibration import bandwidth_only
from zenc.simulator.predict import predict
from zenc.synthesize.arborescence import cheapest, depths, shallow
from zenc.synthesize.even import pack
from zenc.synthesize.loads import BranchRoutes, WeightedTree, evenly, fair_time
from zenc.synthesize.packing import in_whole_parts
from zenc.synthesize.rotation import Rotation
from zenc.synthesize.simplex import _heaviest, heaviest
from zenc.synthesize.sparse import GAIN, forms, plan_of
from zenc.synthesize.synthesis import synthesize
from zenc.synthesize.write import Form
from zenc.topology.bound import bound_of, comes_back
from zenc.topology.load import load_topology
from zenc.verify.proof import verify

SAMPLES = Path(__file__).parents[1] / "topology" / "samples"
NEAR = ("dgx(2)", "nodes(3, gpus = 4)", "torus(3, 4)", "fat_tree(4)", "ring(6)", "two_boxes")
UNEQUAL = """topology unequal {
    levels: gpu(5)
    switch box
    for g in 0 .. 2 { link gpu(g) - box: 60 GB/s }
    link gpu(0) - gpu(3): 20 GB/s
    link gpu(3) -> gpu(4): 20 GB/s
    link gpu(4) -> gpu(1): 30 GB/s
}"""


HOSTS = """topology hosts {
    levels: rack(2), host(2)
    for r in 0 .. 1 { switch top(r) for h in 0 .. 1 { link host(r, h) - top(r): 400 Mbit/s } }
    link top(0) - top(1): 100 Mbit/s
}"""
ONE_SWITCH = "topology hosts { levels: host(4) switch box for h in 0 .. 3 { link host(h) - box: 100 Mbit/s } }"


@pytest.fixture(autouse=True)
def no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees do not depend on the speed of the machine."""
    monkeypatch.setattr("zenc.synthesize.packing.SECONDS", 600.0)


@pytest.mark.parametrize(
    "cluster",
    [*NEAR, *(str(SAMPLES / name) for name in ("square.graphml", "v100_cube_mesh.txt")), UNEQUAL],
    ids=lambda name: Path(name[:40]).stem,
)
def test_schemes_come_near_the_bound(cluster: str) -> None:
    found = synthesize(load_topology(cluster))
    assert 0.95 <= found.share <= 1
    assert found.share <= found.packing.share * 1.0001
    text = found.text()
    assert format_text(text, "again") == text


@pytest.mark.parametrize("shape", ["3, gpus = 7, nics = 6", "4, nics = 6", "3, gpus = 5, nics = 3"])
def test_cards_that_do_not_divide_ranks_are_busy_as_well(shape: str) -> None:
    """Sums go back by other cards than results came by, and fair messages of a step end together."""
    topology = load_topology(f"nodes({shape})")
    assert not comes_back(topology) and comes_back(load_topology("nodes(2, gpus = 4)"))
    found = synthesize(topology)
    assert 0.95 <= found.share <= 1 and found.packing.even > 0.97


def test_ranks_of_many_kinds_have_trees_made_one_by_one() -> None:
    rows = "for a in 1 .. 23 { for b in 0 .. a - 1 { link g(a) - g(b): (5 + (7 * a * a + 13 * b) mod 56) * 1 GB/s } }"
    topology = load_topology(f"topology clique {{ levels: g(24) {rows} }}")
    assert pack(topology, bound_of(topology)).share > 0.95


@pytest.mark.parametrize("cluster", ["nodes(2, gpus = 3, nics = 2)", str(SAMPLES / "v100_cube_mesh.txt"), UNEQUAL])
def test_few_chunks_of_near_events_tell_the_time_of_all(cluster: str) -> None:
    topology = load_topology(cluster)
    found, dense = synthesize(topology), uniform(1.0, 250_000_000, 64)
    exact = predict(found.plan, topology.size, dense, topology, bandwidth_only("links"), apart=True, flows=False)
    assert found.seconds == pytest.approx(exact.seconds, rel=1e-3)


def test_a_step_takes_as_long_as_its_last_message() -> None:
    """A message of 1 part and one of 3 share a link for 2 seconds, and the rest of the second takes 2 more."""
    flows, links, width = np.array([0, 1, 1]), np.array([0, 0, 1]), np.ones(2)
    assert fair_time(np.array([1.0, 3.0]), flows, links, width) == pytest.approx(4.0)
    uneven = WeightedTree(0, np.array([-1, 0, 0]), 1), WeightedTree(0, np.array([-1, 0, 1]), 1)
    routes = BranchRoutes(load_topology("nodes(1, gpus = 3)"), bound_of(load_topology("nodes(1, gpus = 3)")))
    loads = routes.rotated(Rotation((3,), (True,)))
    packing = evenly(in_whole_parts(loads, uneven, 2), routes)
    assert packing.even == pytest.approx(1.0) and packing.share == pytest.approx(1.0)


@pytest.mark.parametrize("level", ["node", "my node", "step", "min", "rank", "chunks"])
def test_names_of_a_cluster_can_be_any(level: str, tmp_path: Path) -> None:
    """No name breaks out of the text, nor is one of the language taken for a variable."""
    file = tmp_path / 'we"ird } #.json'
    pairs = [(a, b) for a in range(4) for b in range(a) if a // 2 == b // 2 or a % 2 == b % 2]
    data = {
        "graph": {"levels": [[level, 2], ["gpu", 2]]},
        "nodes": [{"id": rank, "rank": rank} for rank in range(4)],
        "links": [{"source": a, "target": b, "bandwidth": "10 GB/s"} for a, b in pairs],
    }
    file.write_text(json.dumps(data), encoding="utf-8")
    text = synthesize(load_topology(file), 1e6).text()
    scheme, _ = resolve(load_text(text, "mine.zen"), "for_we_ird")
    assert scheme.doc == "Trees that load the links of we'ird } # evenly."
    assert verify(lower(scheme, 4), 4)[1].size == 4
    assert ("let node = rank / 2" in text) == (level == "node")


@pytest.mark.parametrize("box", ["dgx_a100.txt", "hgx_h100.xml", "virtual.xml"])
def test_links_beside_wider_ones_are_told_and_do_not_count(box: str) -> None:
    """Between GPUs with NVLink nothing goes by PCIe; the least cut, that of a GPU, has NVLinks alone."""
    found = synthesize(load_topology(SAMPLES / box))
    links, rate = found.idle
    assert found.share > 0.99 and rate > found.all_reduce * 1.05
    assert f"{links} links (each way) that no message takes" in dict(found.rows())["idle"]
    assert found.to_json()["bound_with_idle_links"] == rate


@pytest.mark.parametrize("size", range(2, 10))
def test_sparse_sums_are_exact(size: int) -> None:
    cluster = f"ring({size})" if size % 2 else f"nodes({size // 2}, gpus = 2)"
    text = synthesize(load_topology(cluster), chunks=2).text()
    ranks = collectives(zenc.compile_text(text, ranks=size), size)
    for kind in ("random", "empty_on_one", "one_unit"):
        inputs = [sparse_tensor(kind, rank, size, 90, 3, torch.float32, size) for rank in range(size)]
        results = run_all(ranks, [tensor.clone() for tensor in inputs])
        assert wrong_sums(results, inputs) == []
        assert same_bits(results) and same_units(results, inputs)


def test_a_search_tries_trees_in_few_chunks_and_in_many() -> None:
    drafts = list(synthesized(load_topology("ring(4)"), lambda _: None))
    assert [dict(draft.parameters)["chunks"] for draft in drafts[:2]] == [1, 8]
    hosts = [draft.label for draft in synthesized(load_topology(HOSTS), lambda _: None)]
    assert hosts[-4:] == [f"trees by holders(chunks = {chunks})" for chunks in (1, 4, 8, 16)]
    scheme, _ = resolve(load_text(drafts[0].text("tuned"), "tuned.zen"), "tuned")
    assert verify(lower(scheme, 4), 4)[1].size == 4
    assert list(synthesized(None, lambda _: None)) == []


def test_auto_has_trees_where_a_topology_is_given(tmp_path: Path) -> None:
    """Candidates without a way are left out: on a ring, neighbours alone have one."""
    usual = ["balanced", "holders", "hierarchical_centralization", "dense_ring"]
    trees = ["trees", "trees_by_holders"]
    for cluster, names in (
        ("nodes(2, gpus = 2)", [*usual, "trees"]),
        ("ring(4)", ["dense_ring", "trees"]),
        (HOSTS, [*usual, *trees]),
    ):
        report = zenc.check("auto", topology=load_topology(cluster))
        assert list(report.candidates) == names
    assert list(zenc.check("auto", topology=load_topology("dgx(1)")).candidates) == usual  # one switch
    zenc.compile("auto", topology=load_topology("ring(4)")).save(tmp_path / "auto")
    ranks = collectives(load_artifact(tmp_path / "auto"), 4)
    for call in range(3):
        inputs = [sparse_tensor("random", rank, 4, 90, 3, torch.float32, call) for rank in range(4)]
        results = run_all(ranks, [tensor.clone() for tensor in inputs])
        assert wrong_sums(results, inputs) == [] and same_bits(results)


@pytest.mark.parametrize(
    ("cluster", "density", "form"),
    [(HOSTS, 0.02, Form(4, True)), (HOSTS, 0.9, Form(4, True)), (ONE_SWITCH, 0.02, Form(0, True))],
)
def test_of_sparse_gradients_the_quickest_form_is_taken(cluster: str, density: float, form: Form) -> None:
    topology, profile = load_topology(cluster), uniform(density, 200_000, 64)
    found = synthesize(topology, gradient=profile)
    assert found.form == form and str(form) == dict(found.rows())["scheme"]
    every = [plan_of(topology, found.packing, found.up, each) for each in forms(topology, found.packing)]
    assert found.seconds <= GAIN * min(predict(plan, 4, profile, topology).seconds for plan in every)
    assert format_text(found.text(), "again") == found.text()
    again, _ = resolve(load_text(found.text(), "hosts.zen"), "for_hosts")
    assert lower(again, 4).digest == found.plan.digest


def test_gpus_get_no_owners_in_chunks() -> None:
    found = synthesize(load_topology("nodes(2, gpus = 2)"), gradient=uniform(0.02, 200_000, 64))
    kinds = set(forms(found.topology, found.packing))
    assert {form.chunks for form in kinds if form.by_holders} <= {0, 1} and found.form in kinds


def test_both_targets_have_the_same_bits() -> None:
    text = synthesize(load_topology(UNEQUAL), chunks=2).text()
    assert differences(zenc.compile_text(text, ranks=5), 5, ("random", "empty_on_one")) == []


def test_trees_of_64_ranks_are_read_as_they_are_written() -> None:
    rng, branches = np.random.default_rng(0), []
    for root in range(64):
        order = [root, *rng.permutation([rank for rank in range(64) if rank != root]).tolist()]
        lines = [f"branch {order[(i - 1) // 2]} -> {order[i]}, {order[i + 1]}" for i in range(1, 62, 2)]
        branches.append(f"tree part {root} {{ {' '.join(lines)} branch {order[31]} -> {order[63]} }}")
    text = f"schedule written {{ trees(1) {{ {' '.join(branches)} }} }}"
    file = load_text(f"scheme s {{ communication: written }} {text}")
    (trees,) = file.main.schedules[0].push
    assert len(trees.body) == 64


def test_sends_of_64_ranks_are_read_and_proved_as_they_are_written(tmp_path: Path) -> None:
    """A plan of another program has no loops: that is a quarter of a megabyte, and a second."""

    def phase(send: str) -> str:
        sends = (
            "".join(f"\n            {send.format(me=me, to=to)}" for to in range(64) if to != me) for me in range(64)
        )
        return "step {" + "".join(f"\n        if rank == {me} {{{each} }}" for me, each in enumerate(sends)) + "}"

    push, pull = phase("send part {to} to {to}"), phase("send part {me} to {to}")
    text = "scheme s { communication: written aggregation: incremental partition: parallelism balance: imbalanced }"
    text += f"schedule written {{ push {{ {push} }} pull {{ {pull} }} }}"
    file = tmp_path / "s.zen"
    file.write_text(text)
    started = process_time()
    files = load_file(file)
    assert len(text) > 250_000 and process_time() - started < 3
    plan = lower(resolve(files, "s")[0], 64)
    assert verify(plan, 64)[1].moves == 2 * 64 * 63
    assert plan_from_json(json.loads(plan.text())).digest == plan.digest


@settings(max_examples=tried(60), deadline=None)
@given(st.integers(2, 5), st.integers(0, 1000))
def test_the_cheapest_tree_is_that_of_all_trees(nodes: int, seed: int) -> None:
    cost = np.random.default_rng(seed).integers(1, 9, (nodes, nodes)).astype(float)

    def weight(parent: np.ndarray) -> float:
        return float(cost[parent[1:], np.arange(1, nodes)].sum())

    every = [np.array([-1, *rest]) for rest in product(range(nodes), repeat=nodes - 1)]
    trees = [p for p in every if all(_leads_to_root(p, node) for node in range(nodes))]
    parent = cheapest(cost, 0)
    assert weight(parent) == min(map(weight, trees))
    flat = shallow(cost, 0, np.ones(nodes, dtype=np.int64))
    assert depths(flat).max() == 1 and (depths(parent) >= 0).all()


def _leads_to_root(parent: np.ndarray, node: int) -> bool:
    for _ in range(len(parent)):
        if node == 0:
            return True
        node = int(parent[node])
    return False


def test_a_packing_is_as_heavy_as_the_links_allow() -> None:
    """Two roots share one link, and one of them has a second way."""
    loads = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 0.5]])
    rate, weights, prices = heaviest([0, 1, 1], loads, 2)
    assert rate == pytest.approx(1.0, abs=1e-5) and weights[0] == pytest.approx(1.0, abs=1e-5)
    assert (loads @ weights <= 1 + 1e-5).all() and prices.sum() == pytest.approx(rate, abs=1e-5)


def test_of_many_links_those_that_are_full_decide() -> None:
    """A packing that looks at some links first, and at others as they are too full, is that of all at once."""
    rng = np.random.default_rng(0)
    loads, roots = rng.random((1000, 40)) * (rng.random((1000, 40)) < 0.3), [place % 4 for place in range(40)]
    rate, weights, prices = heaviest(roots, loads, 4)
    assert rate == pytest.approx(_heaviest(roots, loads, 4)[0], rel=1e-4)
    assert (loads @ weights).max() <= 1 + 1e-4 and prices.shape == (1000,)
    assert prices.sum() == pytest.approx(rate, rel=1e-4)


@pytest.mark.parametrize(("rank", "bound"), [("host", 3.75e6), ("gpu", 2.8125e6)])
def test_hosts_tell_and_hear_at_once(rank: str, bound: float) -> None:
    """The whole tensor crosses the slow link both ways; on GPUs one half of a call follows the other."""
    links = f"link {rank}(0) - box: 100 Mbit/s link {rank}(1) - box: 100 Mbit/s link {rank}(2) - box: 30 Mbit/s"
    found = synthesize(load_topology(f"topology slow {{ levels: {rank}(3) switch box {links} }}"))
    assert found.all_reduce == pytest.approx(bound) and 0.95 <= found.share <= 1 + 1e-6
    assert ("crosses it both ways" in dict(found.rows())["cut"]) == found.bound.at_once == (rank == "host")
