"""``choose(SETTINGS) from [CANDIDATES]`` -> the candidates, resolved, and how the run time chooses among them."""

from __future__ import annotations

from dataclasses import replace

from zenc.language import syntax
from zenc.scheme import model
from zenc.scheme.collector import Collector
from zenc.scheme.references import Levels, Naming

MOST_CANDIDATES = 64


def resolve_choice(
    scheme: syntax.SchemeSyntax, naming: Naming, levels: Levels
) -> tuple[model.Settings, tuple[model.Candidate, ...]] | None:
    """The choice of a scheme with ``choose``; None where the report of ``naming`` tells of an error."""
    report = naming.report
    _report_company(scheme, report)
    chosen = scheme.choices[0]
    settings = _settings(chosen.settings, naming)
    candidates = [_candidate(word, naming, levels) for word in chosen.candidates[:MOST_CANDIDATES]]
    found = tuple(candidate for candidate in candidates if candidate is not None)
    if len(chosen.candidates) > MOST_CANDIDATES:
        message = f"a scheme chooses among {MOST_CANDIDATES} candidates at most"
        report.error("wrong-range", message, chosen.candidates[MOST_CANDIDATES].span)
    _report_twins(found, report)
    _report_conflicts(found, report)
    return None if settings is None or report.failed else (settings, found)


def _report_company(scheme: syntax.SchemeSyntax, report: Collector) -> None:
    """Report all that can't stand beside a choice."""
    help = "put it in a scheme, and name that as a candidate"
    for what, span in (
        *((f"{entry.key.text} of its own", entry.key.span) for entry in scheme.entries),
        *(("tiers", tier.name.span) for tier in scheme.tiers[:1]),
        *(("second choice", other.settings.span) for other in scheme.choices[1:]),
    ):
        report.error("choice-and-dimensions", f"a scheme that chooses has no {what}", span, help=help)


def _settings(word: syntax.Word, naming: Naming) -> model.Settings | None:
    values = naming.arguments(word, list(model.SETTINGS))
    if values is None:
        return None
    spans = {name: argument.span for name, argument in zip(model.SETTINGS, word.arguments, strict=False)}
    spans |= {argument.name.text: argument.span for argument in word.arguments if argument.name}
    for name, value in values.items():
        least, most = model.SETTINGS[name]
        if isinstance(value, float) and name != "margin":
            naming.report.error("wrong-type", f"'{name}' is an integer, not {value}", spans[name])
        elif not least <= value <= most:
            message = f"'{name}' of a choice is {least:,} to {most:,}, not {value}"
            naming.report.error("wrong-range", message, spans[name])
    if naming.report.failed:
        return None
    counts = {name: int(value) for name, value in values.items() if name != "margin"}
    return replace(model.Settings(margin=float(values.get("margin", model.Settings().margin))), **counts)


def _candidate(word: syntax.Word, naming: Naming, levels: Levels) -> model.Candidate | None:
    scheme = naming.scheme(word, levels)
    if scheme is None:
        return None
    names = [name for name, _ in scheme.parameters]
    given = [argument.name.text if argument.name else names[place] for place, argument in enumerate(word.arguments)]
    values = dict(scheme.parameters)
    arguments = ", ".join(f"{name} = {values[name]}" for name in given)
    return model.Candidate(f"{scheme.name}({arguments})" if arguments else scheme.name, scheme, span=word.span)


def _report_twins(candidates: tuple[model.Candidate, ...], report: Collector) -> None:
    first: dict[str, model.Candidate] = {}
    for candidate in candidates:
        other = first.setdefault(candidate.name, candidate)
        if other is not candidate:
            notes = (f"the other one: {other.span}",)
            report.error("duplicate-name", f"candidate '{candidate.name}' is here twice", candidate.span, notes=notes)


def _report_conflicts(candidates: tuple[model.Candidate, ...], report: Collector) -> None:
    """What is counted in a gradient must be the same for all candidates."""
    for candidate in candidates[1:]:
        if candidate.scheme.unit is not candidates[0].scheme.unit:
            message = f"candidates '{candidates[0].name}' and '{candidate.name}' differ in their unit"
            help = "schemes of one unit can be compared: make a choice of those"
            report.error("conflicting-candidates", message, candidate.span, help=help)
