"""Features around a sum, over the group and on the device that the command names, beside the same on the CPU.

    python -m tests.gpu.features nccl cuda:0                                   # one rank
    torchrun --nproc-per-node 2 -m tests.gpu.features nccl cuda:0              # ranks that share a GPU

Ends well if each feature does on the device what it does on the CPU: the same bits where only sums are involved, and
the same numbers but for rounding where PyTorch computes as well. It prints each feature as it passes, and goes on
after one that fails.
"""

import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import zenc
from tests.gpu.train import open_group
from tests.support.cases import dense_tensor, same_bits, sparse_tensor
from zenc.common.wording import count

CPU = torch.device("cpu")
ROWS, WIDTH, STEPS = 300, 8, 4
LOSSY = ("topk_a2a", "ok_topk", "dgc", "one_bit", "qsgd", "terngrad", "sketch_sgd", "oscar_sw", "oscar_hw", "power_sgd",
         "signum", "fp8", "loco", "ef21", "gtop_k", "demo")  # fmt: skip
STRATEGY = """
scheme few(density = 0.1) {{
    communication: point_to_point then ring  aggregation: incremental  partition: parallelism  balance: imbalanced
    select: top_of_parts(density)  feedback: residual  push: coo  pull: dense
}}
strategy mine {{
    tensors "0.*": balanced
    others: {others}
}}
"""
RULES = "few(0.2)", "few(0.2) on host", "dense_ring on host"


class Features:
    """The features, each on both devices."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.rank, self.size = device, dist.get_rank(), dist.get_world_size()

    def twice(
        self, work: Callable[[torch.device], list[torch.Tensor]], exactly: bool = True, alike: bool = True
    ) -> None:
        """Check that ``work`` has the same results on both devices, and where they end ``alike`` on all ranks."""
        there, here = ([each.detach().cpu() for each in work(device)] for device in (self.device, CPU))
        if alike:
            self.same_everywhere(there)
        for one, other in zip(there, here, strict=True):
            if exactly:
                assert same_bits([one, other]), (one, other)
            else:
                torch.testing.assert_close(one, other)

    def same_everywhere(self, tensors: list[torch.Tensor]) -> None:
        of_all: list[list[torch.Tensor]] = [[]] * self.size
        dist.all_gather_object(of_all, [each.coalesce() if each.is_sparse else each for each in tensors])
        for of_rank in of_all:
            for number, (one, other) in enumerate(zip(of_rank, tensors, strict=True)):
                off = (one.to_dense() - other.to_dense()).abs()
                said = f"tensor {number}: {int((off > 0).sum())} of {off.numel()} numbers differ, up to {off.max()}"
                assert same_bits([one, other]), said

    def gradients(self, device: torch.device, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
        """Return a sparse and a dense tensor of this rank."""
        made = [make("random", self.rank, self.size, ROWS, WIDTH, dtype, 3) for make in (sparse_tensor, dense_tensor)]
        return [each.to(device, copy=True) for each in made]

    # features, in the order of the manual

    def several_tables(self) -> None:
        def sums(device: torch.device) -> list[torch.Tensor]:
            tables = [self.gradients(device)[0] for _ in range(3)]
            return zenc.load("balanced", deadline=60).all_reduce_coalesced([*tables, self.gradients(device)[1]])

        self.twice(sums)

    def integers(self) -> None:
        def sums(device: torch.device) -> list[torch.Tensor]:
            collective = zenc.load("balanced", deadline=60)
            dtypes = torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64
            return [
                collective.all_reduce((torch.arange(999, device=device) * 77 * self.rank).to(dtype)) for dtype in dtypes
            ]

        self.twice(sums)

    def halves(self) -> None:
        def rows(device: torch.device) -> list[torch.Tensor]:
            collective, gradient = zenc.load("balanced", deadline=60), self.gradients(device)[0]
            sums = collective.reduce_scatter(gradient)
            assert bool(collective.owned(gradient.shape).to(device)[sums.indices()[0]].all())
            return [collective.all_gather(sums), collective.all_reduce(gradient)]

        self.twice(rows)

    def losses(self) -> None:
        for scheme in LOSSY:

            def sums(device: torch.device, scheme: str = scheme) -> list[torch.Tensor]:
                collective = zenc.load(scheme, deadline=60)
                return [collective.all_reduce(self.gradients(device)[1], "mean", name="w") for _ in range(3)]

            self.twice(sums)

    def kept_losses(self) -> None:
        def restarted(device: torch.device) -> list[torch.Tensor]:
            collective = zenc.load("topk_a2a", deadline=60)
            collective.all_reduce(self.gradients(device)[1], name="w")
            again = zenc.load("topk_a2a", deadline=60)
            again.load_state_dict(collective.state_dict())
            return [each.all_reduce(self.gradients(device)[1], name="w") for each in (collective, again)]

        self.twice(restarted)

    def choices(self) -> None:
        def sums(device: torch.device) -> list[torch.Tensor]:
            collective = zenc.load("auto", deadline=60)
            return [collective.all_reduce(each, name=str(i)) for i in range(3) for each in self.gradients(device)]

        self.twice(sums)

    def announcements(self) -> None:
        def sums(device: torch.device) -> list[torch.Tensor]:
            collective, gradient = zenc.load("holders", deadline=60), self.gradients(device)[0]
            announced = collective.announce(gradient._indices()[0], gradient.shape)
            return [collective.all_reduce(gradient, announced=announced)]

        self.twice(sums)

    def rebuilding(self) -> None:
        def sums(device: torch.device) -> list[torch.Tensor]:
            collective = zenc.load("balanced", deadline=60)
            first = collective.all_reduce(self.gradients(device)[1])
            again = collective.rebuild()
            second = again.all_reduce(self.gradients(device)[1])
            again.close()
            return [first, second]

        self.twice(sums)

    def sixteen_bits(self) -> None:
        for dtype in (torch.bfloat16, torch.float16):

            def sums(device: torch.device, dtype: torch.dtype = dtype) -> list[torch.Tensor]:
                collective = zenc.load("balanced", deadline=60)
                return [collective.all_reduce(each, "mean") for each in self.gradients(device, dtype)]

            self.twice(sums)

    def publishing(self) -> None:
        def published(device: torch.device) -> list[torch.Tensor]:
            old = [torch.ones(500, 7, dtype=dtype, device=device) for dtype in (torch.bfloat16, torch.float32)]
            new = [each + torch.arange(7, device=device) * 0.01 for each in old]
            zenc.broadcast_update(old, [each.to(have.dtype) for each, have in zip(new, old, strict=True)])
            return old

        def received(device: torch.device) -> list[torch.Tensor]:
            old = [torch.ones(500, 7, dtype=dtype, device=device) for dtype in (torch.bfloat16, torch.float32)]
            zenc.broadcast_update(old)
            return old

        self.twice(received if self.rank else published)

    def sharded_tables(self) -> None:
        for optimizer in (torch.optim.SparseAdam, torch.optim.Adagrad, zenc.LazyAdamW, zenc.RowwiseAdagrad):
            for on_demand in (False, True):

                def stepped(
                    device: torch.device, made: type[torch.optim.Optimizer] = optimizer, on_demand: bool = on_demand
                ) -> list[torch.Tensor]:
                    torch.manual_seed(0)
                    table = nn.Embedding(ROWS, WIDTH, sparse=True).to(device)
                    tables = zenc.ShardedTableOptimizer([table.weight], made, lr=0.01, on_demand=on_demand)
                    for step in range(STEPS):
                        generator = torch.Generator().manual_seed(step * 10 + self.rank)
                        ids = torch.randperm(ROWS, generator=generator)[:40].to(device)
                        if on_demand:
                            tables.fetch(ids)
                        tables.zero_grad()
                        table(ids).pow(2).sum().backward()
                        tables.step()
                    if on_demand:
                        tables.fetch()
                    return [table.weight]

                self.twice(stepped, exactly=False)

    def averagings(self) -> None:
        streaming = {"steps": 4, "runs": 2, "late": 1}
        for averaging, given in (
            ("diloco", {"steps": 2}),
            ("streaming_diloco", streaming),
            ("sparse_loco", {"steps": 2}),
        ):

            def trained(
                device: torch.device, averaging: str = averaging, given: dict[str, int] = given
            ) -> list[torch.Tensor]:
                torch.manual_seed(0)
                model = nn.Linear(16, 64).to(device)
                optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
                averager = zenc.Averager(model, averaging, params=given)
                averager.follow(optimizer)
                for step in range(2 * STEPS):
                    optimizer.zero_grad()
                    generator = torch.Generator().manual_seed(10 * step + self.rank)
                    model(torch.randn(8, 16, generator=generator).to(device)).pow(2).mean().backward()
                    optimizer.step()
                return list(model.parameters())

            self.twice(trained, exactly=False, alike=given is not streaming)

    def strategies(self) -> None:
        for others in RULES:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "mine.zen")
                path.write_text(STRATEGY.format(others=others), "utf-8")
                self.twice(lambda device, path=path: self.under_ddp(device, str(path)), exactly=False)

    def clipped(self) -> None:
        self.twice(lambda device: self.under_ddp(device, "balanced", clip=True), exactly=False)

    def under_ddp(self, device: torch.device, scheme: str, clip: bool = False) -> list[torch.Tensor]:
        """Return the parameters of a small model after some steps of DDP with ``scheme``."""
        torch.manual_seed(0)
        model = nn.Sequential(nn.EmbeddingBag(ROWS, WIDTH, sparse=True), nn.Linear(WIDTH, 128)).to(device)
        group = None if device.type == "cuda" else self.cpu_group
        ddp = DistributedDataParallel(model, device_ids=self.ids(device), process_group=group)
        handle = zenc.attach(ddp, scheme, deadline=60)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(STEPS):
            optimizer.zero_grad()
            generator = torch.Generator().manual_seed(step * 10 + self.rank)
            ddp(torch.randint(0, ROWS, (32, 4), generator=generator).to(device)).pow(2).mean().backward()
            if clip:
                zenc.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
        handle.detach()
        return list(model.parameters())

    def mixed_buckets(self) -> None:
        """Check steps in whose buckets a table goes by zenc, and large layers beside it by DDP."""

        def trained(scheme: str | None, as_view: bool = False) -> list[torch.Tensor]:
            torch.manual_seed(0)
            model = nn.Sequential(nn.Embedding(ROWS, 512), nn.Linear(512, 4096), nn.Linear(4096, 64)).to(self.device)
            ids = self.ids(self.device)
            ddp = DistributedDataParallel(model, device_ids=ids, gradient_as_bucket_view=as_view)
            if scheme is not None:
                zenc.attach(ddp, scheme, dense=["0.weight"], deadline=60)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            for step in range(5 * STEPS):
                optimizer.zero_grad()
                generator = torch.Generator().manual_seed(step * 10 + self.rank)
                ddp(torch.randint(0, ROWS, (16,), generator=generator).to(self.device)).pow(2).mean().backward()
                optimizer.step()
            return [each.detach().cpu() for each in model.parameters()]

        without = trained(None)
        for scheme, as_view in (("balanced", False), ("balanced", True), ("zen", False)):
            found = trained(scheme, as_view)
            self.same_everywhere(found)
            for one, other in zip(found, without, strict=True):
                torch.testing.assert_close(one, other)

    def fsdp(self) -> None:
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.fsdp import fully_shard

        def gradients(device: torch.device, ours: bool) -> list[torch.Tensor]:
            torch.manual_seed(0)
            mesh = DeviceMesh.from_group(dist.group.WORLD, device.type)
            model = nn.Sequential(nn.Embedding(ROWS, WIDTH), nn.Linear(WIDTH, 6)).to(device)
            fully_shard(model[0], mesh=mesh)
            fully_shard(model, mesh=mesh)
            if ours:
                model[0].set_custom_reduce_scatter(zenc.FsdpReduceScatter(width=WIDTH))
            generator = torch.Generator().manual_seed(self.rank)
            model(torch.randint(0, ROWS, (50,), generator=generator).to(device)).square().sum().backward()
            return [each.grad.full_tensor().cpu() for each in model.parameters()]

        for one, other in zip(gradients(self.device, True), gradients(self.device, False), strict=True):
            torch.testing.assert_close(one, other)

    def replicas(self) -> None:
        def averaged(device: torch.device) -> list[torch.Tensor]:
            average = zenc.ReplicaAverage("balanced")
            tensors = [torch.ones(40, 3, device=device), torch.ones(40, device=device)]
            for step in range(STEPS):
                for tensor in tensors:
                    tensor[step + self.rank :: 7] += self.rank + step
                average(tensors)
            return tensors

        self.twice(averaged)

    def ids(self, device: torch.device) -> list[int | None] | None:
        """Return the argument ``device_ids`` of DDP."""
        return [device.index] if device.type == "cuda" else None

    def dry_runs(self) -> None:
        model = nn.EmbeddingBag(ROWS, WIDTH, sparse=True).to(self.device)
        ddp = DistributedDataParallel(model, device_ids=self.ids(self.device))
        handle = zenc.attach(ddp, dry_run=True)
        try:
            for _ in range(25):
                model.zero_grad()
                ddp(torch.randint(0, ROWS, (32, 4), device=self.device)).pow(2).mean().backward()
        except zenc.TensorError as error:
            assert dist.get_backend() == "nccl" and error.diagnostics[0].id == "no-sparse-sums", error
        else:
            assert [each.name for each in handle.profile.parameters] == ["weight"]

    def steps_without_sums(self) -> None:
        model = nn.EmbeddingBag(ROWS, WIDTH, sparse=True).to(self.device)
        ddp = DistributedDataParallel(model, device_ids=self.ids(self.device))
        ddp.register_comm_hook(None, zenc.noop_hook)
        ddp(torch.randint(0, ROWS, (32, 4), device=self.device)).pow(2).mean().backward()
        assert model.weight.grad is not None and not model.weight.grad.is_coalesced()

    def run(self) -> int:
        """Check all features; return their number."""
        self.cpu_group = dist.new_group(backend="gloo")
        checks = [
            self.several_tables, self.integers, self.halves, self.losses, self.kept_losses, self.choices,
            self.announcements, self.rebuilding, self.sixteen_bits, self.publishing, self.sharded_tables,
            self.averagings, self.strategies, self.clipped, self.mixed_buckets, self.fsdp, self.replicas,
            self.dry_runs, self.steps_without_sums,
        ]  # fmt: skip
        failed = []
        for check in checks:
            try:
                check()
            except Exception:
                traceback.print_exc()
                failed.append(check.__name__)
            print(f"rank {self.rank}: {check.__name__}{' FAILED' if check.__name__ in failed else ''}", flush=True)
        if failed:
            sys.exit(f"failed: {', '.join(failed)}")
        return len(checks)


def main(backend: str, name: str) -> None:
    device = open_group(backend, name)
    checked = Features(device).run()
    ranks = dist.get_world_size()
    dist.destroy_process_group()
    print(f"{checked} features on {device} over {backend}: {count(ranks, 'rank')}")


if __name__ == "__main__":
    main(*sys.argv[1:])
