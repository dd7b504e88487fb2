"""Colours that can be told apart, and read, on white and on black paper alike."""

from __future__ import annotations

import math

LIGHTNESS, CHROMA = 0.66, 0.15
FIRST_HUE = 255.0
SERIES_LIGHTNESS = (0.62, 0.72, 0.52)
SERIES_TURN = 44.03
"""Degrees between two hues of a series: found by a search for the least two of 8, 16 and 24 lie apart."""
RAMP = ((0.62, 0.11, 235.0), (0.66, 0.13, 165.0), (0.70, 0.15, 90.0), (0.64, 0.18, 50.0), (0.57, 0.22, 25.0))
"""Lightness, chroma and hue, of an idle link first and of the most loaded one last."""


def palette(count: int) -> tuple[str, ...]:
    """Return ``count`` colours of equal lightness around the circle of hues, as ``#rrggbb``."""
    return tuple(oklch(LIGHTNESS, CHROMA, FIRST_HUE + 360.0 * i / max(1, count)) for i in range(count))


def distinct(count: int) -> tuple[str, ...]:
    """Return the first ``count`` of a series of colours for lines; the first ones are the same for any count.

    Among the first 24 any two lie 0.07 apart or more in the OKLab space; the first hundreds are all different.
    """
    lightness = [SERIES_LIGHTNESS[turn % len(SERIES_LIGHTNESS)] for turn in range(count)]
    return tuple(oklch(lightness[turn], CHROMA, FIRST_HUE + SERIES_TURN * turn) for turn in range(count))


def ramp() -> tuple[str, ...]:
    """Return the classes of load, the least first."""
    return tuple(oklch(*colour) for colour in RAMP)


def oklch(lightness: float, chroma: float, hue: float) -> str:
    """Return a colour of the OKLCH space as ``#rrggbb``, with less chroma where sRGB has not as much.

    Source: B. Ottosson, A perceptual color space for image processing, 2020.
    """
    rgb = _linear(lightness, chroma, hue)
    while chroma > 0 and not all(-1e-4 <= channel <= 1 + 1e-4 for channel in rgb):
        chroma = max(0.0, chroma - 0.01)
        rgb = _linear(lightness, chroma, hue)
    return "#" + "".join(f"{round(255 * _encoded(channel)):02x}" for channel in rgb)


def _linear(lightness: float, chroma: float, hue: float) -> tuple[float, float, float]:
    a, b = chroma * math.cos(math.radians(hue)), chroma * math.sin(math.radians(hue))
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    middle = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    return (
        4.0767416621 * long - 3.3077115913 * middle + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * middle - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * middle + 1.7076147010 * short,
    )


def _encoded(channel: float) -> float:
    """Return the value of the sRGB curve."""
    channel = min(1.0, max(0.0, channel))
    return 12.92 * channel if channel <= 0.0031308 else 1.055 * channel ** (1 / 2.4) - 0.055
