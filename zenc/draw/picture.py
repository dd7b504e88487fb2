"""The elements of a drawing, in pixels: plain data that the templates write down.

Picture = width height id title description Row* Band* ...
Text    = x y words style                               # style: a class of ``templates/draw/style.css.j2``
Row = Node* Bars* # the pieces of all ranks between two steps
Band    = Text* Arrow* KeeperMark*                      # the moves of one step
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Text:
    """Words at a point; ``anchor`` is SVG's text-anchor, ``style`` a class of the style sheet."""

    x: float
    y: float
    words: str
    style: str = ""
    anchor: str = "start"
    fill: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """The common parts of all drawings; ``id`` keeps apart the names inside several of one page."""

    width: float
    height: float
    id: str
    title: str
    description: str
    texts: tuple[Text, ...]


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A rectangle by its upper left corner."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Node(Rectangle):
    """The box of one rank's pieces; ``title`` has them in words."""

    title: str


@dataclass(frozen=True, slots=True)
class Bars:
    """Upright lines of one colour; ``path`` draws all of them."""

    path: str
    colour: str
    complete: bool


@dataclass(frozen=True, slots=True)
class Arrow:
    """The arrow of a move; ``colour`` is a colour, or ``url(#id)`` of a gradient."""

    path: str
    head: str
    colour: str
    head_colour: str
    width: float
    title: str
    src: int
    dst: int


@dataclass(frozen=True, slots=True)
class ColourGradient:
    """Colours from ``top`` to ``bottom``."""

    id: str
    top: float
    bottom: float
    colours: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """The state of all ranks between two steps."""

    nodes: tuple[Node, ...]
    bars: tuple[Bars, ...]


@dataclass(frozen=True, slots=True)
class KeeperMark:
    """A diamond below a rank's pieces, in the colour of the part whose loss it keeps; ``title`` has it in words."""

    path: str
    colour: str
    title: str


@dataclass(frozen=True, slots=True)
class Band:
    """The moves of one step, and the keepers of losses before them."""

    phase: str
    number: int
    title: str
    texts: tuple[Text, ...]
    labels: tuple[Text, ...]
    arrows: tuple[Arrow, ...]
    keepers: tuple[KeeperMark, ...] = ()


@dataclass(frozen=True, slots=True)
class Swatch:
    """A square of the legend."""

    x: float
    y: float
    width: float
    colour: str


@dataclass(frozen=True, slots=True)
class Line:
    """A straight line from (``x1``, ``y1``) to (``x2``, ``y2``): a lifeline of a rank, or a rule between phases."""

    x1: float
    y1: float
    x2: float
    y2: float


@dataclass(frozen=True, slots=True)
class SchedulePicture(Picture):
    """The inputs of ``schedule.svg.j2``."""

    lifelines: tuple[Line, ...]
    rules: tuple[Line, ...]
    gradients: tuple[ColourGradient, ...]
    rows: tuple[Row, ...]
    bands: tuple[Band, ...]
    swatches: tuple[Swatch, ...]


@dataclass(frozen=True, slots=True)
class Cells:
    """Marks of one colour in a row of a matrix; ``path`` draws all of them."""

    path: str
    colour: str


@dataclass(frozen=True, slots=True)
class FlowRow:
    """The receivers of one rank; ``title`` has them in words."""

    src: int
    y: float
    cells: tuple[Cells, ...]
    title: str


@dataclass(frozen=True, slots=True)
class Panel:
    """The matrix of one phase: a square from ``x`` and ``y`` on."""

    phase: str
    x: float
    y: float
    side: float
    cell: float
    rows: tuple[FlowRow, ...]
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class MatrixPicture(Picture):
    """The inputs of ``matrix.svg.j2``."""

    panels: tuple[Panel, ...]
    swatches: tuple[Swatch, ...]


@dataclass(frozen=True, slots=True)
class Box(Rectangle):
    """The ranks of one unit of a level."""

    label: str


@dataclass(frozen=True, slots=True)
class NodeMark(Rectangle):
    """A node of a topology, by its middle."""

    colour: str
    label: str
    title: str
    kind: str


@dataclass(frozen=True, slots=True)
class LinkLine:
    """A link; ``head`` is empty where it is the same in both directions."""

    path: str
    head: str
    colour: str
    width: float
    title: str
    kind: str


@dataclass(frozen=True, slots=True)
class TopologyPicture(Picture):
    """The inputs of ``topology.svg.j2``."""

    boxes: tuple[Box, ...]
    links: tuple[LinkLine, ...]
    spots: tuple[NodeMark, ...]
    labels: tuple[Text, ...]
    swatches: tuple[Swatch, ...]


@dataclass(frozen=True, slots=True)
class RuleBox(Rectangle):
    """A tensor, or the sign of a rule in the legend, in the colour of the ``rule`` of this number."""

    rule: int
    title: str
    colour: str


@dataclass(frozen=True, slots=True)
class StrategyPicture(Picture):
    """The inputs of ``strategy.svg.j2``."""

    boxes: tuple[RuleBox, ...]
    lines: tuple[Line, ...]
    swatches: tuple[Swatch, ...]
