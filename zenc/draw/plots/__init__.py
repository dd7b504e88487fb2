"""Plots as SVG, by matplotlib: bars, curves and profiles, on light and on dark pages alike."""
