"""The lab's faults: what impairments do to packets, one trial of each kind, how trials are judged, and their table."""

import subprocess
import sys

import pytest

from benchmarks.lab.faults import run
from benchmarks.lab.faults.__main__ import PART, markdown
from benchmarks.lab.faults.disturbances import DISTURBANCES, SCHEMES, WAYS, Disturbance
from benchmarks.lab.faults.run import Record, Trial
from zenc.api import compile
from zenc.lab.impairment import ImpairedCluster, Impairment, why_not
from zenc.runtime.cpu.library import load
from zenc.runtime.transports.socket_transport import hub_functions

SENT = 100
"""Datagrams, few enough to fit in the receiver's buffer."""
RECEIVER = """
import socket
into = socket.socket(type=socket.SOCK_DGRAM)
into.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
into.bind(("", 5000))
print("listens", flush=True)
came = [into.recv(1500)]
into.settimeout(1.0)
try:
    while True:
        came.append(into.recv(1500))
except TimeoutError:
    print(*map(int, came))
"""
SENDER = f"""
import socket
out = socket.socket(type=socket.SOCK_DGRAM)
for number in range({SENT}):
    out.sendto(str(number).encode().rjust(1400), ("{ImpairedCluster.address(0)}", 5000))
"""


@pytest.fixture(scope="module")
def network() -> None:
    if missing := why_not():
        pytest.skip(f"a shaped network takes {missing}")


def named(name: str) -> Disturbance:
    return next(each for each in DISTURBANCES if each.name == name)


def arrived(cluster: ImpairedCluster) -> list[int]:
    """Return the numbers of the datagrams from host 1 to host 0, in order of arrival."""
    words = [sys.executable, "-S", "-c"]
    receiver = subprocess.Popen(cluster.command(0, [*words, RECEIVER]), stdout=subprocess.PIPE, text=True)
    assert receiver.stdout and receiver.stdout.readline() == "listens\n"
    subprocess.run(cluster.command(1, [*words, SENDER]), check=True, timeout=20)
    return [int(number) for number in receiver.communicate(timeout=20)[0].split()]


def test_packets_are_lost_doubled_overtaken_and_mended(network: None) -> None:
    with ImpairedCluster(2, "100mbit", by=Impairment(lost=0.5)) as cluster:
        lost = arrived(cluster)
        assert SENT * 0.25 < len(lost) < SENT * 0.75 and lost == sorted(set(lost))
        cluster.impair(Impairment(doubled=0.3))
        doubled = arrived(cluster)
        assert len(set(doubled)) == SENT and SENT * 1.1 < len(doubled) < SENT * 2
        cluster.impair(Impairment(detoured=0.3))
        overtaken = arrived(cluster)
        assert sorted(overtaken) == list(range(SENT)) != overtaken
        cluster.impair(Impairment())
        assert arrived(cluster) == list(range(SENT))


@pytest.mark.slow
def test_sums_are_exact_where_packets_are_lost(network: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "CALLS", 8)
    built = compile("balanced", ranks=2)  # before ranks wait for each other, seconds at most
    load(built.sources, built.plan.mapping), hub_functions()
    (trial,) = [each.to_json() for each in run.trials([named("5 % lost")], ["balanced"], ["zenc"], ranks=2)]
    assert trial["broken"] == [] and trial["sums"] == 16
    assert trial["tcp"]["retransmitted"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_link_that_is_down_for_good_is_an_error_in_time(network: None, way: str) -> None:
    (trial,) = [each.to_json() for each in run.trials([named("a link down for good")], ["dense_ring"], [way])]
    assert trial["broken"] == [] and "deadline" in trial["errors"]


def record(**other: object) -> Record:
    whole = {"made": 9, "well": 9, "slowest": 0.1, "error": "", "text": "", "error_seconds": 0.0, "tcp": {}}
    return {**whole, **other}


LATE = record(error="deadline", text="error[deadline]: rank 1 sent nothing", error_seconds=8.1)


@pytest.mark.parametrize(
    ("name", "records", "lines"),
    [
        ("nothing", [record(), record(well=8)], ["rank 1 has a wrong sum"]),
        ("nothing", [LATE, record()], ["a false alarm: error[deadline]: rank 1 sent nothing"]),
        ("a link down for good", [record(), LATE], ["nobody noticed"]),
        ("a process killed, 2 % lost", [LATE, None], []),
        ("nothing", [None, record()], ["rank 0 never ended"]),
    ],
)
def test_what_must_not_be_is_found(name: str, records: list[Record | None], lines: list[str]) -> None:
    assert list(Trial(name, "balanced", "zenc", tuple(records)).broken()) == lines


def test_the_page_has_the_table_of_the_last_run() -> None:
    """The last run had no failed trial, and TCP saw what was done to packets."""
    trials = PART.kept()["trials"]
    assert markdown(trials) in PART.page.read_text("utf-8")
    assert {line for trial in trials for line in trial["broken"]} == set()
    tried = {(trial["disturbance"], trial["scheme"], trial["way"]) for trial in trials}
    assert tried == {(each.name, scheme, way) for each in DISTURBANCES for scheme in SCHEMES for way in WAYS}
    for share, counter in (("lost", "retransmitted"), ("doubled", "doubled"), ("detoured", "overtaken")):
        impaired = {each.name for each in DISTURBANCES if getattr(each.packets, share) and not each.is_fatal}
        seen = [trial["tcp"].get(counter, 0) for trial in trials if trial["disturbance"] in impaired]
        assert len(seen) >= 6 and min(seen) > 0
