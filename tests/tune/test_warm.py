"""Compiling ahead."""

import pytest
import torch
import torch_geometric.nn as pyg
from torch.nn import BatchNorm1d

import pygfuse
from pygfuse.__main__ import main
from pygfuse._lib import disk as cache
from pygfuse.cpu import kernels

WIDTH = 23  # no other test has it


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder of kernels, for a process that has made none."""
    monkeypatch.setenv('PYGFUSE_CACHE_DIR', str(tmp_path / 'cache'))
    return tmp_path / 'cache'


def example():
    """A fused model with dropout and running statistics, and its input."""
    layers = [
        (pyg.GATConv(5, WIDTH, heads=1, dropout=0.5), 'x, edge_index -> x'),
        (BatchNorm1d(WIDTH), 'x -> x'),
        (pyg.GATConv(WIDTH, WIDTH - 1), 'x, edge_index -> x'),
    ]
    model = pygfuse.fuse(pyg.Sequential('x, edge_index', layers))
    return model, torch.randn(40, 5), torch.randint(40, (2, 200))


def test_steps_after_it_compile_nothing(folder):
    kernels.forward_kernel.cache_clear()
    kernels.backward_kernel.cache_clear()
    model, x, edge_index = example()
    pygfuse.warm(model, x, edge_index)
    compiled = set(cache.kernels(folder))
    assert len(compiled) >= 5
    for _ in range(3):
        model(x, edge_index).sum().backward()
    with torch.no_grad():
        model.eval()(x, edge_index)
    assert set(cache.kernels(folder)) == compiled


def test_the_model_stays_as_it_is(folder):
    torch.manual_seed(0)
    model, x, edge_index = example()
    x.requires_grad_()
    model.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    pygfuse.warm(model, x, edge_index=edge_index)
    assert torch.equal(torch.get_rng_state(), state)
    assert not model.training
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert all(tensor.grad is None for tensor in (x, *model.parameters()))


def test_outputs_in_containers_and_without_gradients(folder):
    class Several(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.ran_backward = pygfuse.conv.GATConv(5, 3), []

        def forward(self, x, edge_index):
            out, weights = self.conv(x, edge_index, return_attention_weights=True)
            return {'out': [out], 'weights': weights, 'count': len(x), 'mean': x.mean()}

    _, x, edge_index = example()
    pygfuse.warm(Several(), x, edge_index)


def test_a_model_is_expected():
    with pytest.raises(TypeError, match=r"Expected 'model' to be a torch\.nn\.Module"):
        pygfuse.warm(lambda x: x, torch.ones(1))


def test_from_the_command_line(folder, tmp_path, monkeypatch, capsys):
    text = 'import torch\nfrom pygfuse.conv import SAGEConv\n\ndef make():\n'
    # summed are the rows that come in
    text += f'    return SAGEConv({5 * WIDTH}, 3), torch.randn(9, {5 * WIDTH}), torch.randint(9, (2, 30))\n'
    (tmp_path / 'my_model.py').write_text(text)
    monkeypatch.chdir(tmp_path)
    assert main(['warm', 'my_model:make']) == 0
    assert f'they are kept in {folder}' in capsys.readouterr().out
    assert cache.kernels(folder)


@pytest.mark.parametrize('text', ['my_model', ':make', 'my_model:', 'no_such_module:make', 'torch:no_such_function'])
def test_a_function_that_is_not_there(text, capsys):
    with pytest.raises(SystemExit, match='2'):
        main(['warm', text])
    assert 'MODULE:FUNCTION' in capsys.readouterr().err
