from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import pygfuse
from pygfuse.partial.rows.nodes import Given
from pygfuse.partial.rows.rules import defer
from pygfuse.partial.rows.session import Session
from pygfuse.partial.rows.tensor import Deferred

NODES = 6


def given(tensor: torch.Tensor) -> Deferred:
    """A tensor whose values are only found when rows of it are read."""
    session = Session(None, len(tensor), 'raise', defer)
    return Deferred(Given(tensor), tensor, tensor.device, session, tensor.requires_grad)


DEFERRED = {
    'add': lambda x: 1 + x + x * x - (2 - x) / (3 + x.abs()),
    'powers': lambda x: x**2 + 2**x + x.abs() ** x,
    'with rows': lambda x: x * torch.arange(NODES * 4.0).view(NODES, 4) + torch.arange(4.0),
    'with as many channels as rows': lambda x: F.linear(x, torch.ones(NODES, 4)) + torch.arange(float(NODES)),
    'of a row that is the same for all': lambda x: x * torch.arange(4.0).view(1, 4),
    'where': lambda x: torch.where(x > 0, x, x.neg()).clamp(min=0.1),
    'activations': lambda x: F.elu(F.leaky_relu(x, 0.1)).sigmoid() + F.gelu(x) + F.silu(x) + F.relu(x, inplace=False),
    'softmax': lambda x: F.softmax(x, dim=1) + x.log_softmax(-1),
    'normalize': lambda x: F.normalize(x, dim=-1),
    'sum': lambda x: x.sum(1) + x.mean(dim=-1) + x.amax(1),
    'keepdim': lambda x: x.sum(dim=1, keepdim=True) * x,
    'max': lambda x: x.max(dim=1)[0] + x.max(dim=1).values,
    'argmax': lambda x: x.argmax(dim=-1),
    'cat': lambda x: torch.cat([x, torch.ones(NODES, 2), x], dim=-1),
    'stack': lambda x: torch.stack([x, x * 2], dim=-1).sum(-1),
    'split': lambda x: x.split(2, dim=1)[1] - x.chunk(2, dim=-1)[0],
    'view': lambda x: x.view(-1, 2, 2).mean(dim=1).unsqueeze(1).flatten(1).reshape(NODES, 2, 1).squeeze(-1),
    'a column': lambda x: x.select(1, 2) + torch.select(x, 1, 0),
    'columns': lambda x: x[:, 1:3] + x[:, :1],
    'product': lambda x: x @ torch.arange(8.0).view(4, 2) + torch.matmul(x, torch.ones(4, 2)),
    'layer norm': lambda x: F.layer_norm(x, (4,), torch.arange(4.0)),
    'linear': lambda x: F.linear(x, torch.arange(12.0).view(3, 4), torch.arange(3.0)),
    'another type': lambda x: x.to(torch.float64) + x.to(dtype=torch.float32),
    'no dropout': lambda x: F.dropout(x, 0.5, training=False),
}  # fmt: skip
READ = {
    'sum of all': lambda x: x.sum(),
    'sum over rows': lambda x: x.sum(0),
    'softmax over rows': lambda x: F.softmax(x, dim=0),
    'cumsum': lambda x: x.cumsum(0),
    'cat of rows': lambda x: torch.cat([x, x]),
    'stack of tensors': lambda x: torch.stack([x, x]),
    'transposed': lambda x: x.t(),
    'transposed view': lambda x: x.view(4, NODES),
    'product from the left': lambda x: torch.ones(NODES, NODES) @ x,
    'product of rows': lambda x: torch.einsum('if,jf->ij', x, x),
    'batch norm': lambda x: F.batch_norm(x, None, None, training=True),
    'norm of a whole': lambda x: F.layer_norm(x, (NODES, 4)),
    'split of rows': lambda x: x.split(2)[1],
    'a mean along both': lambda x: x.mean(dim=(0, 1)),
    'broadcast to more': lambda x: x + torch.ones(2, NODES, 4),
    'other rows': lambda x: x.sum(1) + torch.ones(NODES, NODES),
    'repeat': lambda x: x.repeat(2, 1),
    'a tensor of columns': lambda x: x[:, torch.tensor([1, 0])],
    'all dropped': lambda x: F.dropout(x, 1.0),
}


@pytest.mark.parametrize('name', DEFERRED)
def test_functions_of_rows_are_deferred_and_give_the_same(name):
    x, function = torch.randn(NODES, 4), DEFERRED[name]
    found, expected = function(given(x)), function(x)
    assert isinstance(found, Deferred)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    for rows in (torch.tensor([4, 1, 1, -1]), torch.arange(NODES) < 3, slice(1, 4), slice(None), 2, [0, 5]):
        torch.testing.assert_close(found[rows], expected[rows])
    torch.testing.assert_close(found + torch.zeros(2, *expected.shape), expected + torch.zeros(2, *expected.shape))


@pytest.mark.parametrize('name', READ)
def test_other_functions_read_all(name):
    x, function = torch.randn(NODES, 4), READ[name]
    found = function(given(x))
    assert not isinstance(found, Deferred)
    torch.testing.assert_close(found, function(x))


def test_elements_are_read():
    x = torch.randn(NODES, 4)
    found = given(x)
    rows, columns = torch.tensor([3, 0, 3]), torch.tensor([1, 2, 0])
    torch.testing.assert_close(found[rows, columns], x[rows, columns])
    torch.testing.assert_close(found[2, 1], x[2, 1])
    torch.testing.assert_close(found[1:3, 0], x[1:3, 0])
    for read in (found.index_select(0, rows), torch.index_select(found, 0, rows)):
        torch.testing.assert_close(read, x[rows])
    torch.testing.assert_close(found.index_select(1, columns)[rows], x[rows][:, columns])
    torch.testing.assert_close(found[torch.arange(NODES) > 3, 1], x[4:, 1])


@pytest.mark.parametrize('p', [0.0, 0.3])
def test_dropout_draws_the_same_numbers(p):
    x = torch.randn(NODES, 4, requires_grad=True)
    torch.manual_seed(0)
    expected, after = F.dropout(x, p), torch.rand(3)
    torch.manual_seed(0)
    found = F.dropout(given(x), p)
    assert torch.equal(torch.rand(3), after)
    assert torch.equal(found[1:4], expected[1:4])
    assert found[1:4].requires_grad


def test_a_deferred_tensor_looks_like_a_tensor():
    x = torch.randn(NODES, 4, requires_grad=True)
    found = given(x)
    assert (found.shape, found.dim(), len(found), found.numel()) == (x.shape, 2, NODES, 24)
    assert (found.dtype, found.device, found.requires_grad) == (x.dtype, x.device, True)
    assert torch.equal(found.new_zeros(2), x.new_zeros(2))
    assert torch.equal(torch.ones_like(found), torch.ones_like(x))
    assert torch.full_like(found, 2, dtype=torch.int64).dtype == torch.int64
    assert repr(found) == f'{found}' == 'Deferred(shape=[6, 4], dtype=torch.float32)'
    assert pygfuse.partial.rows.tensor.is_plain(found.tolist())


ROWS = [slice(None), slice(0, 3), slice(1, 2), 2, [1, 4], torch.tensor([3, 0]), torch.arange(NODES) < 3, ..., (2, 1)]


@pytest.mark.parametrize('rows', ROWS, ids=str)
def test_what_was_read_may_be_written_to(rows):
    x = torch.randn(NODES, 4, requires_grad=True)
    found, expected = given(x) * 2, (x * 2)[rows].detach()
    for _ in range(2):
        read = found[rows]
        with torch.no_grad():
            read.zero_()
    torch.testing.assert_close(found[rows], expected)
    (gradient,) = torch.autograd.grad(found[rows].sum(), x)
    (of_all,) = torch.autograd.grad((x * 2)[rows].sum(), x)
    assert torch.equal(gradient, of_all)


@pytest.mark.parametrize('function', [torch.t, torch.Tensor.cpu, lambda x: x.unbind()[2], lambda x: x.data])
def test_what_all_was_read_by_may_be_written_to(function):
    x = torch.randn(NODES, 4)
    found = given(x) * 2
    function(found).zero_()
    torch.from_numpy(found.numpy()).zero_()
    torch.testing.assert_close(found[:], x * 2)


def test_a_result_is_written_where_it_is_wanted():
    x, out = torch.randn(NODES, 4), torch.empty(NODES, 4)
    found = torch.add(given(x), 1, out=out)
    assert found is out
    assert torch.equal(out, x + 1)
    assert torch.equal(F.linear(given(x), torch.eye(4), out=out), x)
    with pytest.raises(NotImplementedError, match='as `out`'):
        torch.add(x, 1, out=given(x))


def test_in_place_keeps_shape_and_type():
    x = torch.randn(NODES, 1)
    for other in (torch.ones(NODES, 3), torch.ones(2, NODES, 1)):
        with pytest.raises((RuntimeError, NotImplementedError)):
            given(x).add_(other)
    found = given(x) * 1
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        found += torch.ones(NODES, 3)
    with pytest.raises(RuntimeError, match="can't be cast"):
        (given(torch.arange(NODES)[:, None]) + 1).mul_(0.5)
    found += torch.ones(NODES, 1, dtype=torch.double)
    found **= 2
    assert found.dtype == found[:].dtype == torch.float32
    torch.testing.assert_close(found[1:3], (x[1:3] + 1) ** 2)


ATTRIBUTES = {
    'rows': lambda x: x * 2,
    'a column more': lambda x: x.unsqueeze(-1),
    'half of the columns': lambda x: x[:, 2:],
    'other numbers': lambda x: x > 0,
    'another type': lambda x: x.to(torch.float64),
    'one number a row': lambda x: x.sum(dim=1),
}


@pytest.mark.parametrize('name', ATTRIBUTES)
def test_attributes_are_told_without_asking_modes(name):
    class Noting(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            noted.append(func)
            return func(*args, **(kwargs or {}))

    x, noted = torch.randn(NODES, 4), []
    found, expected = ATTRIBUTES[name](given(x)), ATTRIBUTES[name](x)
    with Noting():
        told = found.shape, found.dtype, found.device, found.layout, found.dim()
    assert noted == []
    assert told == (expected.shape, expected.dtype, expected.device, expected.layout, expected.dim())
    assert (found.ndim, len(found), found.numel(), found.size(0)) == (
        expected.ndim, len(expected), expected.numel(), NODES
    )  # fmt: skip
    torch.testing.assert_close(found[:], expected)


def test_what_requires_a_gradient():
    x = torch.randn(NODES, 4, requires_grad=True)
    found = given(x) * 1
    assert not found.detach().requires_grad
    assert not found.detach()[1:3].requires_grad
    other = given(x.detach()) * 1
    other += x
    assert other.requires_grad
    assert other[1:3].requires_grad
