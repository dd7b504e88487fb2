"""The decision tree of Espresso: as many options as the paper counts, each of them sensible."""

import pytest

from benchmarks.strategies.decision_tree import Action, Among, Held, Option, Task, Tree

TREES = {2: Tree(), 1: Tree(("gpu",), ("gpu",))}
SECOND = {Action.SCATTER: Action.COLLECT, Action.ROOT: Action.BROADCAST}


@pytest.mark.parametrize(("devices", "options"), [(2, 4341), (1, 174)])
def test_there_are_as_many_options_as_in_the_paper(devices: int, options: int) -> None:
    """Section 4.2 of Espresso counts |C| = 4341 options, with the GPU and the CPU."""
    assert len(set(TREES[devices].options())) == options


def test_tasks_say_what_they_do_and_where() -> None:
    tasks = (Task(Action.SCATTER, Held(), Among.INSIDE_PUSH), Task(Action.COMPRESS, Held(), device="gpu"))
    assert [str(task) for task in tasks] == ["scatter inside push", "compress gpu"]


def closed_form(a: int, b: int) -> int:
    """Return the number of options with ``a`` devices that compress and ``b`` that decompress."""
    t1 = 1 + a * b
    t2 = b + b * t1
    t5 = t1 + a * t2
    t3, t4 = t1 + 2 * t5, t2 + 2 * (t2 + b * t5)
    flat = 1 + 2 * t1 + a * (b + 2 * t2)
    return flat + 2 * (t3 + a * t4) + 2 * a * (t4 + b * (t3 + a * t4))


@pytest.mark.parametrize("encoders", [("gpu",), ("gpu", "cpu"), ()])
@pytest.mark.parametrize("decoders", [("gpu",), ("gpu", "cpu"), ()])
def test_the_closed_form_counts_them(encoders: tuple[str, ...], decoders: tuple[str, ...]) -> None:
    assert sum(1 for _ in Tree(encoders, decoders).options()) == closed_form(len(encoders), len(decoders))


def is_sum(option: Option) -> bool:
    """Return whether all ranks end with the plain tensor: steps pair, and compressed data are decompressed."""
    open_, compressed = [], False
    for task in option:
        if task.held.compressed != compressed:
            return False
        if task.action is Action.COMPRESS:
            compressed = True
        elif task.action is Action.DECOMPRESS:
            compressed = False
        elif task.action is Action.ALL_REDUCE and compressed:
            return False
        elif task.action in SECOND:
            open_.append((SECOND[task.action], task.level))
        elif task.action in SECOND.values():
            expected, level = open_.pop()
            if (task.action, task.level) not in ((expected, level), (expected, Among.INSIDE_PULL)):
                return False
    return not open_ and not compressed


def test_every_option_pairs_its_steps_and_decompresses_what_it_compresses() -> None:
    wrong = [option for option in TREES[2].options() if not is_sum(option)]
    assert wrong == []
