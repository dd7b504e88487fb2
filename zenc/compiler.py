"""Former name of ``zenc.api``, kept for scripts written for version 0.1."""

from __future__ import annotations

from zenc.api import calibrate, check, compile, compile_text, draw, explain, load, schemes

__all__ = ["calibrate", "check", "compile", "compile_text", "draw", "explain", "load", "schemes"]
