"""Gradients by operators of torch, which are differentiated again."""

from __future__ import annotations

import torch

from pygfuse.ops.within_torch.differentiable import differentiable


def test_a_tensor_that_the_result_is_no_function_of_has_no_gradient():
    x, y, z = (torch.randn(3, requires_grad=True) for _ in range(3))
    of_x, of_y, of_z = differentiable(lambda x, y, z: x.square(), (x, y, z), torch.ones(3), (True, True, False))
    torch.testing.assert_close(of_x, 2 * x)
    assert of_y is of_z is None
    (second,) = torch.autograd.grad(of_x.sum(), x)
    torch.testing.assert_close(second, torch.full((3,), 2.0))
