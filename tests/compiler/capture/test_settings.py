"""What layers and the code around them hold as settings: dicts, namespaces, data classes, enumerations, lists."""

from __future__ import annotations

import argparse
import collections
import copy
import dataclasses
import enum
import types

import pytest
import torch
import torch.nn.functional as F

import pygfuse
from tests.compiler.own_convs import Own
from tests.compiler.test_writes_and_settings import SeenByAggregate, given

AS_A_WHOLE = 'it reads held, a dict, as a whole'


class Configured(Own):
    def __init__(self, settings):
        super().__init__()
        self.settings = settings

    def message(self, x_i, x_j):
        if isinstance(self.settings, dict):
            slope, act = self.settings['slope'], self.settings.get('act', None)
            nested = self.settings['inner']['scale']
        else:
            slope, act, nested = self.settings.slope, self.settings.act, self.settings.inner['scale']
        return act(F.leaky_relu(x_i - x_j, slope)) * nested


class Settings(dict):
    def __getattr__(self, name):
        if name.startswith('__'):
            raise AttributeError(name)
        return self[name]


def settings(kind):
    return kind(slope=0.1, act=F.elu, inner={'scale': 2.0})


@dataclasses.dataclass
class Configuration:
    slope: float
    act: object
    inner: dict


KINDS = {
    'dict': dict,
    'data class': Configuration,
    'namespace': types.SimpleNamespace,
    'arguments': argparse.Namespace,
    'of its own': Settings,
}


@pytest.mark.parametrize('kind', KINDS)
def test_settings_are_read_and_guarded(kind):
    conv = Configured(settings(KINDS[kind]))
    fused, arguments = pygfuse.compile(copy.deepcopy(conv)), {**given(SeenByAggregate)}
    for change in (None, ('slope', 0.7), ('act', torch.tanh), ('scale', 3.0), ('slope', 0.1), 'all'):
        for layer in (conv, fused):
            held = layer.settings
            if change == 'all':
                layer.settings = settings(KINDS[kind])
            elif change is not None and change[0] == 'scale':
                (held['inner'] if isinstance(held, dict) else held.inner)['scale'] = change[1]
            elif change is not None and isinstance(held, dict):
                held[change[0]] = change[1]
            elif change is not None:
                setattr(held, *change)
        for _ in range(3):
            torch.testing.assert_close(fused(**arguments), conv(**arguments))
    assert fused.note.reason is None


class Surprising(dict):
    def __getitem__(self, key):
        return 2.0 * super().__getitem__(key)


class Given(dict):
    def get(self, key, default=None):
        return 2.0


class OfADict(Own):
    def __init__(self, held, read):
        super().__init__()
        self.held, self.read = held, read

    def message(self, x_j):
        return x_j * self.read(self.held)


def _written(held):
    held['a'] = 3.0
    return 1.0


@pytest.mark.parametrize(
    ('held', 'read', 'reason'),
    [
        (Surprising(a=1.0), lambda held: held['a'], AS_A_WHOLE),
        (Given(a=1.0), lambda held: held.get('a'), AS_A_WHOLE),
        ({'a': torch.ones(1)}, lambda held: held['a'], 'it reads a of held, a Tensor'),
        ({'a': 1.0}, lambda held: 1.0 if held == {'a': 1.0} else 2.0, AS_A_WHOLE),
        ({'a': 1.0}, lambda held: float(len(f'{held}')), AS_A_WHOLE),
        ({'a': 1.0}, _written, 'it writes into held'),
        ({'a': 1.0}, lambda held: held.pop('a'), 'capturing it failed: AttributeError: pop'),
    ],
)
def test_what_else_is_done_with_settings_is_left_to_pyg(held, read, reason):
    conv = OfADict(copy.deepcopy(held), read)
    fused, arguments = pygfuse.compile(OfADict(copy.deepcopy(held), read)), given(SeenByAggregate)
    torch.testing.assert_close(fused(**arguments), conv(**arguments))
    assert fused.note.reason == reason


# What is asked of a dict's keys

READINGS = {
    'whether it has one': lambda held: 3.0 if 'b' in held else 2.0,
    'one that may be there': lambda held: held.get('b', 2.0),
    'how many': lambda held: float(len(held)),
    'whether any': lambda held: 1.0 if held else 2.0,
    'all': lambda held: sum(held[name] for name in held),
    'all values': lambda held: sum(held.values()),
    'all with their names': lambda held: sum(value * len(name) for name, value in held.items()),
    'handed over': lambda held: float(collections.Counter(**held).total()),
}
HELD = {'dict': dict, 'ordered': collections.OrderedDict, 'default': lambda **held: collections.defaultdict(int, held)}


@pytest.mark.parametrize('kind', HELD)
@pytest.mark.parametrize('name', READINGS)
def test_keys_are_read_and_guarded(kind, name):
    layers = [OfADict(HELD[kind](a=1.0), READINGS[name]) for _ in range(2)]
    fused, arguments = pygfuse.compile(layers[1]), given(SeenByAggregate)
    for change in (None, {'b': 5.0}, {'b': 6.0}, {'bc': 7.0}, None):
        for layer in layers:
            if change is None:
                layer.held.pop('b', None)
            else:
                layer.held.update(change)
        for _ in range(2):
            torch.testing.assert_close(fused(**arguments), layers[0](**arguments))
        assert fused.note.reason is None


def test_a_setting_that_is_not_there_may_come():
    layers = [
        OfADict(types.SimpleNamespace(a=1.0), lambda held: 3.0 if hasattr(held, 'b') else held.a) for _ in range(2)
    ]
    fused, arguments = pygfuse.compile(layers[1]), given(SeenByAggregate)
    for change in (None, 'b', None):
        for layer in layers:
            if change is not None:
                setattr(layer.held, change, 2.0)
        torch.testing.assert_close(fused(**arguments), layers[0](**arguments))
        assert fused.note.reason is None


# Lists of numbers in settings, and what the code around a layer holds


class Kind(enum.Enum):
    SUM = 'sum'
    SCALED = 'scaled'


class Told(enum.Enum):
    SUM = 'sum'

    def scale(self):
        return 2.0


SETTINGS = Settings(scale=2.0, kind=Kind.SCALED, widths=[1.0, 2.0], inner=Settings(act='tanh'))
ACTIVATIONS = {'tanh': torch.tanh, 'relu': torch.relu}
WIDTHS = [3, 4]


class ByTheFile(Own):
    """As code that reads one configuration for all of its layers, GraphGym's ``cfg``."""

    def message(self, x_j):
        out = ACTIVATIONS[SETTINGS.inner.act](x_j) * sum(WIDTHS)
        return out * SETTINGS.scale * SETTINGS.widths[-1] if SETTINGS.kind == Kind.SCALED else out


CHANGES = {
    'a number': lambda: SETTINGS.update(scale=3.0),
    'an enumeration': lambda: SETTINGS.update(kind=Kind.SUM),
    'a list within': lambda: SETTINGS['widths'].append(5.0),
    'a list': lambda: WIDTHS.append(5),
    'a setting within': lambda: SETTINGS.inner.update(act='relu'),
    'a function': lambda: ACTIVATIONS.update(tanh=torch.relu),
}


@pytest.mark.parametrize('name', CHANGES)
def test_settings_of_a_file_are_read_and_guarded(name, monkeypatch):
    for file, found in (('SETTINGS', SETTINGS), ('ACTIVATIONS', ACTIVATIONS), ('WIDTHS', WIDTHS)):
        monkeypatch.setitem(globals(), file, copy.deepcopy(found))
    layer, arguments = ByTheFile(), given(SeenByAggregate)
    fused = pygfuse.compile(copy.deepcopy(layer))
    for change in (None, CHANGES[name], None):
        if change is not None:
            before = layer(**arguments)
            change()
            assert not torch.allclose(layer(**arguments), before)
        for _ in range(2):
            torch.testing.assert_close(fused(**arguments), layer(**arguments))
        assert fused.note.reason is None


class OfAKind(Own):
    def __init__(self, kind, of):
        super().__init__()
        self.kind, self.of = kind, of

    def message(self, x_j):
        return x_j * self.of(self.kind)


def test_enumerations_with_code_of_their_own_are_left_to_pyg():
    layer, arguments = OfAKind(Told.SUM, lambda kind: kind.scale()), given(SeenByAggregate)
    fused = pygfuse.compile(copy.deepcopy(layer))
    torch.testing.assert_close(fused(**arguments), layer(**arguments))
    assert fused.note.reason == 'it reads kind of the layer, a Told'


def test_a_list_around_a_layer_is_not_written_into():
    layer, arguments = OfAKind(1.0, lambda kind: WIDTHS.append(kind) or kind), given(SeenByAggregate)
    fused = pygfuse.compile(copy.deepcopy(layer))
    before = len(WIDTHS)
    torch.testing.assert_close(fused(**arguments), layer(**arguments))
    assert fused.note.reason == 'it writes into WIDTHS, a list of the code around it'
    assert len(WIDTHS) == before + 2
    del WIDTHS[before:]
