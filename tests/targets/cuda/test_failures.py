"""Calls that can't succeed end soon, on every rank, with an error that says why."""

import time
from collections.abc import Iterator

import pytest
import torch

from tests.emulator.build import engine
from tests.emulator.libraries import Libraries
from tests.support.cases import same_bits, sparse_tensor
from tests.support.emulated import Device, Emulated, Result, interpreter
from tests.support.plans import plan_of
from tests.support.shipped import plan_of_shipped
from zenc.errors import SynchronisationError, TensorError, ZencError
from zenc.rank_ir.lower import lower
from zenc.runtime.gpu.partition import DevicePartitions

SOON = 4.0
"""Seconds that a rank waits for one that is dead."""


def inputs_of(size: int, units: int = 63) -> list[torch.Tensor]:
    return [sparse_tensor("random", rank, size, units, 3, torch.float32, 1) for rank in range(size)]


def ids_of(errors: list[object]) -> list[str]:
    assert all(isinstance(error, ZencError) for error in errors), errors
    return [error.diagnostics[0].id for error in errors]


def text_of(error: ZencError) -> str:
    return error.diagnostics[0].message


@pytest.fixture
def three() -> Iterator[Emulated]:
    with Emulated(plan_of_shipped("balanced"), 3, SOON) as ranks:
        yield ranks
        ranks.fail_on("")


@pytest.fixture
def alone() -> Iterator[Emulated]:
    with Emulated(plan_of_shipped("balanced"), 1) as ranks:
        yield ranks
        ranks.fail_on("")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"number": [5, 6, 5]}, "it is in call 6 of this group, and this rank in call 5"),
        ({"signature": [1, 2, 1]}, "its tensor, name, dtype, operation or scheme differs from this rank's"),
    ],
)
def test_a_peer_in_another_call(three, changes, why):
    errors = three.run(inputs_of(3), **changes)
    assert ids_of(errors) == ["different-calls"] * 3
    assert text_of(errors[0]) == f"rank 1 is in another call: {why} (scheme balanced)"
    assert ids_of(three.run(inputs_of(3))) == ["group-broken"] * 3


def test_a_peer_with_another_tensor(three):
    tensors = inputs_of(3)
    tensors[2] = inputs_of(3, units=64)[2]
    errors = three.run(tensors)
    assert ids_of(errors) == ["different-calls"] * 3
    assert "its tensor has 64 units, and this rank's has 63" in text_of(errors[1])


@pytest.mark.parametrize("group", [1, 2, 3])
def test_a_rank_dies(three, group):
    """The rank dies in any of its NCCL groups: the others wait for it until the deadline, and no longer."""
    three.fail_on(f"dead@1:{group}=1")
    started = time.monotonic()
    found = ids_of(three.run(inputs_of(3)))
    assert set(found) <= {"deadline", "peer-lost"} and "deadline" in found
    assert time.monotonic() - started < 4 * SOON
    assert ids_of(three.run(inputs_of(3))) == ["group-broken"] * 3


def test_a_peer_that_does_not_connect(three):
    """NCCL blocks on the host, before anything waits on the device: the watchdog ends that."""
    three.fail_on("mute@1:2=1")
    started = time.monotonic()
    errors = three.run(inputs_of(3))
    assert ids_of(errors)[1] == "deadline"
    late = "NCCL did not begin within the deadline of 4 s with a group of messages, which awaits ranks 0, 2"
    assert text_of(errors[1]).startswith(late)
    assert set(ids_of([errors[0], errors[2]])) <= {"deadline", "peer-lost"}
    assert SOON <= time.monotonic() - started < 4 * SOON
    assert ids_of(three.run(inputs_of(3))) == ["group-broken"] * 3


def test_a_deadline_says_who_is_waited_for(three):
    three.fail_on("dead@1:1=1")
    texts = [text_of(error) for error in three.run(inputs_of(3))]
    waiting = "step 1 of call 1, which awaits ranks 1, 2, did not end within the deadline of 4 s"
    failed = "step 1 of call 1, which awaits ranks 1, 2, failed"
    assert texts[0].startswith((waiting, failed))


def test_a_rank_that_never_comes():
    unit = interpreter()
    unit.bind(str(engine()), str(engine()))
    device = Device(0)
    with pytest.raises(SynchronisationError, match=r"not all 2 ranks came together within 0.2 s"):
        unit.open_communicator(unit.unique_id(), 2, 0, 0.2)
    device.close()


def test_no_memory_anywhere(alone):
    """Any allocation fails: the call reports it, and the next one is right."""
    (tensor,) = inputs_of(1)
    device, attempts = alone.ranks[0].device, 0
    while True:
        device.left = attempts
        (found,) = alone.run([tensor])
        device.left = None
        if isinstance(found, Result):
            break
        assert isinstance(found, TensorError) and ids_of([found]) == ["out-of-memory"]
        attempts += 1
    assert attempts >= 3
    assert same_bits([found.tensor, alone.run([tensor])[0].tensor])


def test_more_units_than_ranks_can_count(alone):
    (tensor,) = inputs_of(1)
    (found,) = alone.run([tensor], units=[1 << 37])
    assert ids_of([found]) == ["out-of-memory"] and "fewer than 2^37" in str(found)
    assert isinstance(alone.run([tensor])[0], Result), "nothing has begun"


def test_no_memory_on_one_rank(three):
    three.ranks[1].device.left = 0
    errors = three.run(inputs_of(3))
    assert ids_of(errors)[1] == "out-of-memory"
    assert set(ids_of([errors[0], errors[2]])) <= {"deadline", "peer-lost"}


def test_no_memory_is_asked_for_while_a_late_peer_keeps_messages_under_way():
    """The emulator makes that an error, since CUDA may wait for these messages then, and nothing ends that."""
    units, many = 1 << 19, 1 << 14
    ids = [torch.tensor([[7]]), torch.tensor([[8]]), torch.arange(many)[None]]
    tensors = [torch.sparse_coo_tensor(of, torch.ones(of.numel()), (units,), check_invariants=False) for of in ids]
    with Emulated(plan_of_shipped("agsparse"), 3) as ranks:
        late = ranks.ranks[2].device
        allocate = late.allocate_for_call

        def later(size: int) -> int:
            time.sleep(0.2)
            return allocate(size)

        late.allocate_for_call = later  # for its body, whose length the others know by then
        found = ranks.run(tensors)
    assert all(isinstance(one, Result) for one in found), found
    assert same_bits([one.tensor for one in found])


def test_no_memory_for_the_result(three):
    """The others have the sum, unless the last messages were still on their way when this rank gave up."""
    three.ranks[1].device.left = 1
    first, second, third = three.run(inputs_of(3))
    assert ids_of([second]) == ["out-of-memory"]
    summed = [other for other in (first, third) if isinstance(other, Result)]
    assert len(summed) < 2 or same_bits([other.tensor for other in summed])
    lost = ids_of([other for other in (first, third) if not isinstance(other, Result)])
    assert set(lost) <= {"deadline", "peer-lost"}
    three.ranks[1].device.left = None
    found = ids_of(three.run(inputs_of(3)))
    assert found[1] == "group-broken" and {found[0], found[2]} <= {"deadline", "peer-lost", "group-broken"}


@pytest.mark.parametrize("unit", [63, -1])
def test_a_unit_out_of_range(three, unit):
    tensors = inputs_of(3)
    ids = tensors[1]._indices().clone()
    ids[0, 4] = unit
    tensors[1] = torch.sparse_coo_tensor(ids, tensors[1]._values(), tensors[1].shape, check_invariants=False)
    errors = three.run(tensors)
    assert isinstance(errors[1], TensorError)
    assert text_of(errors[1]) == "the unit id at position 4 is out of range (scheme balanced)"
    assert set(ids_of([errors[0], errors[2]])) <= {"deadline", "peer-lost"}


@pytest.mark.parametrize("function", ["cuLaunchKernel", "cuMemsetD8Async", "cuEventRecord"])
def test_a_function_of_cuda_fails(alone, function):
    alone.fail_on(f"{function}:1=700")
    (error,) = alone.run(inputs_of(1))
    assert ids_of([error]) == ["cuda-failed"]
    assert function in text_of(error)
    alone.fail_on("")
    assert isinstance(alone.run(inputs_of(1))[0], Result)


def test_no_pinned_memory(alone):
    alone.ranks[0].device.use()
    alone.fail_on("cuMemHostAlloc:1=2")
    with pytest.raises(SynchronisationError, match="cuMemHostAlloc failed: CUDA_ERROR_OUT_OF_MEMORY"):
        alone.unit.open_communicator(None, 1, 0, 1.0)


def test_a_function_of_nccl_fails(three):
    three.fail_on("ncclSend@2:2=3")
    errors = three.run(inputs_of(3))
    assert ids_of(errors)[2] == "peer-lost" and text_of(errors[2]).startswith(
        "a group of messages, which awaits ranks 0, 1, failed"
    )


def test_what_was_not_launched_is_not_sent(three):
    """The refused launch counts the units to be sent, and is held back until then."""
    sent = Libraries().calls("ncclSend", 1)
    three.fail_on("cuLaunchKernel@1:1=701")
    assert ids_of(three.run(inputs_of(3))) == ["peer-lost", "cuda-failed", "peer-lost"]
    assert Libraries().calls("ncclSend", 1) == sent


def test_what_is_no_segment_is_found():
    """A rank takes another's bitmap for a list of slots of the same length."""
    of_format = "scheme mine {{ communication: point_to_point aggregation: incremental partition: parallelism "
    of_format += "balance: imbalanced push: {0} pull: {0} }}"
    plans = [plan_of(of_format.format(name)) for name in ("coo", "bitmap")]
    programs = [lower(plan, 2, rank) for rank, plan in enumerate(plans)]
    ids = torch.tensor([[1, 2, 3, 120, 130, 131, 140, 250]])
    tensor = torch.sparse_coo_tensor(ids, torch.ones(8), (256,), check_invariants=False)
    with Emulated(plans[0], 2, SOON, programs) as ranks:
        errors = ranks.run([tensor, tensor])
    assert ids_of(errors) == ["corrupt-segment"] * 2
    assert "part 0 from rank 1 is not the segment that was announced" in text_of(errors[0])


def test_a_sequence_is_for_its_own_ranks():
    plan = plan_of_shipped("balanced")
    with Emulated(plan, 2, SOON, [lower(plan, 2, 1)] * 2) as ranks:
        errors = ranks.run(inputs_of(2))
    assert ids_of(errors)[0] == "group-broken"
    assert "this sequence is not for rank 0 of 2" in text_of(errors[0])


def test_parts_cut_by_encoded_sizes_have_tables_without_a_loss():
    """A sequence that is played alone keeps nothing of the call before: parts are ranges then."""
    cut = DevicePartitions(plan_of_shipped("oscar_hw").mapping, 2, interpreter(), lambda _: (0, None)).of(2011, 1)
    assert list(cut.part_slots) == [1006, 1005] and cut.part_bytes is not None
    with Emulated(plan_of_shipped("oscar_hw"), 2, SOON) as ranks:
        found = ranks.run([torch.ones(2011) for _ in range(2)])
    assert "tables" not in text_of(found[0])  # packed; the kernels of its code are of another unit, which is not here


def test_kernels_that_read_tables_are_not_launched_without():
    with Emulated(plan_of_shipped("zen"), 2, SOON) as ranks:
        found = ranks.run(inputs_of(2), tables=[None, None])
    assert ids_of(found) == ["cuda-failed"] * 2
    assert "tables" in text_of(found[0])


def test_the_kernel_at_fault_is_named(alone, monkeypatch):
    """A wait after each launch finds it, where that is asked for; else a failure shows at the end."""
    alone.fail_on("cuEventQuery:1=719")
    assert "the end of call" in text_of(alone.run(inputs_of(1))[0])
    monkeypatch.setenv("ZENC_GPU_CHECK", "1")
    alone.fail_on("cuEventQuery:1=719")
    found = text_of(alone.run(inputs_of(1))[0])
    assert "of zenc_" in found and "LAUNCH_FAILED" in found
