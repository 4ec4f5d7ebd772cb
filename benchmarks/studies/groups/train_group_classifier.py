"""Trains the graph classifier that chooses group sizes, and writes the weights that the package ships.

The classes are wanted the more, the less time they lose against the best size: one that is nearly as fast is nearly as
right. A fifth of the graphs is held out first to see what the
training is worth; the weights are then trained on all.

    python benchmarks/run.py train_group_classifier --data DATA \\
        --times benchmarks/results/group-sizes-cpu-2026-11-21.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from tqdm import tqdm

from pygfuse.mapping.group_sizes import learned
from pygfuse.mapping.group_sizes.learned import SIZES, GroupSizeClassifier, numbers_of, structure_of
from studies.groups.group_graphs import TO_FIT, graphs
from studies.groups.refit_group_regression import seconds_of, shape_of

ELEMENT_BYTES = 4
# graphs of a step
BATCH = 16
# the share of time for which a class becomes less likely by a factor of e
SHARE = 0.1


def time_lost(record: dict) -> Tensor:
    """The share of time lost under each class against the best, ``[classes]``.

    Sizes beyond those measured have as many parts as the nearest of these.
    """
    seconds = seconds_of(record)
    best = min(seconds.values())
    limited = (min(max(size, min(seconds)), max(seconds)) for size in SIZES)
    return torch.tensor([seconds[size] / best - 1 for size in limited])


def train(structures: Sequence[Data], records: Sequence[dict], graph_of: Tensor, epochs: int) -> GroupSizeClassifier:
    """A classifier trained on measured graphs.

    Args:
        structures: The graphs.
        records: Their measured times.
        graph_of: Which graph each record is of.
        epochs: Steps over all of them.
    """
    torch.manual_seed(0)
    classifier = GroupSizeClassifier()
    optimizer = torch.optim.Adam(classifier.parameters(), lr=0.02, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    numbers, wanted = numbers_of_all(records), wanted_of_all(records)
    for _ in tqdm(range(epochs), desc=f'training on {len(structures)} graphs', unit='epoch'):
        for chosen in torch.randperm(len(structures)).split(BATCH):
            indices, graph_of_batch = split(graph_of, chosen)
            readout = classifier.readout(Batch.from_data_list([structures[i] for i in chosen]))
            logits = classifier(readout[graph_of_batch], numbers[indices])
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(logits, wanted[indices]).backward()
            optimizer.step()
        schedule.step()
    return classifier.eval()


def numbers_of_all(records: Sequence[dict]) -> Tensor:
    return torch.stack([numbers_of(shape_of(record), record['width'] * ELEMENT_BYTES) for record in records])


def lost_of_all(records: Sequence[dict]) -> Tensor:
    return torch.stack([time_lost(record) for record in records])


def wanted_of_all(records: Sequence[dict]) -> Tensor:
    """The probability that each class should have; none for sizes that are too small or too large to be measured."""
    sizes, measured_sizes = torch.tensor(SIZES), [seconds_of(record) for record in records]
    least, most = (torch.tensor([bound(seconds) for seconds in measured_sizes]).unsqueeze(1) for bound in (min, max))
    lost = lost_of_all(records).masked_fill((sizes < least) | (sizes > most), torch.inf)
    return (-lost / SHARE).softmax(dim=1)


def judged(
    classifier: GroupSizeClassifier, structures: Sequence[Data], records: Sequence[dict], graph_of: Tensor
) -> str:
    """What its choices lose."""
    with torch.no_grad():
        readout = classifier.readout(Batch.from_data_list(list(structures)))[graph_of]
        chosen = classifier(readout, numbers_of_all(records)).argmax(dim=1)
    lost = lost_of_all(records).gather(1, chosen.unsqueeze(1))
    return f'time lost: mean {lost.mean():.1%}, most {lost.max():.1%} ({len(records)} times)'


def split(graph_of: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """The records of some graphs, and which of these graphs each is of."""
    found = graph_of.unsqueeze(1) == chosen
    return found.any(dim=1).nonzero().flatten(), found.nonzero()[:, 1]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--times', type=Path, required=True, help='what benchmarks/run.py measure_group_sizes wrote')
    parser.add_argument('--data', type=Path, help='the data sets, if they were measured')
    parser.add_argument('--epochs', type=int, default=50)
    parser.add_argument('--out', type=Path, default=Path(learned.__file__).with_name('classifier.pt'))
    options = parser.parse_args(arguments)
    records = json.loads(options.times.read_text())['records']
    named = tqdm(graphs(TO_FIT, options.data), desc='reading', unit='graph')
    structures = {name: structure_of(csr) for name, csr in named}
    place = {name: i for i, name in enumerate(structures)}
    records = [record for record in records if record['graph'] in place]
    graph_of = torch.tensor([place[record['graph']] for record in records])
    data = list(structures.values())
    numbers = torch.arange(len(data))
    sides = []
    for chosen in (numbers[numbers % 5 != 2], numbers[numbers % 5 == 2]):
        indices, graph_of_side = split(graph_of, chosen)
        sides.append(([data[i] for i in chosen], [records[i] for i in indices], graph_of_side))
    trial = train(*sides[0], options.epochs)
    print('trained on four fifths:', judged(trial, *sides[0]))
    print('on the fifth held out: ', judged(trial, *sides[1]))
    classifier = train(data, records, graph_of, options.epochs)
    print('trained on all:        ', judged(classifier, data, records, graph_of))
    torch.save(classifier.state_dict(), options.out)
