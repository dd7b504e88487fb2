"""``benchmarks/step_profile.py``: that its page has what the results say, and what a row is made of."""

from __future__ import annotations

from benchmarks.step_profile import BEGIN, END, PAGE, cells, shown


def test_the_page_has_what_the_results_say():
    assert f"{BEGIN}\n\n{shown()}\n\n{END}" in PAGE.read_text("utf-8")


def test_processors_and_links_are_shares_of_a_step():
    peers = {
        "ddp-sparse": {"seconds": {"median": 0.1}, "processor": 0.5, "wire": 0.9},
        "auto": {"seconds": {"median": 0.05}, "processor": 0.8, "wire": None},
    }
    assert cells("here", peers, "auto") == ("here", "zenc, `auto`", "50", "40", "", "2.00", "2.50")
    assert cells("here", peers, "ddp-sparse")[3:5] == ("50", "90")
