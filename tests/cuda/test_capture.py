import pytest
import torch

from pygfuse.cuda.capture import capture


def test_a_first_run_is_needed():
    with pytest.raises(ValueError, match=r"'warmup' to be at least 1.*got 0"):
        capture(lambda: None, warmup=0)


@pytest.mark.skipif(torch.cuda.is_available(), reason='there is a GPU')
def test_without_a_gpu_it_says_so():
    with pytest.raises(ValueError, match='no GPU'):
        capture(lambda: None)
