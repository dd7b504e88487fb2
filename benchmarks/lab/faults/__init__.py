"""The lab's faults: collectives over networks that lose, double and reorder packets, and with hosts that fail.

    DISTURBANCES x SCHEMES x WAYS ─▶ Trial*: every call an exact sum, or an error in time that names its cause

``python -m benchmarks.lab.faults --help``; the results are in docs/internals/liveness.md.
"""
