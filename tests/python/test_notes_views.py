"""The notes' assertions on storage, strides, views, element-wise ops and products: one test an A-line."""
import pytest
import tally


def same_storage(x, y):
    return x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()


@pytest.fixture
def x():
    return tally.tensor([[1., 2, 3], [4, 5, 6]])


def test_A073_strides_of_a_row_major_matrix():
    x = tally.arange(16).view(4, 4)
    assert x.stride(0) == 4 and x.stride(1) == 1


def test_A074_index_of_an_element():
    x = tally.arange(16).view(4, 4)
    assert 1 * x.stride(0) + 2 * x.stride(1) == 6 and x[1, 2] == 6


def test_A075_A076_A077_slip_place_of_ten():
    x = tally.arange(16).view(4, 4)
    assert x[2, 2].item() == 10 and 2 * x.stride(0) + 2 * x.stride(1) == 10 and x.flatten()[11].item() == 11


def test_A078_A080_A081_a_row(x):
    y = x[0]
    assert tally.equal(y, tally.tensor([1., 2, 3])) and same_storage(x, y)
    assert y.stride() == (1,) and y.storage_offset() == 0


def test_A079_offset_of_an_element():
    x = tally.arange(60).view(3, 4, 5)
    y = x[1:, ::2, 1]
    flat = x.flatten()
    for i in range(2):
        for j in range(2):
            assert y[i, j] == flat[y.storage_offset() + i * y.stride(0) + j * y.stride(1)]


def test_A082_a_column(x):
    y = x[:, 1]
    assert tally.equal(y, tally.tensor([2., 5])) and same_storage(x, y)
    assert y.shape == (2,) and y.stride() == (3,) and y.storage_offset() == 1


def test_A083_view(x):
    y = x.view(3, 2)
    assert tally.equal(y, tally.tensor([[1, 2], [3, 4], [5, 6]])) and same_storage(x, y) and y.stride() == (2, 1)


def test_A084_A085_transpose(x):
    y = x.transpose(1, 0)
    assert tally.equal(y, tally.tensor([[1, 4], [2, 5], [3, 6]])) and same_storage(x, y)
    assert y.shape == (3, 2) and x.stride() == (3, 1) and y.stride() == (1, 3)


def test_A086_A087_writes_are_seen_by_all_views(x):
    y = x.transpose(1, 0)
    x[0][0] = 100
    assert y[0][0] == 100
    y[2, 1] = -1
    assert x[1, 2] == -1


def test_A088_is_contiguous(x):
    assert x.is_contiguous() and not x.transpose(1, 0).is_contiguous()


def test_A089_view_of_a_transpose_is_refused(x):
    y = x.transpose(1, 0)
    try:
        y.view(2, 3)
        assert False
    except RuntimeError as e:
        assert "view size is not compatible with input tensor's size and stride" in str(e)


def test_A090_contiguous_then_view(x):
    y = x.transpose(1, 0).contiguous().view(2, 3)
    assert tally.equal(y, tally.tensor([[1, 4, 2], [5, 3, 6]])) and not same_storage(x, y)


def test_A091_A094_slip_contiguous_copies_only_when_needed(x):
    assert same_storage(x, x.contiguous()) and not same_storage(x, x.T.contiguous()) and same_storage(x, x.reshape(3, 2))


def test_A092_A093_A097_reshape(x):
    assert same_storage(x, x.reshape(3, 2))
    y = x.transpose(1, 0).reshape(2, 3)
    assert tally.equal(y, tally.tensor([[1, 4, 2], [5, 3, 6]])) and not same_storage(x, y)


def test_A095_a_transpose_walks_in_jumps(x):
    y = x.transpose(1, 0)
    assert [i * y.stride(0) + j * y.stride(1) for i in range(3) for j in range(2)] == [0, 3, 1, 4, 2, 5]


def test_A096_slip_view_needs_compatible_strides(x):
    y = x.transpose(1, 0)
    assert same_storage(y.view(3, 2), x) and y.view(3, 1, 2).shape == (3, 1, 2)
    with pytest.raises(RuntimeError):
        y.view(2, 3)


def test_A099_heads_by_rearrange_are_a_view():
    x = tally.zeros(2, 3, 8)
    y = tally.einops.rearrange(x, "... (heads hidden1) -> ... heads hidden1", heads=2)
    assert y.shape == (2, 3, 2, 4) and same_storage(x, y)


def test_A100_pow_of_integers():
    y = tally.tensor([1, 4, 9]).pow(2)
    assert tally.equal(y, tally.tensor([1, 16, 81])) and y.dtype == tally.int64


def test_A101_sqrt_of_integers():
    y = tally.tensor([1, 4, 9]).sqrt()
    assert tally.equal(y, tally.tensor([1, 2, 3])) and y.dtype == tally.float32


def test_A102_rsqrt_of_integers():
    y = tally.tensor([1, 4, 9]).rsqrt()
    assert tally.equal(y, tally.tensor([1, 1 / 2, 1 / 3])) and y[2].item() == 0.3333333432674408


def test_A103_sums_and_products_of_integers():
    x = tally.tensor([1, 4, 9])
    for y in (x + x, x * 2):
        assert tally.equal(y, tally.tensor([2, 8, 18])) and y.dtype == tally.int64


def test_A104_true_division():
    y = tally.tensor([1, 4, 9]) / 0.5
    assert tally.equal(y, tally.tensor([2, 8, 18])) and y.dtype == tally.float32


def test_A105_elementwise_makes_new_tensors():
    x = tally.tensor([1., 4, 9])
    assert (x + x).shape == x.shape and not same_storage(x, x + x)


def test_A106_triu():
    assert tally.equal(tally.ones(3, 3).triu(), tally.tensor([[1, 1, 1], [0, 1, 1], [0, 0, 1]]))


def test_A108_matmul():
    y = tally.ones(16, 32) @ tally.ones(32, 2)
    assert y.shape == (16, 2) and (y == 32).all()


def test_A109_A110_slip_batched_matmul_shares_the_matrix():
    w = tally.randn(32, 2)
    x = tally.randn(4, 8, 16, 32)
    y = x @ w
    assert y.shape == (4, 8, 16, 2) and tally.allclose(y[3, 5], x[3, 5] @ w)
    assert (tally.ones(4, 8, 16, 32) @ tally.ones(32, 2) == 32).all()


def test_A111_A112_A113_products_of_batches():
    x = tally.ones(2, 2, 3)
    y = x @ x.transpose(-2, -1)
    assert y.shape == (2, 2, 2) and (y == 3).all()
    x = tally.ones(2, 3, 4)
    y = x @ x.transpose(-2, -1)
    assert y.shape == (2, 3, 3) and (y == 4).all()


def test_A114_A115_rows_are_column_sums():
    b, d, k = 64, 256, 16
    w = tally.randn(d, k)
    y = tally.ones(b, d) @ w
    assert y.shape == (b, k) and tally.allclose(y[7], w.sum(dim=0), atol=1e-4)


def test_A098_views_are_free_copies_are_not():
    x = tally.zeros(16, 8)
    before = tally.memory_allocated()
    y = x.view(8, 16).transpose(0, 1)
    assert y.same_storage(x) and tally.memory_allocated() == before
    z = y.contiguous()
    assert not z.same_storage(x) and tally.memory_allocated() - before == z.nbytes == 512
