"""CUDA graphs of PyTorch that hold calls, over the group and on the GPU that the command names.

    python -m tests.gpu.graphs nccl cuda:0                                     # one rank
    torchrun --nproc-per-node 2 -m tests.gpu.graphs nccl cuda:0                # ranks that share a GPU

Ends well if a graph of two calls gives, replay after replay, the bits of the same calls without a graph, whichever way
it was captured, and if a rank whose peers do not replay is told so at the deadline, while the graph lives.
"""

import sys
import time

import torch
import torch.distributed as dist

import zenc
from tests.gpu.train import open_group
from tests.support.cases import dense_tensor, same_bits, sparse_tensor
from zenc.common.wording import count
from zenc.errors import SynchronisationError

MODES = ("thread_local", "global")
REPLAYS, UNITS, WIDTH, DEADLINE = 3, 400, 5, 10.0


def inputs(device: torch.device, turn: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return this rank's tensors of a turn: a dense one, and a sparse one with a fixed number of indices."""
    rank, size = dist.get_rank(), dist.get_world_size()
    dense = dense_tensor("random", rank, size, UNITS, WIDTH, torch.float32, turn)
    sparse = sparse_tensor("random", rank, size, UNITS, WIDTH, torch.float32, 0)
    values = sparse._values() * (turn + 1)
    made = torch.sparse_coo_tensor(sparse._indices(), values, sparse.shape, check_invariants=True)
    return dense.to(device), made.to(device)


def check_replays(device: torch.device, mode: str) -> None:
    """Replay a graph of two calls, with new values each time."""
    plainly, captured = zenc.load("balanced", deadline=60), zenc.load("balanced", deadline=60, capacity=1.0)
    dense, sparse = inputs(device, 0)
    calls = [captured.capturable(tensor, "mean") for tensor in (dense, sparse)]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode=mode):
        for call in calls:
            call.enqueue()
    for turn in range(REPLAYS):
        new_dense, new_sparse = inputs(device, turn)
        expected = [plainly.all_reduce(tensor.clone(), "mean").cpu() for tensor in (new_dense, new_sparse)]
        dense.copy_(new_dense)
        sparse._values().copy_(new_sparse._values())
        graph.replay()
        assert same_bits([expected[0], calls[0].result().cpu()])
        assert same_bits([expected[1], calls[1].result().cpu()])
    graph.reset()


def check_alone(device: torch.device) -> None:
    """Replay on rank 0 alone: it gets an error at the deadline, and its graph can be destroyed after that."""
    collective = zenc.load("balanced", deadline=DEADLINE, capacity=1.0)
    dense, _ = inputs(device, 0)
    call, graph = collective.capturable(dense), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        call.enqueue()
    if dist.get_rank() == 0:
        graph.replay()
        started = time.monotonic()
        try:
            call.result()
        except SynchronisationError as error:
            assert error.diagnostics[0].id == "deadline", error
        else:
            raise AssertionError("a replay without peers has ended well")
        assert DEADLINE <= time.monotonic() - started < 3 * DEADLINE
    else:
        time.sleep(2 * DEADLINE)
    graph.reset()


def main(backend: str, name: str) -> None:
    device = open_group(backend, name)
    for mode in MODES:
        check_replays(device, mode)
    ranks = dist.get_world_size()
    if ranks > 1:
        check_alone(device)
    dist.destroy_process_group()
    print(f"replayed on {device} over {backend}: {count(ranks, 'rank')}")


if __name__ == "__main__":
    main(*sys.argv[1:])
