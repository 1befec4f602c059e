"""Values in and out: NumPy's arrays and numbers as operands, what tensor() takes, numbers and text of tensors, conversions."""
import copy
import pickle

import pytest
import tally

np = pytest.importorskip("numpy")
x3 = tally.ones(3)


@pytest.mark.parametrize("call,value", [
    (lambda: np.ones(3, np.float32) + x3, [2, 2, 2]), (lambda: x3 + np.ones(3, np.float32), [2, 2, 2]),
    (lambda: np.full(3, 2.0, np.float32) - x3, [1, 1, 1]), (lambda: x3 - np.full(3, 2.0, np.float32), [-1, -1, -1]),
    (lambda: np.arange(3) * x3, [0, 1, 2]), (lambda: x3 / np.full(3, 2), [.5, .5, .5]), (lambda: np.arange(3) > x3, [False, False, True]),
    (lambda: np.arange(3) == x3, [False, True, False]), (lambda: x3 == np.arange(3), [False, True, False]),
    (lambda: x3 != np.arange(3), [True, False, True]), (lambda: np.eye(3, dtype=np.float32) @ x3, [1, 1, 1]),
    (lambda: x3 @ np.eye(3, dtype=np.float32), [1, 1, 1]), (lambda: np.float32(2) * x3, [2, 2, 2]), (lambda: x3 * np.float64(2), [2, 2, 2]),
    (lambda: np.int64(2) - x3, [1, 1, 1]), (lambda: np.float32(2) > x3, [True] * 3), (lambda: tally.maximum(x3, np.arange(3.)), [1, 1, 2]),
    (lambda: np.sin(x3 * 0), [0, 0, 0]), (lambda: np.add(x3, 1), [2, 2, 2]),
])
def test_arrays_as_operands(call, value):
    y = call()
    assert isinstance(y, tally.Tensor) and y.tolist() == value


def test_arrays_promote_as_tensors_do():
    assert (x3 * np.ones(3)).dtype is tally.float64 and (x3 * np.float64(1)).dtype is tally.float32
    y = tally.ones(3, requires_grad=True)
    (np.arange(3, dtype=np.float32) * y).sum().backward()
    assert y.grad.tolist() == [0, 1, 2]
    z = tally.ones(3)
    z += np.ones(3, np.float32)
    assert z.tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match="broadcast"):
        x3 + np.ones(4)


def test_arrays_of_tensors():
    assert np.asarray(x3).dtype == np.float32 and np.array(x3, np.float64).dtype == np.float64
    a = np.asarray(x3)
    b = np.array(x3, copy=True)
    assert a.ctypes.data == x3.data_ptr() and b.ctypes.data != x3.data_ptr()
    assert np.concatenate([x3, x3]).shape == (6,) and np.ones(3)[tally.tensor([0, 2])].shape == (2,)
    assert tally.ones(2, dtype=tally.bfloat16, requires_grad=True).numpy(force=True).dtype == np.float32


@pytest.mark.parametrize("data,dtype,value", [
    (range(3), "int64", [0, 1, 2]), (((1, 2), (3, 4)), "int64", [[1, 2], [3, 4]]), ([(1, 2), [3, 4]], "int64", [[1, 2], [3, 4]]),
    ([range(2), (2, 3)], "int64", [[0, 1], [2, 3]]), ([True, 2], "int64", [1, 2]), ([True, 2.5], "float32", [1, 2.5]),
    ([True, False], "bool", [True, False]), (True, "bool", True), (3, "int64", 3), (2.5, "float32", 2.5),
    ([np.float32(1), 2], "float32", [1, 2]), ([np.float64(1), 2], "float64", [1, 2]), ([np.int32(1), 2], "int64", [1, 2]),
    ([np.int32(1), np.int32(2)], "int32", [1, 2]), ([np.bool_(True), False], "bool", [True, False]), (np.float64(1), "float64", 1),
    (np.int16(3), "int16", 3), ([np.float16(1), 2], "float16", [1, 2]), ([np.ones(2), np.zeros(2)], "float64", [[1, 1], [0, 0]]),
    ([np.ones(2, np.float16), [1, 2]], "float16", [[1, 1], [1, 2]]), ([np.array(2), 3], "int64", [2, 3]),
    ([tally.tensor(1), tally.tensor(2)], "int64", [1, 2]), ([tally.tensor(1.), 2], "float32", [1, 2]),
    ([tally.ones(1), tally.ones(1)], "float32", [1, 1]), ([], "float32", []), ([[], []], "float32", [[], []]), ("a" and [[1.5]], "float32", [[1.5]]),
])
def test_tensor_takes(data, dtype, value):
    y = tally.tensor(data)
    assert y.dtype is getattr(tally, dtype) and y.tolist() == value


def test_whole_numbers_of_64_bits():
    assert tally.tensor(-2 ** 63).item() == -2 ** 63 and tally.tensor(2 ** 63 - 1).item() == 2 ** 63 - 1
    assert tally.tensor(2 ** 63, dtype=tally.float64).item() == 2.0 ** 63 and tally.tensor([1.5, 2 ** 70]).tolist()[1] == 2.0 ** 70
    for call in (lambda: x3 * 2 ** 70, lambda: 2 ** 70 + x3, lambda: x3 == 2 ** 64, lambda: x3.clamp(0, 2 ** 70), lambda: x3.add_(2 ** 70),
                 lambda: tally.full((2,), 2 ** 70), lambda: tally.arange(2 ** 70), lambda: tally.zeros(2).fill_(-2 ** 70),
                 lambda: tally.where(x3 > 0, 2 ** 70, 1)):
        with pytest.raises(OverflowError, match="64 bits"):
            call()


def test_numbers_of_tensors():
    one = tally.tensor([[3]])
    assert int(one) == 3 and float(one) == 3.0 and complex(one) == 3 + 0j and int(tally.tensor(2.7)) == 2
    assert [5, 6, 7, 8][one] == 8 and range(9)[tally.tensor(2)] == 2 and list(range(tally.tensor(3))) == [0, 1, 2]
    assert bool(tally.tensor(float("nan"))) and not tally.tensor([0.])
    with pytest.raises(TypeError):
        [1, 2][tally.tensor(1.)]
    with pytest.raises(OverflowError):
        int(tally.tensor(float("inf")))
    assert 2 in tally.arange(3) and 5 not in tally.arange(3) and tally.tensor(1.) in x3 and not float("nan") in tally.tensor([float("nan")])
    assert len({x3: 1, tally.ones(3): 2}) == 2 and [r.tolist() for r in reversed(tally.tensor([[1], [2]]))] == [[2], [1]]


def test_text():
    assert f"{tally.tensor(1.5):.3f}" == "1.500" and f"{tally.tensor([[1.5]]):.1e}" == "1.5e+00" and f"{tally.tensor(3):4d}" == "   3"
    assert f"{tally.tensor(1.5)}" == "1.5" and f"{tally.tensor([1.5])}" == "tensor([1.5000])" and "%.2f" % tally.tensor(1.5) == "1.50"
    assert str(tally.ones(2, dtype=tally.bfloat16)) == "tensor([1., 1.], dtype=tally.bfloat16)"
    assert str(tally.ones(2, dtype=tally.int32)) == "tensor([1, 1], dtype=tally.int32)"
    assert str(tally.ones(2, device="meta")) == "tensor(..., device='meta', size=(2,), dtype=tally.float32)" or \
        str(tally.ones(2, device="meta")) == "tensor(..., device='meta', size=(2,))"
    assert repr(tally.ones(2, 3).shape) == "tally.Size([2, 3])" and str(-tally.tensor(float("nan"))) == "tensor(nan)"
    y = tally.ones(2, requires_grad=True) * 2
    assert y.grad_fn.name() and "backward" in repr(y.grad_fn) and tally.ones(2).grad_fn is None
    assert y.grad_fn.next_functions[0].name() == "leaf"


def test_bool_has_no_minus():
    t = tally.tensor([True, False])
    for call in (lambda: t - t, lambda: t - 1, lambda: 1 - t, lambda: True - t, lambda: t - 1.5, lambda: tally.tensor([1]) - t, lambda: -t):
        with pytest.raises(RuntimeError, match="bool"):
            call()
    assert (t + t).tolist() == [True, False] and (t + 1).tolist() == [2, 1] and (t ^ True).tolist() == [False, True]


def test_conversions():
    x = tally.tensor([0, 1, 2])
    for name, dtype in dict(float="float32", double="float64", half="float16", bfloat16="bfloat16", long="int64", int="int32",
                            short="int16", char="int8", byte="uint8", bool="bool").items():
        y = getattr(x, name)()
        assert y.dtype is getattr(tally, dtype) and y.long().tolist() == ([0, 1, 1] if name == "bool" else [0, 1, 2])
    assert x.long() is not None and x.type(tally.float32).type() == "tally.float32" and x.type_as(x3).dtype is tally.float32
    assert x.new_zeros(2, 3).dtype is tally.int64 and x3.new_tensor([1]).dtype is tally.float32 and x3.new_full((2,), 5).tolist() == [5, 5]
    assert tally.zeros(size=(2, 3)).shape == tally.randn(size=[2, 3]).shape == (2, 3)
    assert tally.promote_types(tally.float16, tally.bfloat16) is tally.float32 and not tally.can_cast(tally.float32, tally.int64)


def test_shapes_are_tuples():
    s = tally.ones(2, 3).shape
    assert isinstance(s, tuple) and s.numel() == 6 and s == (2, 3) and hash(s) == hash((2, 3))
    for t in (s + (1,), (1,) + s, s[1:], s * 2, 2 * s):
        assert isinstance(t, tally.Size)
    assert tally.zeros(s).shape == s and pickle.loads(pickle.dumps(s)) == s


def test_numpy_names_of_axes():
    x = tally.arange(6.).view(2, 3)
    assert x.sum(axis=0).tolist() == [3, 5, 7] and x.mean(axis=1, keepdims=True).shape == (2, 1) and x.argmax(axis=1).tolist() == [2, 2]
    assert x.max(axis=0).values.tolist() == [3, 4, 5] and x.std(axis=(0, 1)).shape == () and x.any(axis=0).shape == (3,)


def test_copies():
    x = tally.arange(6.).view(2, 3).requires_grad_()
    (x * 2).sum().backward()
    y = copy.deepcopy({"a": x, "b": [x]})
    assert y["a"] is y["b"][0] and y["a"].grad.tolist() == x.grad.tolist() and y["a"].data_ptr() != x.data_ptr()
    assert copy.copy(x).data_ptr() == x.data_ptr()
    for t in (x.detach().T, tally.zeros(0, 3), tally.tensor(5), x.detach().to(tally.bfloat16), tally.tensor([True])):
        u = pickle.loads(pickle.dumps(t))
        assert u.dtype is t.dtype and u.shape == t.shape and u.tolist() == t.tolist()
    with pytest.raises(RuntimeError, match="leaf"):
        copy.deepcopy(x * 2)


def test_multinomial():
    p = tally.tensor([[0., 1, 3, 0], [1, 0, 0, 1]])
    i = tally.multinomial(p, 4000, replacement=True)
    assert i.shape == (2, 4000) and i.dtype is tally.int64
    assert abs((i[0] == 2).float().mean().item() - .75) < .04 and set(i[0].tolist()) == {1, 2} and set(i[1].tolist()) == {0, 3}
    assert sorted(tally.multinomial(p[0], 2).tolist()) == [1, 2]
    for wrong in (lambda: tally.multinomial(p[0], 3), lambda: tally.multinomial(-p, 1), lambda: tally.multinomial(p * 0, 1),
                  lambda: tally.multinomial(p.long(), 1), lambda: tally.multinomial(p[None], 1), lambda: tally.multinomial(p, 0)):
        with pytest.raises(RuntimeError, match="multinomial"):
            wrong()


def test_clipping():
    p = [tally.nn.Parameter(tally.ones(2)), tally.nn.Parameter(tally.ones(3))]
    (p[0].sum() * 3 + p[1].sum() * 4).backward()
    norm = tally.nn.utils.clip_grad_norm_(p, 1.0)
    assert abs(norm.item() - (2 * 9 + 3 * 16) ** .5) < 1e-5
    assert abs(sum(q.grad.pow(2).sum().item() for q in p) - 1) < 1e-4
    tally.nn.utils.clip_grad_value_(p, 0.1)
    assert all(q.grad.max().item() <= 0.1 + 1e-6 for q in p) and tally.nn.utils.clip_grad_norm_([tally.ones(1)], 1.0).item() == 0
