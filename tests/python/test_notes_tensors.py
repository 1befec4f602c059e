"""The notes' assertions on tensors, dtypes, memory and devices, as Python says them: one test an A-line."""
import math

import pytest
import tally


def test_A001_tensor_from_nested_lists():
    x = tally.tensor([[1., 2, 3], [4, 5, 6]])
    assert x.shape == (2, 3) and x.dtype == tally.float32 and x.numel() == 6


def test_A002_zeros_and_ones():
    assert tally.zeros(4, 8).shape == (4, 8) and not tally.zeros(4, 8).any()
    assert (tally.ones(4, 8) == 1).all() and tally.ones(4, 8).sum().item() == 32


def test_A003_randn():
    x = tally.randn(100, 1000)
    assert x.dtype == tally.float32 and abs(x.mean().item()) < 0.02 and abs(x.var().item() - 1) < 0.02


def test_A004_empty():
    x = tally.empty(4, 8)
    assert x.shape == (4, 8) and x.dtype == tally.float32


def test_A005_trunc_normal():
    x = tally.empty(1000, 100)
    y = tally.nn.init.trunc_normal_(x, mean=0, std=1, a=-2, b=2)
    assert y is x and x.min().item() >= -2 and x.max().item() <= 2
    assert abs(x.std().item() - 0.8796) < 0.01


def test_A006_tails_of_the_normal():
    x = tally.randn(1_000_000)
    assert abs((x.abs() > 2).float().mean().item() - 0.0455) < 0.001
    assert abs((x.abs() > 3).float().mean().item() - 0.0027) < 0.0003


def test_A007_arange():
    x = tally.arange(16, dtype=tally.float32)
    assert x.tolist() == [float(i) for i in range(16)] and x.pow(2).sum().item() == 1240


def test_A008_equal_promotes():
    x = tally.tensor([[1., 2, 3], [4, 5, 6]])
    assert tally.equal(x.view(3, 2), tally.tensor([[1, 2], [3, 4], [5, 6]]))
    assert not tally.equal(x, tally.tensor([[1, 2, 3], [4, 5, 7]]))


def test_A009_size():
    x = tally.zeros(2, 3)
    assert x.size() == tally.Size([2, 3]) and x.size() == (2, 3) and type(x.size()) is type(x.shape) is tally.Size


def test_A010_truth_of_one_element():
    x = tally.tensor([0.])
    assert x == 0
    assert not bool(x != 0)
    with pytest.raises(RuntimeError, match="ambiguous"):
        bool(tally.zeros(2) == 0)


def test_A011_reshape_infers():
    x = tally.randn(4, 4)
    assert x.numel() == 16 and x.reshape(2, -1).shape == (2, 8)


def test_A012_broadcasting():
    assert (tally.ones(4, 1, 3) + tally.ones(2, 1)).shape == (4, 2, 3)
    with pytest.raises(RuntimeError, match=r"\(2,\).*\(3,\)|broadcast"):
        tally.ones(2) + tally.ones(3)


def test_A013_broadcast_over_the_batch():
    b, t, d = 2, 3, 4
    x, y = tally.randn(b, t, d), tally.randn(t, d)
    z = x + y
    assert z.shape == (b, t, d) and all(tally.equal(z[i], x[i] + y) for i in range(b))


def test_A015_shapes_of_a_transformer():
    b, t, v, h, d = 2, 5, 11, 2, 8
    ids = tally.randint(0, v, (b, t))
    x = tally.nn.functional.embedding(ids, tally.randn(v, d))
    assert x.shape == (b, t, d)
    q = x.view(b, t, h, d // h).transpose(1, 2)
    assert q.shape == (b, h, t, d // h) and (q @ q.transpose(-2, -1)).shape == (b, h, t, t)
    assert (x @ tally.randn(d, v)).shape == (b, t, v)


def test_A016_heads_divide_the_width():
    for width, heads, head in ((768, 12, 64), (12288, 96, 128)):
        x = tally.empty(1, width, device="meta")
        assert x.view(1, heads, -1).shape == (1, heads, head)


def test_A017_heads_by_view_and_transpose():
    b, t, h, d = 1, 3, 2, 2
    x = tally.arange(b * t * h * d).view(b, t, h * d)
    right, wrong = x.view(b, t, h, d).transpose(1, 2), x.view(b, h, t, d)
    assert right.shape == wrong.shape and not tally.equal(right, wrong)
    assert right[0, 1, 2].tolist() == x[0, 2, 2:4].tolist()


def test_A018_transpose_swaps_two_axes():
    x = tally.zeros(2, 3, 4)
    y = x.transpose(0, 2)
    assert y.shape == (4, 3, 2) and y.stride() == (1, 4, 12)


def test_A019_slip_logits_are_log_probabilities():
    logits = tally.tensor([[1., 2, 3]])
    p = tally.softmax(logits, dim=-1)
    shift = p.log() - logits
    assert abs(p.sum().item() - 1) < 1e-6 and (shift.max() - shift.min()).item() < 1e-6


def test_A020_default_dtype():
    assert tally.zeros(4, 8).dtype == tally.float32 and tally.zeros(4, 8).element_size() == 4


def test_A021_sizes_of_dtypes():
    for dtype, size in ((tally.float16, 2), (tally.bfloat16, 2), (tally.float8_e4m3fn, 1), (tally.float8_e5m2, 1)):
        assert tally.zeros(4, 8, dtype=dtype).element_size() == size


@pytest.mark.parametrize("dtype,exponent,fraction", [("float32", 8, 23), ("float16", 5, 10), ("bfloat16", 8, 7)])
def test_A022_A023_A024_A025_layouts(dtype, exponent, fraction):
    info = tally.finfo(getattr(tally, dtype))
    bias = 2 ** (exponent - 1) - 1
    assert info.bits == 1 + exponent + fraction and info.eps == 2.0 ** -fraction
    assert info.tiny == 2.0 ** (1 - bias) and info.max == 2.0 ** bias * (2 - 2.0 ** -fraction)


def test_A026_largest_float32():
    assert tally.finfo(tally.float32).max == 3.4028234663852886e38


def test_A027_slip_formula_of_the_largest_float32():
    assert tally.finfo(tally.float32).max == 2.0 ** 127 * (1 + (2 ** 23 - 1) / 2 ** 23)


def test_A028_most_negative_float32():
    assert tally.finfo(tally.float32).min == -3.4028234663852886e38


def test_A029_largest_float16():
    assert tally.finfo(tally.float16).max == 65504
    assert tally.tensor([65504.], dtype=tally.float16).view(tally.int16).item() == 0x7BFF


def test_A030_most_negative_float16():
    assert tally.finfo(tally.float16).min == -65504
    assert tally.tensor([-65504.], dtype=tally.float16).view(tally.int16).item() & 0xFFFF == 0xFBFF


def test_A031_slip_minimum_is_not_tiny():
    assert tally.finfo(tally.float32).tiny == 2.0 ** -126 and tally.finfo(tally.float16).tiny == 2.0 ** -14


def test_A032_float16_underflows():
    assert tally.tensor([1e-8], dtype=tally.float16) == 0


def test_A033_bfloat16_does_not():
    x = tally.tensor([1e-8], dtype=tally.bfloat16)
    assert x != 0
    assert x.view(tally.int16).item() == 0x322C and x.item() == 1.0011717677116394e-08


def test_A034_float32_of_1e_8():
    assert tally.tensor(1e-8).item() == 9.99999993922529e-09


def test_A035_A036_float16_boundaries():
    def half(v):
        return tally.tensor([v]).to(tally.float16).item()
    assert half(2.0 ** -25) == 0 and half(2.0 ** -25 * 1.001) == 2.0 ** -24
    assert half(65519.0) == 65504 and half(65520.0) == math.inf


@pytest.mark.parametrize("dtype,expected", [
    ("float32", (3.4028235e38, 1.1754944e-38, 2.0 ** -23, 1.4013e-45, 32)),
    ("float16", (65504, 2.0 ** -14, 2.0 ** -10, 5.9605e-08, 16)),
    ("bfloat16", (3.3895313892515355e38, 1.1754944e-38, 2.0 ** -7, 9.1835e-41, 16))])
def test_A037_A038_A039_finfo(dtype, expected):
    i = tally.finfo(getattr(tally, dtype))
    for found, wanted in zip((i.max, i.tiny, i.eps, i.smallest_subnormal, i.bits), expected):
        assert found == pytest.approx(wanted, rel=1e-4)


def test_A040_bfloat16_has_the_range_of_float32():
    b, f, h = tally.finfo(tally.bfloat16), tally.finfo(tally.float32), tally.finfo(tally.float16)
    assert b.tiny == f.tiny and b.eps == 8 * h.eps


def test_A041_float32_to_bfloat16_and_back():
    x = tally.randn(1000)
    y = x.to(tally.bfloat16)
    assert tally.equal(y.float().to(tally.bfloat16), y)
    assert ((y.float() - x).abs() <= x.abs() * 2.0 ** -8).all()


def test_A042_two_variants_of_fp8():
    fine, wide = tally.finfo(tally.float8_e4m3fn), tally.finfo(tally.float8_e5m2)
    assert fine.eps < wide.eps and fine.max < wide.max


def test_A043_fp8():
    assert tally.finfo(tally.float8_e4m3fn).max == 448 and tally.finfo(tally.float8_e5m2).max == 57344
    assert tally.finfo(tally.float8_e4m3fn).smallest_subnormal == 2.0 ** -9
    assert tally.finfo(tally.float8_e5m2).smallest_subnormal == 2.0 ** -16


def test_A044_fp4():
    assert tally.finfo(tally.float4_e2m1fn_x2).max == 6


def test_A045_bytes_of_dtypes():
    assert [d.itemsize for d in (tally.float32, tally.float16, tally.bfloat16, tally.float8_e4m3fn)] == [4, 2, 2, 1]


def test_A048_slip_range_of_e5m2():
    assert tally.finfo(tally.float8_e5m2).max > 0.8 * tally.finfo(tally.float16).max


def memory(x):
    return x.numel() * x.element_size()


def test_A049_A050_A051_memory():
    assert memory(tally.zeros(4, 8)) == tally.zeros(4, 8).nbytes == 128
    assert memory(tally.zeros(4, 8, dtype=tally.float16)) == 64


def test_A052_A053_A054_A056_a_matrix_of_gpt3():
    x = tally.empty(12288 * 4, 12288, device="meta")
    assert x.numel() == 603979776 and memory(x) == 2415919104 == 2304 * 2 ** 20  # 2.25 GiB
    assert memory(tally.empty(12288 * 4, 12288, device="meta", dtype=tally.bfloat16)) == 1207959552
    assert memory(tally.empty(12288 * 4, 12288, device="meta", dtype=tally.float8_e4m3fn)) == 603979776


def test_A055_A057_slip_gigabytes_of_it():
    for dtype, gib, gb in [(tally.float16, 1.125, 1.208), (tally.float8_e4m3fn, 0.5625, 0.604)]:
        x = tally.empty(12288 * 4, 12288, device="meta", dtype=dtype)
        assert memory(x) / 2 ** 30 == gib and abs(memory(x) / 1e9 - gb) < 5e-4


def test_A058_A059_memory_allocated():
    before = tally.memory_allocated("cpu")
    a, b = tally.zeros(32, 32), tally.zeros(32, 32)
    assert tally.memory_allocated("cpu") - before == 2 * (32 * 32 * 4)
    del a, b
    assert tally.memory_allocated("cpu") == before


def test_A060_views_allocate_nothing():
    x = tally.zeros(32, 64)
    before = tally.memory_allocated("cpu")
    y = x.transpose(0, 1)
    assert tally.memory_allocated("cpu") == before
    z = y.contiguous()
    assert tally.memory_allocated("cpu") - before == memory(z)


def test_A061_what_a_training_run_stores():
    w = tally.nn.Parameter(tally.randn(64, 64))
    adamw, start = tally.optim.AdamW([w]), tally.memory_allocated("cpu")
    x = tally.randn(8, 64)  # data
    assert tally.memory_allocated("cpu") - start == x.nbytes
    y = (x @ w).square().sum()  # keeps activations
    assert tally.memory_allocated("cpu") - start > x.nbytes
    y.backward()
    assert w.grad.nbytes == w.nbytes
    del x, y
    adamw.step()
    assert tally.memory_allocated("cpu") - start >= w.nbytes  # the gradient; the states are there since the start


def test_A062_the_cpu_is_the_default():
    assert tally.zeros(32, 32).device == tally.device("cpu")


def test_A063_devices_compare():
    assert tally.device("cuda", 0) == tally.device("cuda:0") and tally.device("cuda:0") != tally.device("cuda:1")


@pytest.mark.skipif(not tally.cuda.is_available(), reason="no card")
def test_A064_A065_A067_a_card():
    x = tally.zeros(32, 32)
    y = x.to("cuda:0")
    assert y.device == tally.device("cuda", 0) and x.device == tally.device("cpu")
    assert tally.zeros(32, 32, device="cuda:0").device == tally.device("cuda:0")


def test_A066_A068_cuda_queries():
    assert tally.cuda.device_count() >= 0 and tally.cuda.is_available() == (tally.cuda.device_count() > 0)
    for i in range(tally.cuda.device_count()):
        assert tally.cuda.get_device_properties(i).name
    assert tally.cuda.memory_allocated() >= 0
    if not tally.cuda.is_available():
        with pytest.raises(RuntimeError):
            tally.cuda.get_device_properties(0)
        with pytest.raises(RuntimeError):
            tally.zeros(2, device="cuda:0")


def test_A070_pin_memory():
    x = tally.randn(8, 8)
    y = x.pin_memory()
    assert tally.equal(x, y) and y.is_pinned() == tally.cuda.is_available()


def test_A072_events():
    start, end = tally.cuda.Event(enable_timing=True), tally.cuda.Event(enable_timing=True)
    start.record()
    tally.randn(64, 64) @ tally.randn(64, 64)
    end.record()
    tally.cuda.synchronize()
    assert start.elapsed_time(end) >= 0


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_A107_adding_costs_one_flop_an_element(device):
    a = tally.ones(16, 32, device=device)
    with tally.Ledger() as ledger:
        a + a
    assert ledger.other_flops == 512 and ledger.matmul_flops == 0


@pytest.mark.skipif(not tally.cuda.is_available(), reason="needs a card")
def test_A071_timing_a_product_of_a_card_needs_synchronize():
    import time
    a = tally.randn(2048, 2048, device="cuda")
    a @ a
    tally.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(5):
        a @ a
    launched = time.perf_counter()
    tally.cuda.synchronize()
    end = time.perf_counter()
    assert end - start > launched - start and (end - start) / 5 > 2 * 2048 ** 3 / 2e15
