"""What execution replaces: casts of odd operators, grouped products."""

import pytest
import torch
from torch import nn

from symgraph.errors import TraceError
from symgraph.frontend.execute import grouped_mm, lift
from symgraph.frontend.trace import trace

ENDS = torch.tensor([2, 2, 5], dtype=torch.int32)


def arguments(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(7, 4, generator=generator, dtype=dtype), torch.randn(3, 4, 8, generator=generator, dtype=dtype)


def test_a_grouped_product_is_the_operator():
    x, w = arguments(torch.float32)
    expected = torch.ops.aten._grouped_mm.default(x[:5], w, ENDS)
    torch.testing.assert_close(grouped_mm(x, w, ENDS)[:5], expected)
    assert not grouped_mm(x, w, ENDS)[5:].any()
    with pytest.raises(TraceError, match="grouped product with a bias"):
        grouped_mm(x, w, ENDS, bias=x)


def test_a_grouped_product_under_transforms():
    x, w = arguments()
    plain = grouped_mm(x, w, ENDS)
    stacked = torch.stack((ENDS, ENDS))
    torch.testing.assert_close(torch.func.vmap(grouped_mm, (None, None, 0))(x, w, stacked)[1], plain)
    _, tangent = torch.func.jvp(lambda w: grouped_mm(x, w, ENDS), (w,), (w,))
    torch.testing.assert_close(tangent, plain)
    assert torch.autograd.gradcheck(lambda x, w: grouped_mm(x, w, ENDS), (x.requires_grad_(), w.requires_grad_()))


def test_lifting():
    assert lift(torch.float16, torch.float64) is torch.float64
    assert lift(torch.complex64, torch.float64) is torch.complex128
    assert lift(torch.int32, torch.float64) is torch.int32
    assert lift([torch.ones(1), 3], torch.float64)[0].dtype == torch.float64


def test_integers_and_complex_numbers():
    class Mixed(nn.Module):
        def forward(self, x, n):
            z = torch.polar(torch.ones_like(x), x)
            return torch.view_as_real(z * z) + (n / 3)[:, None] + n.cos()[:, None]

    x, n = torch.randn(4), torch.tensor([1, 2, 3, 4])
    y = 2 * x.double()
    expected = torch.stack((y.cos(), y.sin()), -1) + (n.double() / 3)[:, None] + n.double().cos()[:, None]
    torch.testing.assert_close(trace(Mixed(), (x, n)).run()[0], expected, rtol=0, atol=1e-14)
    assert torch.get_default_dtype() == torch.float32
