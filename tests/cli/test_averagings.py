"""Averagings on the command line."""

import json
from xml.etree import ElementTree

from tests.cli.conftest import Zenc


def test_check_proves_the_period_and_the_groups(zenc: Zenc) -> None:
    done = zenc("check", "ds_sync", "--ranks", "16", "--set", "side=4")
    assert [line.partition("ds_sync.zen: ")[2] for line in done.stdout.splitlines()] == [
        "averaging ds_sync has a period of 2 steps: rows(4), columns(4)",
        "after a period all ranks have the mean, exactly; proved for 16 ranks",
        "dense_ring in a group of 4 is proved for 4 ranks (push 3 steps, pull 3 steps)",
    ]
    found = json.loads(zenc("check", "ds_sync", "--json").stdout)
    assert (found["averaging"], found["period"], found["sums"]) == ("ds_sync", ["rows(2)", "columns(2)"], "dense_ring")
    assert found["sizes"] == [4, 6, 8, 10, 12, 14, 16] and found["from_any_step"] is True
    assert found["groups"]["2"]["rounds"] == {"push": 1, "pull": 1}
    wrong = zenc("check", "ds_sync", "--ranks", "6", "--set", "side=4")
    assert wrong.returncode == 1 and "error[not-the-mean]: after the 2 steps of a period rank 2" in wrong.stderr


def test_list(zenc: Zenc) -> None:
    assert "\n  rows(2), columns(2), by dense_ring\n" in zenc("list", "--averagings").stdout
    found = {each["name"]: each for each in json.loads(zenc("list", "--averagings", "--json").stdout)["averagings"]}
    assert list(found) == ["diloco", "ds_sync", "sparse_loco", "streaming_diloco"]
    assert found["ds_sync"]["path"].endswith("schemes/averagings/ds_sync.zen") and not found["ds_sync"]["words"]
    assert found["diloco"]["words"] == {"when": "every(100)", "outer": "nesterov(0.7, 0.9)"}


def test_explain_counts_bytes_rounds_and_the_busiest_link(zenc: Zenc) -> None:
    shown = zenc("explain", "ds_sync", "--topology", "nodes(4, gpus = 4)", "--set", "side=4").stdout
    rows = [" ".join(line.split()) for line in shown.splitlines()]
    assert "0 rows(4) 4: [0 to 3] [4 to 7] [8 to 11] [12 to 15] 6 6 gpu(0, 0) -> nvswitch(0), 6" in rows
    assert "- everyone 1: [0 to 15] 7.5 30 network -> nic(0, 0), 7.5" in rows
    assert "After any 2 steps in a row all 16 ranks have the mean of what they had, exactly." in rows
    found = json.loads(zenc("explain", "ds_sync", "--json").stdout)
    assert (found["averaging"], found["ranks"]) == ("ds_sync", 4), "the fewest that it is proved for"
    assert [step["groups"] for step in found["steps"]] == [[[0, 1], [2, 3]], [[0, 2], [1, 3]]]
    assert [round(step["bytes_a_value"], 2) for step in (*found["steps"], found["all_at_once"])] == [4.0, 4.0, 6.0]
    across = json.loads(
        zenc("explain", "ds_sync", "--topology", "nodes(4, gpus = 4)", "--set", "side=4", "--json").stdout
    )
    columns = across["steps"][1]["busiest_link"]
    assert round(columns["bytes_a_value"], 2) == 24.0, (
        "four columns share the card of a node, each with 6 bytes a value"
    )


def test_draw_has_a_box_for_each_rank_and_step(zenc: Zenc) -> None:
    svg = zenc("draw", "ds_sync", "--ranks", "6").stdout
    titles = [title.text for title in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}title")]
    assert titles.count("step 1: rank 5 averages with ranks 1, 3 and 5") == 1
    assert sum(str(title).startswith("step ") for title in titles) == 12
    assert "at most, not 128" in zenc("draw", "ds_sync", "--ranks", "128").stderr


def test_outer_optimizers_are_checked_and_priced(zenc: Zenc) -> None:
    told = zenc("check", "sparse_loco", "--ranks", "2").stdout
    assert "an average after every 30 steps\n" in told
    assert "changes of parameters are what is summed and what is kept (select top_of_blocks(0.015625, 4096)" in told
    found = json.loads(zenc("explain", "streaming_diloco", "--ranks", "4", "--json").stdout)
    assert found["words"]["overlap"] == "during(5, 0.5)" and round(found["bytes_a_value_and_step"], 2) == 0.06
    shown = zenc("explain", "streaming_diloco", "--ranks", "4").stdout
    assert "an average after every 25 steps, of 4 runs of the parameters in turn, due 5 later" in shown
    assert "an average after every 100 steps; each group by" in zenc("draw", "diloco", "--ranks", "2").stdout
