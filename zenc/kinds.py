"""Kinds of texts: ``zenc.open`` returns a scheme, a strategy or an averaging."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from zenc.api import AnyPath, Asked, SchemeText, asked
from zenc.averaging.api import AveragingText
from zenc.averaging.resolve import AVERAGING
from zenc.common.arguments import names_wrong_types
from zenc.scheme.collector import pick
from zenc.strategy.api import StrategyText
from zenc.strategy.resolve import STRATEGY

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from zenc.pipeline.request import Parameters
    from zenc.topology.model import Topology

Opened: TypeAlias = SchemeText | StrategyText | AveragingText


@names_wrong_types
def open(
    what: AnyPath,
    *,
    ranks: int | None = None,
    params: Parameters | None = None,
    scheme: str | None = None,
    topology: Topology | None = None,
    link: float | str | None = None,
) -> Opened:
    """Read a text, and return its scheme, strategy or averaging, as ``kind`` says.

        found = zenc.open("balanced", ranks=8)
        sizes, costs = found.check().sizes, found.explain().text()
        found.compile("cuda").save("build/balanced")

    All kinds have ``check``, ``compile``, ``explain``, ``draw`` and ``load``; a verb that a kind lacks raises
    SchemeError (``wrong-kind``): a strategy is not loaded but attached, and an averaging compiled where it is loaded.

    Args:
        what: a ``.zen`` file, the name of a scheme, strategy or averaging that comes with zenc, or a text itself. It is
            about its strategy where it has one, else about its averaging, else about its scheme.
        ranks: their number. Default: the topology's, or any; what needs one number takes a usual one.
        params: values of the parameters.
        scheme: the name of the scheme, strategy or averaging, where the text has several.
        topology: links that every move must have a way over; its ranks are the ranks.
        link: the bandwidth between ranks, as ``zenc.compile`` takes it; for schemes alone.

    Raises:
        SchemeSyntaxError: with all syntax errors.
        SchemeError: the file can't be read, or has several strategies or averagings, and none was named.
    """
    found = open_summing(what, ranks=ranks, params=params, scheme=scheme, topology=topology, link=link)
    is_averaging = found.kind == "scheme" and pick(AVERAGING, found.syntax, scheme) is not None
    return AveragingText(found.syntax, found.asked).without_link() if is_averaging else found


def open_summing(what: AnyPath, **given: Unpack[Asked]) -> SchemeText | StrategyText:
    """Return the sums of gradients in ``what``, as ``open`` does: its strategy or scheme, also beside averagings."""
    syntax, request = asked(what, **given)
    is_strategy = pick(STRATEGY, syntax, request.scheme) is not None
    return StrategyText(syntax, request).without_link() if is_strategy else SchemeText(syntax, request)
