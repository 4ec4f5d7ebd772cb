"""Pickles name modules, which therefore stay where they are."""

import pickle

import pytest
import torch
from torch_geometric.data import Data

from pygfuse.transforms import ToExecutionPaths, ToHAG

CLIQUE = torch.cartesian_prod(torch.arange(6), torch.arange(6)).t()
PREPARED = {
    'pygfuse.transforms.hag_data.HagData': ToHAG(for_batches=True, min_saving=1),
    'pygfuse.transforms.path_data.PathData': ToExecutionPaths(2),
}


@pytest.mark.parametrize('name', PREPARED)
def test_pickles_name_the_class_where_it_was(name):
    data = PREPARED[name](Data(edge_index=CLIQUE, train_mask=torch.arange(6) < 2, num_nodes=6))
    module, kind = name.rsplit('.', 1)
    text = pickle.dumps(data, protocol=0)
    assert f'c{module}\n{kind}\n'.encode() in text
    # and nothing else of the package
    assert text.count(b'pygfuse') == 1
    assert type(pickle.loads(text)) is type(data)
