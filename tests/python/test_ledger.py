"""The accounts, numbers of 8 and 4 bits, and shapes stated and checked."""
import threading

import pytest
import tally


def test_costs_and_memory_of_a_block():
    w = tally.ones(8, 16, requires_grad=True)
    with tally.Ledger() as ledger:
        y = (tally.ones(4, 8) @ w).relu()
        y.sum().backward()
        live = ledger.live_bytes
    assert ledger.matmul_flops == 2 * 2 * 4 * 8 * 16 and ledger.flops == ledger.matmul_flops + ledger.other_flops
    assert live > 0 and ledger.peak_bytes >= live and ledger.live["activation"] > 0 and ledger.launches > 3
    assert ledger.bytes_read > 0 and ledger.bytes_written > 0 and "matmul_flops=2048" in repr(ledger)
    ops = {e["op"] for e in ledger.entries()}
    assert any("matmul" in op for op in ops), ops
    before = ledger.flops
    tally.ones(4) + 1
    assert ledger.flops == before  # outside the block
    ledger.clear_costs()
    assert ledger.flops == 0
    del y
    w.grad = None
    assert ledger.live_bytes == 0 and sum(ledger.saved.values()) == 0


def test_the_plan_equals_the_run():
    def cost(device):
        with tally.Ledger() as ledger:
            x = tally.ones(4, 8, device=device, requires_grad=True)
            (x.softmax(-1) @ tally.ones(8, 2, device=device)).logsumexp(-1).sum().backward()
        return ledger.entries()

    assert cost("cpu") == cost("meta")


def test_blocks_within_blocks_and_threads():
    x = tally.ones(10)
    with tally.Ledger() as outer:
        x + 1
        with tally.Ledger() as inner:
            x + 1
        x + 1
    assert outer.other_flops == 20 and inner.other_flops == 10
    errors = []

    def enter():
        try:
            outer.__enter__()
        except RuntimeError as e:
            errors.append(str(e))

    with outer:
        t = threading.Thread(target=enter)
        t.start(), t.join()
    assert "thread" in errors[0]
    with pytest.raises(RuntimeError, match="entered"):
        outer.__exit__(None, None, None)


FORMATS = ["f8e4m3", "f8e5m2", "mxfp8_e4m3", "mxfp8_e5m2", "mxfp4", "nvfp4"]


@pytest.mark.parametrize("name", FORMATS)
def test_quantize(name):
    x = tally.randn(6, 64)
    q = tally.quantize(x, name)
    assert q.format == name and q.shape == (6, 64) and isinstance(q.shape, tally.Size) and name in repr(q)
    back = q.dequantize()
    assert back.shape == x.shape and back.dtype is tally.float32 and tally.equal(tally.dequantize(q), back)
    worst = {"f8e4m3": 0.07, "mxfp8_e4m3": 0.13, "f8e5m2": 0.13, "mxfp8_e5m2": 0.13}.get(name, 0.35)
    assert ((back - x).abs() <= worst * x.abs() + 0.3 * (worst > 0.3) + 0.01).all()
    assert tally.equal(tally.quantize(back, name).dequantize(tally.float64).float(), back)  # a second time changes nothing
    assert (q.tensor_scale is None) == name.startswith("mx") and (q.scales is None) == name.startswith("f8")
    block = {"nvfp4": 16}.get(name, 32)
    bits = 4 if "fp4" in name else 8
    assert q.nbytes == 6 * 64 * bits // 8 + (0 if q.scales is None else 6 * 64 // block) + (0 if q.tensor_scale is None else 4)


def test_quantize_refuses():
    with pytest.raises(ValueError, match="nvfp4.*mxfp4|mxfp4.*nvfp4"):
        tally.quantize(tally.ones(32), "fp4")
    with pytest.raises(ValueError, match="multiple.*16"):
        tally.quantize(tally.ones(2, 20), "nvfp4")
    with pytest.raises((TypeError, RuntimeError)):
        tally.quantize(tally.ones(32).long(), "nvfp4")
    assert tally.quantize(tally.zeros(0, 32), "mxfp4").dequantize().shape == (0, 32)
    assert tally.quantize(tally.ones(2, 32, device="meta"), "nvfp4").codes.device.type == "meta"
    q = tally.quantize(tally.ones(32, requires_grad=True), "mxfp4")
    assert not q.dequantize(tally.bfloat16).requires_grad and q.dequantize(tally.bfloat16).dtype is tally.bfloat16


def test_expect():
    x = tally.ones(2, 3, 4)
    assert tally.expect(x, "batch seq d") == {"batch": 2, "seq": 3, "d": 4}
    assert tally.expect(x, "... 4") == {} and tally.expect(x, "b _ 4") == {"b": 2}
    with pytest.raises(ValueError) as caught:
        tally.expect(x, "batch seq 8", "logits")
    assert all(word in str(caught.value) for word in ("logits", "batch seq 8", "(2, 3, 4)"))
    for wrong in ("batch seq", "a a b", "a+b c d", "... ... a"):
        with pytest.raises(ValueError):
            tally.expect(x, wrong)


def test_shapes_over_several_tensors():
    s = tally.Shapes().expect(tally.ones(2, 3), "b d", "x").expect(tally.ones(3, 5), "d k", "w")
    assert s["k"] == 5 and "d" in s and "z" not in s and len(s) == 3 and s.sizes() == {"b": 2, "d": 3, "k": 5}
    with pytest.raises(ValueError, match="v.*d"):
        s.expect(tally.ones(4, 5), "d k", "v")
    with pytest.raises(KeyError):
        s["z"]
