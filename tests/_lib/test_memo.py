"""What is kept with the object it was derived from."""

import copy
import pickle
import threading

import torch

from pygfuse._lib.memo import Memo


def test_a_value_is_made_once_whatever_it_is():
    memo, made = Memo(), []

    def make():
        made.append(1)

    assert memo.get(('nothing',)) is None
    assert memo.get_or_make(('nothing',), make) is None
    assert memo.get_or_make(('nothing',), make) is None
    assert len(made) == 1


def test_several_threads_get_the_same_value():
    memo, barrier, found = Memo(), threading.Barrier(4), []

    def make():
        barrier.wait()
        return object()

    threads = [threading.Thread(target=lambda: found.append(memo.get_or_make(('value',), make))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(map(id, found))) == 1


def test_what_is_made_in_inference_mode_serves_training():
    memo, weight = Memo(), torch.ones(3, requires_grad=True)
    with torch.inference_mode():
        memo.get_or_make(('factors',), lambda: torch.ones(3) * 2)
    (weight * memo.get(('factors',))).sum().backward()
    assert weight.grad.tolist() == [2, 2, 2]


def test_copies_and_pickles_begin_empty():
    memo = Memo()
    memo.get_or_make(('value',), lambda: 1)
    for other in (copy.copy(memo), copy.deepcopy(memo), pickle.loads(pickle.dumps(memo))):
        assert other.get(('value',)) is None
        assert other.get_or_make(('value',), lambda: 2) == 2
    assert memo.get(('value',)) == 1
