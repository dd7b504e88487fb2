"""An all-to-all of shares of chunks in TE-CCL's JSON, damaged ones, and a judge that shares nothing with zenc's.

The judge cuts each chunk into 20 parts with numbers, and plays the epochs: a GPU sends any parts that it has at random,
and is without them then.
"""

import copy
import itertools
import random
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

Path = list[tuple[int, str]]
Data = dict[str, Any]


def teccl_shares(gpus: int) -> Data:
    """Return an all-to-all among GPUs 1 to ``gpus``, as TE-CCL writes it: half goes straight, quarters by others."""
    paths = dict[str, list[Path]]()
    for root, to in itertools.permutations(range(1, gpus + 1), 2):
        first, *_, last = (gpu for gpu in range(1, gpus + 1) if gpu not in (root, to))
        paths[f"Demand at {to} for chunk {to - 1} from {root} met by epoch 3"] = [
            [_hop(root, to, 0.25, 0, " via switches 0")],
            [_hop(root, to, 0.25, 0, " via switches 0")],
            [_hop(root, first, 0.25, 0), _hop(first, to, 0.25, 1)],
            [_hop(root, last, 0.25, 0, " via switches 0->9"), _hop(last, to, 0.25, 3)],
        ]
    data: Data = {"1-Epoch_Duration": 1.0, "7-Flows": [], "8-Chunk paths": paths}
    return {**data, "7-Flows": list(dict.fromkeys(_hops(data)))}


def _hop(sender: int, receiver: int, volume: float, epoch: int, via: str = "") -> tuple[int, str]:
    return epoch, f"{sender}->{receiver} with volume {volume} in epoch {epoch}{via}"


def _hops(data: Data) -> Iterator[str]:
    """Yield the hops of all paths as the list of flows has them."""
    for key, paths in data["8-Chunk paths"].items():
        _, _, _, _, _, chunk, _, root, *_ = key.split()
        yield from (f"Chunk {chunk} from {root} traveled over {text}" for path in paths for _, text in path)


def damaged_shares(data: Data, draw: random.Random) -> Data:
    """Return an all-to-all with a hop, path or demand changed at random, and its list of flows in seven of eight."""
    demands: dict[str, list[Path]] = copy.deepcopy(data["8-Chunk paths"])
    key = draw.choice(list(demands))
    paths, what = demands[key], draw.randrange(9)
    path = draw.choice(paths)
    at = draw.randrange(len(path))
    words = path[at][1].split()
    if what == 0:
        del path[at]
    elif what == 1:
        path.append(path[at])
    elif what == 2:
        paths.remove(path)
    elif what == 3:
        demands[re.sub(r"epoch \d", f"epoch {draw.randrange(5)}", key)] = demands.pop(key)
    elif what == 4:
        demands[re.sub(r"chunk \d", f"chunk {draw.randrange(4)}", key)] = demands.pop(key)
    else:
        words[3] = str(draw.randrange(1, 12) / 20) if what == 5 else words[3]
        words[6] = str(draw.randrange(5)) if what == 6 else words[6]
        words[0] = draw.choice([*demands.values()])[0][0][1].split()[0] if what == 7 else words[0]
        words = words[:7] if what == 8 and len(words) > 7 else [*words, "via switches 9"] if what == 8 else words
        path[at] = int(words[6]), " ".join(words)
    changed = {**data, "8-Chunk paths": demands}
    return changed if draw.random() < 0.125 else {**changed, "7-Flows": list(dict.fromkeys(_hops(changed)))}


def shares_are_right(data: Data, draw: random.Random) -> bool:
    """Return whether all chunks come, cut into 20 parts each, of which a GPU sends any that it has at random."""
    demands: dict[str, list[Path]] = data["8-Chunk paths"]
    listed, taken = Counter(data["7-Flows"]), Counter(_hops(data))
    asked = [[int(word) for word in key.split() if word.isdecimal()] for key in demands]
    names = {root for _, _, root, _ in asked}
    if sorted(ask[:3] for ask in asked) != sorted([to, to - 1, root] for to in names for root in names - {to}):
        return False
    played = all(_come(ask, paths, draw) for ask, paths in zip(asked, demands.values(), strict=True))
    return played and set(listed) == set(taken) and not listed - taken


def _come(ask: list[int], paths: list[Path], draw: random.Random) -> bool:
    """Return whether all parts of a chunk come to where they are to be in time."""
    to, _, root, by = ask
    have, coming = {root: set(range(20))}, list[tuple[int, int, set[int]]]()
    hops = [hop for path in paths for hop in path]
    for epoch in range(20):
        for _, receiver, parts in (one for one in coming if one[0] == epoch):
            have[receiver] = have.get(receiver, set()) | parts
        for words in (text.split() for begins, text in hops if begins == epoch):
            sender, receiver = map(int, words[0].split("->"))
            some, there = have.get(sender, set()), epoch + (len(words[9].split("->")) if len(words) > 7 else 0)
            number = round(20 * float(words[3]))
            if number > len(some) or (receiver == to and there > by):
                return False
            parts = set(draw.sample(sorted(some), number))
            have[sender] = some - parts
            coming.append((there + 1, receiver, parts))
    return len(have.get(to, ())) == 20
