"""Kernels of compression against independent references in numpy."""

import math
from array import array
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.fuzz import tried
from tests.targets.conftest import Dtype
from zenc.errors import InternalError, SynchronisationError
from zenc.runtime.lossy.kernels import CompressionKernels, compression_kernels, shared_exponent
from zenc.scheme.compression import CODES, Code, Fixed, Float8, Integers, OneBit, RandomLevels, Rounded, Sign, Ternary
from zenc.wire.codes import CHUNK, NOT_FINITE, is_static, most_encoded_bytes

DTYPES = {"f32": Dtype("f32", np.float32), "f16": Dtype("f16", np.float16), "bf16": Dtype("bf16", np.uint16)}
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 1e-45, -1e-40, 3e38, -3e38, np.inf, -np.inf, np.nan, 65504.0], np.float32)
SIZES = st.sampled_from([1, 2, 7, 63, 64, 65, 511, 512, 513, 1000, 4096, 4097, 5003])
BLOCK_CODES: list[Code] = [
    *(made() for made in CODES.values() if made not in (Rounded, Fixed)), Integers(3, 24), Integers(16, 1000),
    RandomLevels(1, 8), Sign(9), OneBit(1000), Ternary(11), Rounded("f16"), Rounded("bf16"),
    Rounded("f16", "chance"), Rounded("bf16", "chance"),
]  # fmt: skip


@pytest.fixture(scope="module")
def kernels() -> CompressionKernels:
    return compression_kernels()


def at(array: np.ndarray) -> int:
    return array.ctypes.data


def magnitudes(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float32).view(np.uint32) & 0x7FFFFFFF


@dataclass
class Drawn:
    """Values of a kind: normal, of few sizes, special ones among them, all zero."""

    values: np.ndarray

    @classmethod
    def of(cls, n: int, seed: int, kind: str) -> np.ndarray:
        rng = np.random.default_rng(seed)
        values = (rng.standard_normal(n) * np.exp(2 * rng.standard_normal(n))).astype(np.float32)
        if kind == "ties":
            values = rng.integers(-3, 4, n).astype(np.float32)
        if kind == "special":
            values[rng.random(n) < 0.2] = rng.choice(SPECIAL, (rng.random(n) < 0.2).sum() or 1)[0]
            values[rng.integers(0, n, max(1, n // 9))] = rng.choice(SPECIAL, max(1, n // 9))
        return values * 0 if kind == "zeros" else values


KINDS = st.sampled_from(["normal", "ties", "special", "zeros"])
SEEDS = st.integers(0, 1000)


def test_philox_says_what_its_authors_say(kernels: CompressionKernels) -> None:
    """Random123 1.14 publishes these answers for philox4x32-10."""
    out, ones = np.empty(4, np.uint32), (1 << 64) - 1
    kernels.philox(0, 0, 0, at(out))
    assert [hex(word) for word in out] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]
    kernels.philox(ones, ones, ones, at(out))
    assert [hex(word) for word in out] == ["0x408f276d", "0x41c83b0e", "0xa20bc7c6", "0x6d5451fd"]
    kernels.philox(0x299F31D0A4093822, 0x85A308D3243F6A88, 0x0370734413198A2E, at(out))
    assert [hex(word) for word in out] == ["0xd16cfe09", "0x94fdcceb", "0x5001e420", "0x24126ea1"]


# ---- Codes


def run(
    kernels: CompressionKernels, code: Code, dtype: str, stored: np.ndarray, key: int = 0
) -> tuple[bytes, np.ndarray, np.ndarray]:
    """Return the bytes of ``stored``, their meaning, and the loss."""
    n, decoded, loss = len(stored), stored.copy(), np.ones(len(stored), np.float32)
    out = np.zeros(most_encoded_bytes(code, n) + 8, np.uint8)
    size = kernels.encode(code, dtype, n, at(decoded), at(out), at(decoded), at(loss), key)
    assert size == most_encoded_bytes(code, n) and not out[size:].any()
    again = np.empty_like(stored)
    kernels.decode(code, dtype, n, at(out), size, at(again))
    assert again.tobytes() == decoded.tobytes()
    return out[:size].tobytes(), decoded, loss


def blocks_of(code: Code, n: int) -> list[slice]:
    block = getattr(code, "block", 1)
    return [slice(first, min(first + block, n)) for first in range(0, n, block)]


@settings(max_examples=tried(80), deadline=None)
@given(st.sampled_from(BLOCK_CODES), SIZES, SEEDS, KINDS, st.sampled_from(list(DTYPES)))
@example(Integers(8, 8), 2049, 0, "special", "f32")
def test_codes_lose_what_they_add_to_the_loss(code: Code, n: int, seed: int, kind: str, dtype: str) -> None:
    kernels, of = compression_kernels(), DTYPES[dtype]
    stored = of.narrow(Drawn.of(n, seed, kind))
    encoded, decoded, loss = run(kernels, code, dtype, stored, key=seed)
    values, meant = of.widen(stored).astype(np.float32), of.widen(decoded).astype(np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        np.testing.assert_array_equal(loss, np.float32(1) + (values - meant))
    for block in blocks_of(code, n):
        finite = np.isfinite(values[block]).all()
        norm = np.sqrt((values[block].astype(np.float64) ** 2).sum())
        if not isinstance(code, Rounded) and (not finite or (norm < 1e38 and dtype == "f32")):
            assert np.isfinite(meant[block]).all() == finite
            assert finite or np.isnan(meant[block]).all()
    if dtype == "f32" and isinstance(code, Integers | Float8 | Sign | OneBit | Rounded) and kind == "normal":
        assert run(kernels, code, dtype, decoded)[0] == encoded


@pytest.mark.parametrize("bits", [2, 3, 8, 13, 16])
def test_integers_are_the_nearest_multiples_of_a_step(kernels: CompressionKernels, bits: int) -> None:
    values = Drawn.of(3000, bits, "normal")
    encoded, decoded, _ = run(kernels, Integers(bits, 1000), "f32", values)
    levels = (1 << (bits - 1)) - 1
    for block in blocks_of(Integers(bits, 1000), 3000):
        exact, meant = values[block].astype(np.float64), decoded[block].astype(np.float64)
        step = abs(exact).max() / levels
        assert abs(exact - meant).max() <= step * (0.5 + 2.0 ** (bits - 22))
        used = np.frombuffer(encoded, np.float32, 3)[block.start // 1000]
        np.testing.assert_array_equal(np.rint(meant / used) * used, meant)


@settings(max_examples=tried(40), deadline=None)
@given(SEEDS, st.integers(-160, 120))
@example(0, 119)
def test_fp8_is_the_cast_of_torch_times_a_power_of_two(seed: int, exponent: int) -> None:
    """Values are normal, all that e4m3 has, and those between two neighbours, up to 448 or what rounds to it."""
    grid = torch.arange(127, dtype=torch.uint8).view(torch.float8_e4m3fn).float().numpy()
    exact = np.concatenate(
        [grid, -grid, (grid[1:] + grid[:-1]) / 2, [464.0] * (seed % 2), Drawn.of(500, seed, "normal")]
    )
    values = np.ldexp(exact, exponent).astype(np.float32).clip(-3e38, 3e38)
    encoded, decoded, _ = run(compression_kernels(), Float8(), "f32", values)
    (scale,) = np.frombuffer(encoded, np.float32, 1).astype(np.float64)
    greatest = abs(values.astype(np.float64)).max()
    assert greatest <= 464 * scale or scale == 2.0**119
    assert greatest > 232 * scale or scale == 2.0**-126
    cast = torch.from_numpy((values / scale).clip(-448, 448)).to(torch.float8_e4m3fn)
    assert encoded[4:] == cast.view(torch.uint8).numpy().tobytes()
    np.testing.assert_array_equal(decoded, cast.double().numpy() * scale)


def test_every_byte_of_fp8_means_what_it_means_to_torch(kernels: CompressionKernels) -> None:
    every, meant = np.arange(256, dtype=np.uint8), np.empty(256, np.float32)
    data = np.concatenate([np.float32([1]).view(np.uint8), every])
    kernels.decode(Float8(), "f32", 256, at(data), len(data), at(meant))
    np.testing.assert_array_equal(meant, torch.from_numpy(every).view(torch.float8_e4m3fn).float().numpy())
    assert (np.signbit(meant) == (every > 127))[~np.isnan(meant)].all() and set(meant[127::128].view(np.uint32)) == {
        0x7FC00000
    }


def test_signs_and_means(kernels: CompressionKernels) -> None:
    values = Drawn.of(2000, 4, "normal")
    values[:10] = [0.0, -0.0] * 5
    _, decoded, _ = run(kernels, Sign(1000), "f32", values)
    _, means, _ = run(kernels, OneBit(1000), "f32", values)
    for block in blocks_of(Sign(1000), 2000):
        part, negative = values[block].astype(np.float64), values[block] < 0
        assert np.allclose(decoded[block], np.where(negative, -1, 1) * abs(part).mean(), rtol=1e-6)
        assert np.allclose(means[block], np.where(negative, part[negative].mean(), part[~negative].mean()), rtol=1e-6)


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_numbers_are_rounded_by_chance_so_that_their_mean_is_right(kernels: CompressionKernels, name: str) -> None:
    """Numbers have either sign, are denormal, or could leave the range; each is rounded to a neighbour."""
    values = np.float32([1.005, 2.01, -0.3, 3e-6, -7e-8, 1e-5, 65503.0, -65510.0, 1.5, 0.0]).repeat(40_000)
    meant = run(kernels, Rounded(name, "chance"), "f32", values, key=3)[1].astype(np.float64).reshape(10, -1)
    for value, found in zip(values[::40_000].astype(np.float64), meant, strict=True):
        sides = np.unique(found)
        assert (len(sides) <= 2 and sides[0] <= value <= sides[-1]) or abs(value) > 65504
        assert np.isfinite(found).all()
        assert abs(found.mean() - value) <= 5.5 * (sides[-1] - sides[0]) / 2 / 200 or abs(value) > 65504


@pytest.mark.parametrize("code", [RandomLevels(4, 512), Ternary(512), RandomLevels(300, 8)])
def test_random_codes_have_the_right_mean(kernels: CompressionKernels, code: Code) -> None:
    values, draws = Drawn.of(1024, 8, "normal").clip(-3, 3), 400
    meant = np.array([run(kernels, code, "f32", values, key)[1] for key in range(draws)], np.float64)
    for block in blocks_of(code, 1024):
        steps = np.diff(np.unique(meant[:, block]))
        assert np.allclose(steps, steps[0], rtol=1e-3) or not isinstance(code, Ternary)
        error = abs(meant[:, block].mean(axis=0) - values[block]).max()
        assert error < 5.5 * steps.min() / 2 / np.sqrt(draws)
        assert abs(meant[:, block] - values[block]).max() <= steps.min() * 1.001


def test_fixed_points_come_back_exactly(kernels: CompressionKernels) -> None:
    rng = np.random.default_rng(0)
    multiples = rng.integers(-127, 128, 4096).astype(np.float32) * np.float32(0.25)
    multiples[::8] = 127 * 0.25
    signs = rng.choice(np.float32([-0.37, 0.37]), 4096)
    three = rng.choice(np.float32([-0.37, 0, 0.37]), 4096)
    three[::8] = 0.37
    for code, values in ((Integers(8, 8), multiples), (Sign(100), signs), (OneBit(100), signs), (Ternary(8), three)):
        np.testing.assert_array_equal(run(kernels, code, "f32", values, key=9)[1], values)


# ---- Fixed point and the coder


def coded(kernels: CompressionKernels, numbers: np.ndarray, bits: int, contributions: int, coder: str) -> bytes:
    """Return the bytes of ``numbers`` / 8, which are read again."""
    code, n, values = Fixed(bits, coder), len(numbers), (numbers / 8).astype(np.float32)
    out, back = np.zeros(most_encoded_bytes(code, n, contributions) + 64, np.uint8), np.empty(n, np.float32)
    size = kernels.encode(code, "f32", n, at(values), at(out), contributions=contributions)
    assert size <= most_encoded_bytes(code, n, contributions) and not out[size:].any()
    kernels.decode(code, "f32", n, at(out), size, at(back), contributions)
    np.testing.assert_array_equal(back, values)
    return out[:size].tobytes()


@settings(max_examples=tried(60), deadline=None)
@given(
    st.integers(1, 40_000),
    SEEDS,
    st.integers(2, 16),
    st.integers(1, 300),
    st.sampled_from(["flat", "peaked", "extreme", "constant", "changing"]),
)
def test_integers_come_back_from_both_coders(n: int, seed: int, bits: int, contributions: int, kind: str) -> None:
    kernels, rng, most = compression_kernels(), np.random.default_rng(seed), contributions * ((1 << (bits - 1)) - 1)
    numbers = {
        "flat": lambda: rng.integers(-most, most + 1, n),
        "peaked": lambda: np.rint(rng.laplace(0, max(0.3, most / 100), n)),
        "extreme": lambda: rng.choice([-most, most], n),
        "constant": lambda: np.full(n, most),
        "changing": lambda: np.where(np.arange(n) // 999 % 2, 0, rng.integers(-most, most + 1, n)),
    }[kind]()
    numbers = numbers.clip(-most, most)
    for coder in ("none", "asc"):
        size = len(coded(kernels, numbers, bits, contributions, coder))
        assert 0 < size <= most_encoded_bytes(Fixed(bits, coder), n, contributions)


def test_the_coder_is_near_the_entropy(kernels: CompressionKernels) -> None:
    numbers = np.rint(np.random.default_rng(1).laplace(0, 3, 4 * CHUNK)).clip(-127, 127)
    _, counts = np.unique(numbers, return_counts=True)
    share = counts / counts.sum()
    size = len(coded(kernels, numbers, 8, 1, "asc"))
    assert size < 1.03 * -(share * np.log2(share)).sum() * len(numbers) / 8
    assert len(coded(kernels, numbers * 0, 8, 1, "asc")) < len(numbers) / 100


def test_cut_and_wrong_streams_are_refused(kernels: CompressionKernels) -> None:
    rng, n = np.random.default_rng(3), CHUNK + 100
    numbers, back = np.rint(rng.laplace(0, 3, n)).clip(-127, 127), np.empty(n, np.float32)
    whole = np.frombuffer(coded(kernels, numbers, 8, 1, "asc"), np.uint8)
    code = Fixed(8, "asc")
    for size in [0, 1, 15, 16, 24, *rng.integers(24, len(whole), 40)]:
        cut = whole[:size].copy()
        with pytest.raises(SynchronisationError, match="can't be read"):
            kernels.decode(code, "f32", n, at(cut), int(size), at(back))
    refused = 0
    for place in rng.integers(0, len(whole), 300):
        wrong = whole.copy()
        wrong[place] ^= 1 << rng.integers(0, 8)
        try:
            kernels.decode(code, "f32", n, at(wrong), len(wrong), at(back))
        except SynchronisationError:
            refused += 1
    assert refused > 30  # of others the values differ: integrity is the transport's
    with pytest.raises(SynchronisationError, match="can't be read"):
        kernels.decode(Sign(64), "f32", 100, at(whole), 3, at(back))


@settings(max_examples=tried(30), deadline=None)
@given(SIZES, SEEDS, st.integers(2, 16), st.sampled_from(["normal", "ties", "zeros"]))
def test_quantising_loses_less_than_a_step(n: int, seed: int, bits: int, kind: str) -> None:
    kernels, code, values = compression_kernels(), Fixed(bits), Drawn.of(n, seed, kind)
    exponent = shared_exponent(code, float(abs(values).max()))
    left, out = values.copy(), np.empty(n, np.float32)
    kernels.quantise_fixed(code, "f32", n, at(left), exponent, at(out))
    numbers = out.astype(np.float64) / 2.0**exponent
    assert (numbers == np.rint(numbers)).all() and abs(numbers).max() < 1 << (bits - 1)
    np.testing.assert_array_equal(left, values - out)
    assert (abs(left) <= 2.0**exponent / 2).all()
    assert not values.any() or abs(values).max() > ((1 << (bits - 1)) - 1) * 2.0 ** (exponent - 1)


def test_fixed_values_that_are_none(kernels: CompressionKernels) -> None:
    code, values, out = Fixed(8), np.float32([1, np.nan, 2]), np.zeros(64, np.uint8)
    back = np.zeros(3, np.float32)
    for coder in (code, Fixed(8, "asc")):
        size = kernels.encode(coder, "f32", 3, at(values), at(out))
        kernels.decode(coder, "f32", 3, at(out), size, at(back))
        assert np.isnan(back).all()
        for wrong in (128.5, 1e-40, 3e38):
            none = np.float32([wrong, 1])
            with pytest.raises(InternalError):
                kernels.encode(coder, "f32", 2, at(none), at(out))
    assert shared_exponent(code, float("nan")) == NOT_FINITE and not is_static(Fixed(8, "asc"))
    assert [kernels.is_finite("f32", 3, at(values)), kernels.is_finite("f32", 1, at(values))] == [False, True]


# ---- The same units on all ranks


def test_drawn_units_are_one_of_each_stretch(kernels: CompressionKernels) -> None:
    for n, k in ((1, 1), (10, 10), (1000, 7), (100_003, 1000)):
        units = np.empty(k, np.int64)
        kernels.draw_units(n, k, 5, at(units))
        assert (units // 1 >= [i * n // k for i in range(k)]).all()
        assert (units < [(i + 1) * n // k for i in range(k)]).all()
    values = Drawn.of(3000, 1, "normal")
    left, out = values.copy(), np.empty((100, 3), np.float32)
    units = np.empty(100, np.int64)
    kernels.draw_units(1000, 100, 1, at(units))
    kernels.take_units("f32", at(units), 100, at(left), at(out), width=3)
    np.testing.assert_array_equal(out, values.reshape(1000, 3)[units])
    left.reshape(1000, 3)[units] += out
    np.testing.assert_array_equal(left, values)


@pytest.mark.parametrize("rows", [1, 3, 4, 5])
def test_sketches_are_linear_and_find_heavy_units(kernels: CompressionKernels, rows: int) -> None:
    n, cells = 5003, 700
    values = np.zeros(n, np.float32)
    heavy = np.random.default_rng(rows).choice(n, 12, replace=False)
    values[heavy] = np.arange(20, 32)

    def sketched(of: np.ndarray) -> np.ndarray:
        out = np.empty((rows, cells), np.float32)
        kernels.sketch(at(of), n, rows, cells, 3, at(out))
        return out

    both, other = sketched(values), sketched(values[::-1].copy())
    np.testing.assert_array_equal(both + other, sketched(values + values[::-1]))
    out = np.empty(n, np.float32)
    kernels.query_sketch("f32", n, at(both), rows, cells, 3, at(out))
    assert (abs(out[heavy] - values[heavy]) < (0.01 if rows > 1 else 32)).mean() > 0.8
    assert np.isnan(sketched(np.where(values == 23, np.nan, values).astype(np.float32))).sum() >= rows * cells // 2


def test_estimates_that_stand_out_of_the_noise_are_kept_and_others_are_damped(kernels: CompressionKernels) -> None:
    """Both sides of the border follow the formula in plain numbers."""
    units, cells = 500, 64
    values, out = np.random.default_rng(1).standard_normal(units).astype(np.float32), np.empty(units, np.float32)
    values[[100, 333]] = 60, -60
    sketched = np.empty(cells, np.float32)
    kernels.sketch(at(values), units, 1, cells, 3, at(sketched))
    kernels.query_sketch("f32", units, at(sketched), 1, cells, 3, at(out))
    border = math.sqrt(np.square(sketched, dtype=np.float64).mean() * math.log(4) * units.bit_length())
    kept = abs(out) >= border
    assert kept[[100, 333]].all() and not kept.all()
    found = np.where(kept, abs(out), abs(out) * (cells + units) / cells)
    assert (abs(found[:, None] - abs(sketched)) < 1e-4 * border).any(axis=1).all(), "each is the value of a cell"


def test_a_basis_is_orthonormal_also_of_vectors_that_depend_on_each_other(kernels: CompressionKernels) -> None:
    vectors = np.random.default_rng(0).standard_normal((5, 40)).astype(np.float32)
    vectors[1], vectors[2], vectors[3] = 3 * vectors[0], 0, vectors[0] + 1e-9 * vectors[4]
    kernels.orthonormalise(at(vectors), 5, 40, 7)
    np.testing.assert_allclose(vectors @ vectors.T, np.eye(5), atol=1e-6)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize(("rows", "columns", "r"), [(1, 1, 1), (7, 33, 3), (40, 64, 4), (5, 700, 5)])
@pytest.mark.parametrize("of_rows", [True, False])
def test_factors_are_taken_and_expanded(
    kernels: CompressionKernels, dtype: str, rows: int, columns: int, r: int, of_rows: bool
) -> None:
    """A matrix has a factor, and a vector behind it is sent whole; sums are divided as torch does."""
    chance, count = np.random.default_rng(rows), rows * columns + 9
    given, kept = torch.from_numpy(chance.standard_normal((2, count)).astype(np.float32))
    given = given if dtype == "f32" else given.bfloat16()
    basis = torch.from_numpy(chance.standard_normal((r, columns if of_rows else rows)).astype(np.float32))
    tensors = array("q", [rows, columns, r, of_rows, basis.data_ptr(), 1, 9, 0, 1, 0])
    left, sent = torch.full((count,), torch.nan), torch.full((r * (rows if of_rows else columns) + 9,), torch.nan)
    into = given.data_ptr(), kept.data_ptr(), left.data_ptr(), sent.data_ptr()
    (found, rest), total = kernels.take_factors(dtype, tensors, *into), kept + given.float()
    matrix, factor = total[:-9].view(rows, columns).double(), sent[:-9].view(r, -1).double()
    assert found.finite and found.squares == pytest.approx(float(given.double().square().sum()))
    torch.testing.assert_close(factor, basis.double() @ (matrix.T if of_rows else matrix), rtol=1e-5, atol=1e-4)
    product = factor.T @ basis.double() if of_rows else basis.double().T @ factor
    torch.testing.assert_close(left[:-9].view(rows, columns).double(), matrix - product, rtol=1e-5, atol=1e-4)
    assert torch.equal(sent[-9:], total[-9:]) and not left[-9:].any()
    assert rest == pytest.approx(float(left.double().square().sum()))
    out, exact = torch.full((count,), torch.nan), torch.zeros(count)
    assert kernels.expand_factors(tensors, sent.data_ptr(), 3, out.data_ptr())
    pair = (sent, basis) if of_rows else (basis, sent)
    kernels.add_product(pair[0].data_ptr(), pair[1].data_ptr(), r, (rows, columns), 1.0, exact.data_ptr())
    exact[-9:] = sent[-9:]
    assert torch.equal(out, exact.div_(3))
    sent[-1] = torch.inf
    assert not kernels.expand_factors(tensors, sent.data_ptr(), 1, out.data_ptr())


def test_history_is_a_moving_average(kernels: CompressionKernels) -> None:
    result, history = torch.randn(1000).bfloat16(), np.ones(1000, np.float32)
    kernels.remember("bf16", 1000, result.data_ptr(), 0.75, at(history))
    np.testing.assert_allclose(history, 0.75 + 0.25 * result.abs().float().numpy(), rtol=1e-6)
