"""Random files: imports, schedules, schemes of four dimensions, of tiers or of a choice, and topologies.

They parse. Some of the schemes mean something.
"""

from functools import cache

from hypothesis import strategies as st

from tests.support.clusters import topologies
from tests.support.schedules import block_text, blocks, expressions, messages
from zenc.language.formatter import expression_text
from zenc.language.schedule import Block

_NAMES = st.sampled_from(["a", "b", "mine", "dense_ring", "balanced", "ring", "unit", "tier", "choose", "from"])
_PATTERNS = ["ring", "hierarchy", "point_to_point", "point_to_point then ring", "mine", "mine(k = 2)"]
_LOSSES = {
    "select": ["top(0.01) by sampled(0.01)", "probable(0.05) then sketch(3, share = 0.02)", "all", "above(-2.5)"],
    "merge": ["top(k)", "all"],
    "reselect": ["top(k)", "all"],
    "feedback": ["residual", "momentum(0.9)", "none"],
    "warmup": ["dense(500)", "falling(2000, 0.25)"],
}
_VALUES = {
    "communication": _PATTERNS,
    "aggregation": ["incremental", "one_shot"],
    "partition": ["centralization", "parallelism"],
    "balance": [
        "imbalanced",
        "balanced by holders",
        "balanced by permutation(k)",
        "balanced by hierarchical_hash(3, r1 = 2.5, r2 = -0.5)",
        "balanced by permutation(seed = 0x5eed)",
    ],
    "announce": _PATTERNS,
    "push": [
        "auto", "coo", "block(8)", "block(7)", "dense", "dense as sign(k)", "coo as fixed(8) by asc", "auto as as",
    ],
    "pull": ["auto", "bitmap", "elias_fano", "dense as f16"],
    "unit": ["auto", "row", "element"],
    "compress": ["dgc(0.01)", "mine(k = 2)", "half", "a"],
    **_LOSSES,
}  # fmt: skip
_REQUIRED = ("communication", "aggregation", "partition", "balance")


def _constants() -> st.SearchStrategy[str]:
    return st.sampled_from(["2", "-2.5", "0x1F", "1e300", "k"]) | expressions().map(expression_text)


def _parameters() -> st.SearchStrategy[str]:
    given = st.lists(st.builds(lambda name, value: f"{name} = {value}", _NAMES, _constants()), max_size=2)
    return st.sampled_from(["", "(k = 3)", "()", "(k)"]) | given.map(lambda found: f"({', '.join(found)})")


def _docs() -> st.SearchStrategy[str]:
    return st.just("") | messages().map(lambda text: f'"{text}"\n')


def _phases() -> st.SearchStrategy[str]:
    """Draw the inside of a schedule, whose moves are rarely right."""

    def written(doc: str, push: Block, pull: Block) -> str:
        return f"{doc}push {{ {block_text(push)} }}\npull {{ {block_text(pull)} }}"

    return st.builds(written, _docs(), blocks(), blocks())


def _entries() -> st.SearchStrategy[str]:
    """Draw the dimensions, complete as a rule, or anything."""
    right = st.fixed_dictionaries(
        {key: st.sampled_from(_VALUES[key]) for key in _REQUIRED},
        optional={key: st.sampled_from(values) for key, values in _VALUES.items() if key not in _REQUIRED},
    ).map(lambda found: "\n".join(f"{key}: {value}" for key, value in found.items()))
    keys = st.sampled_from([*_VALUES, "unit", "mine", "a"])
    word = st.builds(lambda name, value: f"{name}({value})", _NAMES, _constants())
    schedule = _phases().map(lambda inside: f"schedule {{ {inside} }}")
    values = st.sampled_from(_PATTERNS) | word | schedule
    wrong = st.lists(st.builds(lambda key, value: f"{key}: {value}", keys, values), max_size=2).map("\n".join)
    return st.builds(lambda one, other: f"{one}\n{other}", right, st.just("") | wrong)


def _tiers() -> st.SearchStrategy[str]:
    sizes = st.sampled_from(["", "(2)", "(k)"]) | expressions().map(lambda size: f"({expression_text(size)})")
    tier = st.builds(lambda name, size, of: f"tier {name}{size}: {of}", _NAMES, sizes, _NAMES)
    return st.lists(tier, min_size=1, max_size=3).map("\n".join)


def _choices() -> st.SearchStrategy[str]:
    settings = st.sampled_from(["", "(every = 5)", "(k)", "()", "(50, 0.5, patience = 3)"])
    words = st.sampled_from(["balanced", "dense_ring", "a", "mine(k = 2)", "zen(3, seed = k)"])
    several = st.lists(words, min_size=1, max_size=3).map(", ".join)
    return st.builds(lambda how, names: f"choose{how} from [{names}]", settings, several)


def _schemes() -> st.SearchStrategy[str]:
    both = st.builds("{}\n{}".format, _entries(), _choices())
    return _declared("scheme", _entries() | _tiers() | _choices() | both)


def _schedules() -> st.SearchStrategy[str]:
    return st.builds(
        lambda name, given, inside: f"schedule {name}{given} {{ {inside} }}", _NAMES, _parameters(), _phases()
    )


def _compressors() -> st.SearchStrategy[str]:
    values = {**_LOSSES, "code": ["sign", "int(4, 512) then none", "fixed(k) by asc"]}
    inside = st.fixed_dictionaries({}, optional={key: st.sampled_from(known) for key, known in values.items()})
    return _declared("compress", inside.map(lambda found: "\n".join(f"{key}: {value}" for key, value in found.items())))


def _strategies() -> st.SearchStrategy[str]:
    groups = ["fused", "fused(4 MB)", "fused(size = k MiB)", "cuts(12, 40)", "search(2)", "buckets", "tensors"]
    option = st.sampled_from(groups).map(lambda value: f"groups: {value}")
    tensors = st.sampled_from(['tensors "wte.*"', "tensors above 1 MB", "tensors above -2.5 GB/s", "others"])
    word = st.sampled_from(["one_bit", "topk_a2a(0.01)", "tensors", "across(8, k = 2)"])
    devices = st.sampled_from(["", " on gpu", " on tensors"])
    rule = st.builds(lambda which, sums, where: f"{which}: {sums}{where}", tensors, word | _choices(), devices)
    inside = st.lists(option | rule, max_size=4).map("\n".join)
    return _declared("strategy", inside)


def _averagings() -> st.SearchStrategy[str]:
    known = ["rows(2)", "strided(k, stride = 2)", "everyone", "inside node", "across a(4) inside mine(8)"]
    listed = st.lists(st.sampled_from(["[0, 1]", "[2, k + 1]", "[0]"]), min_size=1, max_size=3).map(" ".join)
    division = st.sampled_from(known) | listed.map(lambda groups: f"groups {groups}")
    alternation = st.lists(division, min_size=1, max_size=3).map(lambda found: f"alternate [{', '.join(found)}]")
    sums = st.sampled_from(["dense_ring", "topk_a2a(0.01)", "a"]).map(lambda value: f"sums: {value}")
    inside = st.lists(alternation | sums, max_size=3).map("\n".join)
    return _declared("averaging", inside)


def _declared(keyword: str, inside: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return declarations by ``keyword`` with ``inside`` in their braces."""
    return st.builds(
        lambda name, given, doc, inside: f"{keyword} {name}{given} {{ {doc}{inside} }}",
        _NAMES,
        _parameters(),
        _docs(),
        inside,
    )


@cache
def programs() -> st.SearchStrategy[str]:
    imports = st.sampled_from(["balanced.zen", "patterns.zen", "no such.zen"]).map(lambda path: f'import "{path}"')
    declaration = _schemes() | _schemes() | _schedules() | _compressors() | _strategies() | _averagings()
    declaration |= topologies() | imports
    return st.lists(declaration, min_size=1, max_size=4).map("\n".join)
