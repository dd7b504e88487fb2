"""Closed formulas match the papers, hold beyond the sizes they were fitted to, and are left out where they don't."""

from collections import defaultdict
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cases import COMBINATIONS, CUTS, scheme_text
from tests.support.fuzz import tried
from tests.support.plans import DIRECT_PULL, DIRECT_PUSH, explain, plan_of, plan_with
from zenc.analysis.closed_form import DENSE, Domain, fit_scalar, fit_volume, volume_text
from zenc.analysis.scaling import ScalingReport, symbolic, symbolic_text
from zenc.analysis.volume import volumes
from zenc.gradients.spec import GradientSpec
from zenc.language.files import load_file, locate
from zenc.plan.ir import VALUE_KINDS, PhaseKind, Plan
from zenc.plan.lower import lower
from zenc.plan.unroll import expand
from zenc.rank_ir.lower import lower_all
from zenc.scheme.resolve import resolve

HALVES = "d + d_2/2 + d_4/4 + ... + d_(n/2)/(n/2)"


def shipped(name: str) -> Plan:
    return lower(resolve(load_file(locate(name)))[0])


def sent(found: ScalingReport) -> dict[str, str]:
    return {name: str(phase.sent) for name, phase in found.phases.items()}


@pytest.mark.parametrize(
    ("name", "domain", "push", "pull"),
    [
        ("balanced", "every n", "(n - 1)/n d M", "(n - 1)/n d_n M"),
        ("agsparse", "every n", "(n - 1) d M", "0"),
        ("holders", "every n", "d M - 1/n d_n M", "(n - 1)/n d_n M"),
        ("dense_ring", "every n", "(n - 1)/n M", "(n - 1)/n M"),
        ("hierarchical_centralization", "n a power of two", "(d + d_2 + d_4 + ... + d_(n/2)) M", "0"),
    ],
)
def test_the_formulas_of_the_papers(name: str, domain: str, push: str, pull: str) -> None:
    found = symbolic(shipped(name), 8, 0.01)
    assert (str(found.domain), sent(found)) == (domain, {"push": push, "pull": pull})
    assert all(str(phase.sent) == str(phase.received) for phase in found.phases.values())


@pytest.mark.parametrize(
    ("combination", "push"),
    [
        (COMBINATIONS[1], "1/n (d + d_2 + d_3 + ... + d_(n-1)) M"),  # ring, incremental, parallelism
        (COMBINATIONS[4], "(n - 1)/2 d M"),  # ring, one_shot: the segments grow on the way
        (COMBINATIONS[0], "d_(n-1) M"),  # a chain: the last but one sends most
        (COMBINATIONS[7], f"1/2 ({HALVES}) M"),  # recursive halving
        (COMBINATIONS[10], "1/2 log2(n) d M"),
    ],
)
def test_patterns(combination: tuple[str, str, str], push: str) -> None:
    found = symbolic(plan_of(scheme_text(*combination)), 8, 0.01)
    assert sent(found)["push"] == push


@given(combination=st.sampled_from(COMBINATIONS), size=st.integers(1, 9), density=st.sampled_from((0.0, 0.01, 1.0)))
@settings(max_examples=tried(60), deadline=None)
def test_volumes_are_what_the_programs_send(combination: tuple[str, str, str], size: int, density: float) -> None:
    plan = plan_of(scheme_text(*combination))
    counted = volumes(plan, size, density)
    for direction in ("sends", "receives"):
        by_rank = brute_force(plan, size, direction)
        for phase, count in counted.items():
            found = count.sent if direction == "sends" else count.received
            assert dict(found) in [rank[phase] for rank in by_rank]
            weight = max(weighed(rank[phase], density) for rank in by_rank)
            assert weighed(found, density) == pytest.approx(weight)


def weighed(volume: dict[int, Fraction], density: float) -> float:
    return sum(float(share) * (1 - (1 - density) ** k if k != DENSE else 1) for k, share in volume.items())


def brute_force(plan: Plan, size: int, direction: str) -> list[dict[str, dict[int, Fraction]]]:
    """Return k -> share, for every rank and phase."""
    rounds = expand(plan, size)
    one_shot = plan.of(PhaseKind.PUSH)[0].keeps_apart
    held = [[{rank} for _ in range(rounds.parts)] for rank in range(size)]
    found = [{"push": defaultdict(Fraction), "pull": defaultdict(Fraction)} for _ in range(size)]
    for kind, phases in ((kind.value, rounds.of(kind)) for kind in VALUE_KINDS):
        for round_ in (round_ for phase in phases for round_ in phase):
            before = [[set(part) for part in rank] for rank in held]
            columns = zip(round_.src, round_.dst, round_.first, round_.last, round_.origin, strict=True)
            for src, dst, first, last, origin in columns:
                for part in range(first, last + 1):
                    carried = before[src][part] if origin < 0 else {int(origin)}
                    held[dst][part] |= carried
                    k, times = (1, len(carried)) if one_shot and kind == "push" else (len(carried), 1)
                    rank = src if direction == "sends" else dst
                    found[rank][kind][k] += Fraction(times, rounds.parts)
    return [{phase: dict(volume) for phase, volume in rank.items()} for rank in found]


def test_messages_are_those_of_the_busiest_program() -> None:
    plan = plan_of(scheme_text("hierarchy", "incremental", COMBINATIONS[1][2]))
    programs = lower_all(plan, 6)
    counted = volumes(plan, 6, 0.1)
    for number, kind in enumerate(("push", "pull")):
        sends = [sum(len(each.sends) for each in p.phases[number].exchanges) for p in programs]
        receives = [sum(len(each.receives) for each in p.phases[number].exchanges) for p in programs]
        assert (counted[kind].messages_sent, counted[kind].messages_received) == (max(sends), max(receives))


@pytest.mark.parametrize("combination", COMBINATIONS[::2], ids=lambda c: "-".join(str(x).split()[-1] for x in c))
def test_formulas_hold_beyond_the_sizes_they_were_fitted_to(combination: tuple[str, str, str]) -> None:
    plan = plan_of(scheme_text(*combination))
    found = symbolic(plan, 4, 0.01)
    for size in (128,) if found.domain.powers else (19, 32, 41):
        assert size not in found.checked
        for name, count in volumes(plan, size, 0.01).items():
            phase = found.phases[name]
            assert phase.steps.at(size) == count.steps
            assert phase.messages_sent.at(size) == count.messages_sent
            assert phase.sent.at(size) == count.sent
            assert phase.received.at(size) == count.received


def test_dense_travels_whole_in_its_own_phase_alone() -> None:
    found = symbolic(plan_of(scheme_text(*COMBINATIONS[-1], "dense", "coo")), 4, 0.01)
    assert sent(found) == {"push": "(n - 1)/n M", "pull": "(n - 1)/n d_n M"}
    found = symbolic(plan_of(scheme_text(*COMBINATIONS[-1], "coo", "dense")), 4, 0.01)
    assert sent(found) == {"push": "(n - 1)/n d M", "pull": "(n - 1)/n M"}


LOAD = GradientSpec(60_000, 64, "f32", 0.01)
BLOCKS = [
    ("block(64)", "block(64)", "(n - 1)/n b M", "(n - 1)/n b_n M", (64, 64)),
    ("block(16)", "coo", "(n - 1)/n b M", "(n - 1)/n b_n M", (16, 16)),
    ("coo", "block(16)", "(n - 1)/n d M", "(n - 1)/n b_n M", (1, 16)),
    ("block(64)", "block(4)", "(n - 1)/n b M", "(n - 1)/n b_n M", (64, 64)),
    ("dense", "block(4)", "(n - 1)/n M", "(n - 1)/n b_n M", (1, 4)),
    ("block(4)", "dense", "(n - 1)/n b M", "(n - 1)/n M", (4, 4)),
]


@pytest.mark.parametrize(("push", "pull", "pushed", "pulled", "blocks"), BLOCKS)
def test_blocks_have_densities_of_their_own(
    push: str, pull: str, pushed: str, pulled: str, blocks: tuple[int, int]
) -> None:
    """Blocks that travel whole are counted by b_k, in predictions and in drawn gradients."""
    plan = plan_of(scheme_text("point_to_point", "incremental", CUTS[1], push, pull))
    found = symbolic(plan, 4, 0.01)
    assert [found.to_json()["formulas"][name]["sent"] for name in ("push", "pull")] == [pushed, pulled]
    assert tuple(found.blocks.values()) == blocks
    legend = symbolic_text(found)[-1]
    assert legend.startswith("  b, b_k: ") and f"of {max(blocks)} units in " in legend
    drawn = explain(plan, 4, 0, LOAD)
    whole = LOAD.units * LOAD.width * 4
    for name, block in found.blocks.items():
        volume = found.at[name].sent
        values = sum(float(s) * (1 - 0.99 ** (k * block) if k else 1.0) for k, s in volume.items()) * whole
        assert drawn.traffic[name].sent == pytest.approx(values, rel=0.05), name


TIERS = [
    (
        "tier machine(4): dense_ring tier cluster: balanced",
        "n a multiple of 4",
        ["3/4 M", "(n - 4)/(4 n) d_4 M", "(n - 4)/(4 n) d_n M", "3/4 M"],
    ),
    (
        "tier machine(6): balanced tier cluster: hierarchical_centralization",
        "n = 6 times a power of two",
        ["5/6 d M", "1/6 (d_6 + d_12 + d_24 + ... + d_(n/2)) M", "0", "5/6 d_n M"],
    ),
    (
        "tier a(2): balanced tier b(3): balanced tier c: balanced",
        "n a multiple of 6",
        ["1/2 d M", "1/3 d_2 M", "(n - 6)/(6 n) d_6 M", "(n - 6)/(6 n) d_n M", "1/3 d_n M", "1/2 d_n M"],
    ),
]


@pytest.mark.parametrize(("tiers", "domain", "volumes_sent"), TIERS)
def test_tiers(tiers: str, domain: str, volumes_sent: list[str]) -> None:
    """Dense inside and sparse across is section 4 of Zen: (m - 1)/m (d_g + d_n) M/g across m machines of g ranks."""
    found = symbolic(plan_of(f"scheme tiered {{ {tiers} }}"), 12, 0.01)
    assert str(found.domain) == domain
    assert list(sent(found).values()) == volumes_sent
    assert all(phase.found() == 5 for phase in found.phases.values())


IN_STEPS = "for d in 1 .. size - 1 { step { send part (rank + d) mod size to (rank + d) mod size } }"
IRREGULAR = f"if size == 4 or size == 9 {{ {IN_STEPS} }} else {{ {DIRECT_PUSH} }}"


def test_what_follows_no_formula_is_counted() -> None:
    found = symbolic(plan_with(IRREGULAR, DIRECT_PULL), 9, 0.01)
    assert found.phases["push"].steps is None
    assert str(found.phases["push"].sent) == "(n - 1)/n d M"
    push = symbolic_text(found)[1]
    assert "8 steps (counted among 9 ranks)" in push and "n - 1 messages" in push


def test_a_scheme_for_few_sizes_has_no_formula() -> None:
    fixed = f'require size == 3 or size == 4 "a few only" {DIRECT_PUSH}'
    found = symbolic(plan_with(fixed, DIRECT_PULL), 3, 0.01)
    assert not found.phases and not found.checked
    heading, push, pull, legend = symbolic_text(found)
    assert "no formula" in heading and "counted among 3 ranks" in heading
    assert "1 step, 2 messages, volume 2/3 d M" in push and "2/3 d_3 M" in pull and "dense tensor" in legend


def test_sizes_that_a_scheme_is_not_for_are_left_out() -> None:
    found = symbolic(shipped("kylix"), 8, 0.01)
    assert found.checked[:3] == (2, 4, 6) and 9 not in found.checked
    assert symbolic_text(found)[0].startswith("for every n that the scheme is for, of the busiest rank")


def test_a_size_outside_the_domain_is_counted_too() -> None:
    found = symbolic(shipped("hierarchical_centralization"), 6, 0.01)
    lines = symbolic_text(found)
    assert "n a power of two" in lines[0] and "log2(n) steps" in lines[1]
    counted = next(i for i, line in enumerate(lines) if line.startswith("counted among 6 ranks"))
    assert "3 steps" in lines[counted + 1] and "d_2 M + d_4 M sent" in lines[counted + 1]
    assert not any(
        line.startswith("counted") for line in symbolic_text(symbolic(shipped("hierarchical_centralization"), 8, 0.01))
    )


def test_two_counts_at_least_are_left_to_check_by() -> None:
    assert fit_scalar({2: 1, 3: 5}, Domain()) is None
    assert str(fit_scalar({2: 1, 3: 1, 4: 1}, Domain())) == "1"
    assert fit_scalar({2: 1, 3: 2, 4: 3}, Domain()) is None
    assert str(fit_scalar({2: 1, 3: 2, 4: 3, 5: 4}, Domain())) == "n - 1"
    assert fit_volume({2: {1: Fraction(1)}, 3: {1: Fraction(2)}}, Domain()) is None


def test_notation() -> None:
    assert str(fit_scalar({n: 2 * n * n + 3 for n in range(2, 9)}, Domain())) == "2 n^2 + 3"
    assert str(fit_scalar({n: Fraction(n - 1, 2 * n) for n in range(2, 9)}, Domain())) == "(n - 1)/(2 n)"
    assert str(fit_scalar({n: 2 * n.bit_length() - 3 for n in range(2, 20)}, Domain())) == "2 floor(log2(n)) - 1"
    assert str(fit_scalar({n: (n - 1).bit_length() for n in range(2, 20)}, Domain())) == "ceil(log2(n))"
    powers = Domain((6,), powers=True)
    assert str(fit_scalar({6 * 2**i: i for i in range(5)}, powers)) == "log2(n/6)"
    assert volume_text({0: Fraction(1, 2), 1: Fraction(1), 3: Fraction(2, 3)}) == "1/2 M + d M + 2/3 d_3 M"
