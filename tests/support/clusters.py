"""Random texts of topologies, which parse but may mean nothing."""

from functools import cache

from hypothesis import strategies as st

from tests.support.schedules import expressions
from zenc.language.formatter import expression_text

NAMES = st.sampled_from(["gpu", "node", "hub", "network", "a"])
UNITS = st.sampled_from(["GB/s", "Gbit/s", "us", "ns", "GB", "B", "parsec", "Gb/s"])
BUILDERS = st.sampled_from(["ring", "torus", "t"])
SIGNS = st.sampled_from(["-", "->"])


@cache
def small() -> st.SearchStrategy[str]:
    """Draw expressions that mostly have a value."""
    return st.sampled_from(["0", "1", "2", "k", "i", "k - 1", "(i + 1) mod 4", "log2(8)", "1 / 0"]) | expressions().map(
        expression_text
    )


@cache
def places() -> st.SearchStrategy[str]:
    indices = st.lists(small(), max_size=2).map(lambda found: f"({', '.join(found)})" if found else "")
    return st.builds(lambda name, found: name + found, NAMES, indices)


@cache
def quantities() -> st.SearchStrategy[str]:
    numbers = st.sampled_from(["300", "2.5", "-1", "0", "1e3"]) | small()
    return st.builds(lambda number, unit: f"{number} {unit}", numbers, UNITS)


@cache
def declarations() -> st.SearchStrategy[str]:
    sentences = st.one_of(
        st.builds(lambda p: f"switch {p}", places()),
        st.builds(lambda a, s, b, q: f"link {a} {s} {b}: {q}", places(), SIGNS, places(), quantities()),
        st.builds(
            lambda a, b, q, r: f"link {a} - {b}: {q}, {r}", places(), places(), quantities(), quantities()
        ),
        st.builds(lambda a, s, b: f"unlink {a} {s} {b}", places(), SIGNS, places()),
        st.builds(lambda p, q: f"memory {p}: {q}", places(), quantities()),
        st.builds(lambda n, e: f"levels: {n}({e}), gpu(2)", NAMES, small()),
        st.builds(lambda n, e, q: f"like {n}({e}, bandwidth = {q})", BUILDERS, small(), quantities()),
        st.builds(lambda n, e: f"let {n} = {e}", NAMES, small()),
        st.builds(lambda e: f'require {e} "a reason"', small()),
        st.just('like "no such file.xml" (nodes = 2)'),
    )  # fmt: skip

    def compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        body = st.lists(inner, max_size=3).map(" ".join)
        loops = st.builds(lambda last, found: f"for i in 0 .. {last} {{ {found} }}", small(), body)
        return loops | st.builds(lambda e, a, b: f"if {e} {{ {a} }} else {{ {b} }}", small(), body, body)

    return st.recursive(sentences, compound, max_leaves=5)


@cache
def topologies() -> st.SearchStrategy[str]:
    """Draw ``topology t(k = 3) { ... }``."""
    bodies = st.lists(declarations(), max_size=6).map("\n".join)
    start = st.sampled_from(["", "levels: node(2), gpu(2)\n", "like ring(4)\n", '"A doc."\n'])
    return st.builds(lambda first, body: f"topology t(k = 3) {{ {first}{body} }}", start, bodies)
