"""NumPy, DLPack and, where it is installed, PyTorch: values, dtypes, shared memory, lifetimes."""
import gc

import pytest
import tally

np = pytest.importorskip("numpy")

DTYPES = ["float64", "float32", "float16", "int64", "int32", "int16", "uint16", "int8", "uint8", "bool"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_both_ways(dtype):
    a = np.array([[0, 1, 2], [3, 4, 5]]).astype(dtype)
    x = tally.tensor(a)
    assert x.dtype is getattr(tally, dtype) and x.tolist() == a.tolist()
    b = x.numpy()
    assert b.dtype == a.dtype and np.array_equal(a, b)
    a[0, 0] = 1
    assert x[0, 0] == 0  # tensor() copies
    x[0, 1] = 0
    assert b[0, 1] == 0  # numpy() shares


@pytest.mark.parametrize("dtype", DTYPES)
def test_from_numpy_shares(dtype):
    a = np.zeros((2, 3), dtype)
    x = tally.from_numpy(a)
    a[1, 2] = 1
    assert x[1, 2] == 1 and x.data_ptr() == a.ctypes.data
    x[0, 0] = 1
    assert a[0, 0] == 1
    del a
    gc.collect()
    assert x[0, 0] == 1


def test_strided_arrays():
    a = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for view in (a.T, a[:, ::2], a[1], a[..., 1:3], a.transpose(1, 0, 2)):
        assert np.array_equal(tally.tensor(view).numpy(), view)
        x = tally.from_dlpack(view)
        assert x.stride() == tuple(s // 4 for s in view.strides) and np.array_equal(x.numpy(), view)
    assert np.array_equal(tally.tensor(a[::-1]).numpy(), a[::-1])
    x = tally.arange(6).view(2, 3)
    assert np.array_equal(x.T.numpy(), x.numpy().T) and x.T.numpy().ctypes.data == x.data_ptr()


def test_dlpack_protocol():
    x = tally.arange(6, dtype=tally.float32).view(2, 3)
    assert x.__dlpack_device__() == (1, 0)
    a = np.from_dlpack(x)
    assert a.ctypes.data == x.data_ptr() and a.tolist() == x.tolist()
    y = tally.from_dlpack(x)
    assert y.data_ptr() == x.data_ptr()
    del x
    gc.collect()
    assert y.tolist() == [[0, 1, 2], [3, 4, 5]] and a.tolist() == y.tolist()
    capsule = y.__dlpack__()
    assert tally.from_dlpack(capsule).data_ptr() == y.data_ptr()
    with pytest.raises(RuntimeError):
        tally.from_dlpack(capsule)
    with pytest.raises(TypeError):
        tally.from_dlpack(3)
    del capsule
    y.__dlpack__()  # a capsule that nobody takes


def test_read_only_arrays():
    a = np.zeros(3)
    a.flags.writeable = False
    with pytest.raises((RuntimeError, BufferError, ValueError)):
        tally.from_dlpack(a)
    assert tally.tensor(a).tolist() == [0, 0, 0]


def test_numpy_functions_take_tensors():
    x = tally.tensor([[1., 2], [3, 4]])
    assert np.asarray(x).sum() == 10 and np.allclose(x, [[1, 2], [3, 4]])
    assert np.asarray(x, dtype=np.float64).dtype == np.float64


def test_numpy_numbers_are_numbers():
    x = tally.tensor([1., 2])
    assert (x * np.float32(2)).tolist() == [2, 4] and (x + np.int64(1)).tolist() == [2, 3]
    assert tally.tensor([np.float64(1), np.int32(2)]).dtype == tally.float64  # theirs, as PyTorch
    assert x[np.int64(1)] == 2 and tally.tensor(np.float32(3)).item() == 3
    assert x[np.array([1, 0])].tolist() == [2, 1] and x[np.array([True, False])].tolist() == [1]


def test_memory_of_others_is_given_back():
    freed = []

    class Buffer(np.ndarray):
        def __del__(self):
            freed.append(1)

    a = np.zeros(4, np.float32).view(Buffer)
    x = tally.from_dlpack(a)
    view = x[1:]
    del a, x
    gc.collect()
    assert not freed
    del view
    gc.collect()
    assert freed


def test_torch_both_ways():
    torch = pytest.importorskip("torch")
    for dtype in ("float32", "bfloat16", "int64", "float16"):
        t = torch.arange(6).reshape(2, 3).to(getattr(torch, dtype))
        x = tally.from_dlpack(t)
        assert x.dtype is getattr(tally, dtype) and x.data_ptr() == t.data_ptr() and x.tolist() == t.tolist()
        back = torch.from_dlpack(x)
        assert back.data_ptr() == t.data_ptr() and back.dtype == t.dtype
