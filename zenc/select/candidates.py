"""Candidate schemes of a search, as texts: predictions are of the text as written.

    SchemeDraft = name imports parameters doc body               # body: entries, or tiers

Drafts come from

    shipped   every scheme that comes with zenc and loses nothing, with other values of its parameters
    files     schemes that were named, which may lose something
    combined  the four dimensions, all combinations that mean something
    formats   another wire format for the push, the pull, or both
    units     elements in place of rows
    tiers     one scheme inside of a machine, another one across machines
    trees     synthesized for a topology, in few chunks and in many
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from zenc.errors import Span, ZencError
from zenc.language.files import PRELUDE, load_file, load_text, locate, shipped_names
from zenc.language.formatter import format_text
from zenc.language.syntax import File, SchemeSyntax
from zenc.language.terms import Phrase
from zenc.plan.lower import lower
from zenc.plan.unroll import expand
from zenc.scheme.arguments import Environment, constant
from zenc.scheme.collector import Collector
from zenc.scheme.library import shipped
from zenc.scheme.model import Candidate, Choice, Scheme
from zenc.scheme.resolve import resolve
from zenc.simulator.network import Cluster, star_of
from zenc.synthesize.sparse import CHUNKS
from zenc.synthesize.synthesis import packed
from zenc.synthesize.write import Form, scheme_text
from zenc.topology.model import Topology

COMMUNICATIONS = ("point_to_point", "ring", "hierarchy")
AGGREGATIONS = ("incremental", "one_shot")
FORMATS = ("auto", "dense", "coo", "bitmap", "elias_fano", "block(16)", "block(256)")
INSIDE = ("dense_ring", "dense_halving_doubling", "balanced", "hierarchical_centralization")
ACROSS = ("balanced", "dense_ring", "dense_halving_doubling", "sparcml", "sparcml_split", "agsparse")
BALANCED = "balanced by permutation"
HOLDERS = "balanced by holders"
TREES = "trees", "trees by holders"
MOST_SYNTHESIZED = 64
"""Most ranks for which a search synthesizes trees: it takes seconds."""


@dataclass(frozen=True, slots=True)
class SchemeDraft:
    """A draft of a scheme, called ``label`` in tables; ``entries`` are the scheme's, or empty where it has ``tiers``.

    ``family``: the label of the draft that it is a variant of, if any.
    """

    label: str
    doc: str
    entries: tuple[tuple[str, str], ...]
    tiers: tuple[str, ...] = ()
    parameters: tuple[tuple[str, int | float], ...] = ()
    imports: tuple[str, ...] = ()
    family: str = ""
    schedule: str = ""

    def text(self, name: str, comment: Sequence[str] = ()) -> str:
        """Return the text of the scheme, called ``name``, in canonical layout."""
        given = ", ".join(f"{key} = {value}" for key, value in self.parameters)
        body = [*(f"{key}: {value}" for key, value in self.entries), *self.tiers]
        lines = [
            *(f"# {line}" for line in comment),
            *(f'import "{file}"' for file in self.imports),
            f"scheme {name}{f'({given})' if given else ''} {{",
            f'"{self.doc}"',
            *body,
            "}",
            self.schedule,
        ]
        return format_text("\n".join(lines) + "\n", name)

    def entry(self, key: str) -> str | None:
        """Return the value of ``key``; None where the draft does not say."""
        return dict(self.entries).get(key)

    def with_entries(self, label: str, **changes: str) -> SchemeDraft:
        """Return the draft with other entries, or more of them."""
        entries = tuple({**dict(self.entries), **changes}.items())
        return replace(self, label=label, entries=entries, family=self.family or self.label)


def of_shipped(size: int, levels: Mapping[str, int]) -> Iterator[SchemeDraft]:
    """Yield the shipped schemes whose sums are exact, each with values of its parameters that suit ``size`` ranks."""
    for name in (entry["name"] for entry in shipped() if not entry["candidates"] and not entry["compression"]):
        file = load_file(locate(name)).main
        (scheme,) = (each for each in file.schemes if each.name.text == name)
        base = _draft(file, scheme)
        for values in _values(name, size, levels):
            kept = tuple((key, values.get(key, value)) for key, value in base.parameters)
            label = f"{name}({', '.join(f'{k} = {v}' for k, v in values.items())})" if values else name
            yield replace(base, label=label, parameters=kept)


def of_files(files: Sequence[str | os.PathLike[str]]) -> Iterator[SchemeDraft]:
    """Yield the schemes in ``files``, or shipped ones of these names, with the defaults of their parameters."""
    for name in files:
        path = locate(name)
        file = load_file(path).main
        for scheme in file.schemes:
            draft = _draft(file, scheme)
            compressors = {each.name.text for each in file.compressors}
            phrases = [entry.value for entry in scheme.entries if isinstance(entry.value, Phrase)]
            needed = compressors & {word.name.text for phrase in phrases for word in phrase.words}
            own = (needed or draft.imports) and name not in shipped_names()
            yield replace(draft, imports=(str(path.resolve()),)) if own else draft


def _draft(file: File, scheme: SchemeSyntax) -> SchemeDraft:
    entries = tuple((entry.key.text, _source(entry.value.span)) for entry in scheme.entries)
    report = Collector()
    defaults = [(p.name.text, constant(p.default, Environment(), report)) for p in scheme.parameters if p.default]
    parameters = tuple((name, value) for name, value in defaults if value is not None)
    own = {schedule.name.text for schedule in file.schedules if schedule.name}
    phrases = [entry.value for entry in scheme.entries if isinstance(entry.value, Phrase)]
    names = {word.name.text for phrase in phrases for word in phrase.words}
    imports = (f"{scheme.name.text}.zen",) if names & own and file.source.name != PRELUDE else ()
    tiers = tuple(_source(tier.span) for tier in scheme.tiers)
    return SchemeDraft(scheme.name.text, scheme.doc or "", entries, tiers, parameters, imports)


def _source(span: Span | None) -> str:
    assert span is not None, "it was read from a text"
    return span.source.text[span.start : span.end]


def _values(name: str, size: int, levels: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Yield other values of the parameters of a shipped scheme; an empty dict at first, for its defaults."""
    yield {}
    divisors = [k for k in range(2, size) if size % k == 0]
    if name == "torus2d":
        yield from ({"columns": k} for k in divisors if k != 2)
    elif name == "kylix":
        yield from ({"d2": k, "d3": 1} for k in divisors)
    elif name == "double_binary_tree":
        yield from ({"chunks": k} for k in (1, 2, 8, 16))
    elif name == "zen_cluster":
        yield from ({"gpus": k} for k in dict.fromkeys(levels.values()) if k in divisors and k != 8)


def combined() -> Iterator[SchemeDraft]:
    """Yield the 18 combinations of the four dimensions, and those by holders, with formats chosen by message."""
    cuts = [("centralization", None), ("parallelism", BALANCED), ("parallelism", "imbalanced")]
    for communication, aggregation, (partition, balance) in product(COMMUNICATIONS, AGGREGATIONS, cuts):
        yield _combination(communication, aggregation, partition, balance)
    for communication in COMMUNICATIONS:
        yield _combination(communication, "incremental", "parallelism", HOLDERS)


def _combination(communication: str, aggregation: str, partition: str, balance: str | None) -> SchemeDraft:
    entries = [("communication", communication), ("aggregation", aggregation), ("partition", partition)]
    kind = "centralization" if balance is None else balance.removeprefix("balanced by ")
    label = f"{communication}, {aggregation}, {kind}"
    doc = f"A combination of the four dimensions: {label}."
    return SchemeDraft(label, doc, tuple(entries if balance is None else [*entries, ("balance", balance)]))


def refined(of: SchemeDraft, elements: bool) -> Iterator[SchemeDraft]:
    """Yield ``of`` with every other pair of wire formats, and under ``elements`` with single elements as units.

    Formats are left alone where values travel alone, or tiers have them.
    """
    now = of.entry("push") or "auto", of.entry("pull") or "auto"
    for push, pull in product(FORMATS, FORMATS) if not of.tiers and of.entry("balance") != HOLDERS else ():
        if (push, pull) != now:
            yield of.with_entries(f"{of.label}, {push} / {pull}", push=push, pull=pull)
    if elements:
        yield of.with_entries(f"{of.label}, unit element", unit="element")


def synthesized(topology: Topology | None, progress: Callable[[str], None]) -> Iterator[SchemeDraft]:
    """Yield trees for ``topology``, in 1 to as many chunks as they need, permuted and by holders.

    None for one switch, or many ranks; on GPUs none by holders, who cut what they own on CPUs alone.
    """
    if topology is None or star_of(topology) is not None or not 1 < topology.size <= MOST_SYNTHESIZED:
        return
    _, _, down, up = packed(topology, progress)
    for label, by_holders in zip(TREES, (False,) if topology.has_gpus else (False, True), strict=False):
        file = load_text(scheme_text(topology, down, up, Form(1, by_holders)), "trees.zen").main
        base = _draft(file, file.schemes[0])
        base = replace(base, label=label, imports=(), schedule=_source(file.schedules[0].span))
        for chunks in CHUNKS if by_holders else dict.fromkeys((1, min(8, down.chunks), down.chunks)):
            parameters = tuple({**dict(base.parameters), "chunks": chunks}.items())
            yield replace(base, label=f"{label}(chunks = {chunks})", parameters=parameters)


def with_trees(choice: Choice, topology: Topology) -> Choice:
    """Return ``choice`` with trees for ``topology`` as its last candidates, in few chunks; itself where there are none.

    Candidates with moves that have no way there are left out. See ``synthesized``.
    """
    drafts = list(synthesized(topology, lambda _: None))
    if not drafts:
        return choice
    candidates = [each for each in choice.candidates if _has_ways(each.scheme, topology)]
    sources = {source.name: source for source in choice.sources}
    for label in TREES:
        if few := [draft for draft in drafts if draft.label.startswith(f"{label}(")][:2]:
            name = label.replace(" ", "_")
            files = load_text(few[-1].text(name), f"{name}.zen")
            scheme, _ = resolve(files, name)
            candidates.append(Candidate(name, scheme, span=choice.span))
            sources |= {source.name: source for source in files.sources}
    return replace(choice, candidates=tuple(candidates), sources=tuple(sources.values()))


def _has_ways(scheme: Scheme, topology: Topology) -> bool:
    try:
        for _, _, moves in expand(lower(scheme, topology.size), topology.size):
            Cluster(topology).over(moves.src, moves.dst)
    except ZencError:
        return False
    return True


def tiered(size: int, levels: Mapping[str, int]) -> Iterator[SchemeDraft]:
    """Yield schemes among the ranks of a level with another one across, for each level of the topology."""
    for level, ranks in levels.items():
        if not 1 < ranks < size or size % ranks:
            continue
        for inside, across in product(INSIDE, ACROSS):
            tiers = (f"tier {level}({ranks}): {inside}", f"tier cluster: {across}")
            doc = f"{inside} among the {ranks} ranks of a {level}, then {across}."
            yield SchemeDraft(f"{inside} in a {level} of {ranks}, then {across}", doc, (), tiers)
