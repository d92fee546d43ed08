"""Where functions that are linear in pieces have their next kinks along a line, and what other functions are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.forward_ad import make_dual, unpack_dual

from attentest.search.breakpoints import Breakpoints, followed

COUNT, CHANNELS = 5, 4


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def layer(module: nn.Module) -> nn.Module:
    """A module in float64 with random weights and statistics."""
    for number, values in enumerate([*module.parameters(), *module.buffers()]):
        if values.is_floating_point():
            values.data = normal(*values.shape, seed=100 + number).abs().to(values)
    return module.double().eval().requires_grad_(False)


def along(function: Callable[[Tensor], Tensor], z: Tensor, axes: int = 2) -> tuple[Tensor, Tensor, Breakpoints]:
    """Values and slopes of a function at points of lines through images, and the breakpoints around."""
    shape = (COUNT, CHANNELS, *[6] * axes)
    origin, direction = normal(*shape, seed=1), normal(*shape, seed=2)
    with torch.no_grad(), followed(COUNT, z.device) as breakpoints:
        moving = make_dual(z, torch.ones_like(z)).reshape(-1, *[1] * (axes + 1))
        values = unpack_dual(function(origin + direction * moving))
    assert values.tangent is not None
    return values.primal.flatten(1), values.tangent.flatten(1), breakpoints


LINEAR_IN_PIECES: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "relu": (torch.relu, 2),
    "relu in place": (lambda x: nn.functional.relu(x.clone(), inplace=True), 2),
    "method": (lambda x: x.clamp(min=-0.5, max=0.7), 2),
    "leaky relu": (nn.LeakyReLU(0.2), 2),
    "prelu": (layer(nn.PReLU(CHANNELS)), 2),
    "relu6": (lambda x: nn.functional.relu6(10 * x), 2),
    "hardtanh": (nn.Hardtanh(-0.3, 0.6), 2),
    "threshold": (nn.Threshold(0.1, 0.1), 2),
    "abs": (torch.abs, 2),
    "maximum": (lambda x: torch.maximum(x[:, :2], x[:, 2:]), 2),
    "where": (lambda x: torch.where(x > 0.3, x, 0.3 + 2 * (x - 0.3)), 2),
    "max": (lambda x: x.max(dim=1).values, 2),
    "amin": (lambda x: x.amin(dim=(2, 3)), 2),
    "max pool, signals": (nn.MaxPool1d(3, 2, 1), 1),
    "max pool": (nn.MaxPool2d(3, 2, 1), 2),
    "max pool, dilated": (nn.MaxPool2d(2, 1, dilation=2, ceil_mode=True), 2),
    "max pool, ceil": (nn.MaxPool2d((2, 4), (3, 3), ceil_mode=True), 2),
    "max pool, volumes": (nn.MaxPool3d(2), 3),
    "adaptive max pool": (nn.AdaptiveMaxPool2d((3, 2)), 2),
    "batch norm, convolution": (
        nn.Sequential(layer(nn.Conv2d(CHANNELS, 3, 3)), layer(nn.BatchNorm2d(3)), nn.ReLU(), nn.MaxPool2d(2)),
        2,
    ),
    "transposed, upsampled": (
        nn.Sequential(layer(nn.ConvTranspose2d(CHANNELS, 2, 2, 2)), nn.ReLU(), nn.Upsample(scale_factor=2), nn.ReLU()),
        2,
    ),
}


@pytest.mark.parametrize("name", LINEAR_IN_PIECES)
def test_a_function_is_linear_up_to_its_breakpoints_and_bends_there(name: str) -> None:
    function, axes = LINEAR_IN_PIECES[name]
    z = torch.zeros(COUNT, dtype=torch.float64)
    values, slopes, breakpoints = along(function, z, axes)
    assert breakpoints.kind == "linear in pieces"
    bends = []
    for distance in (breakpoints.before, breakpoints.after):
        there = torch.isfinite(distance)
        assert there.any()
        for share in (0.5, 0.999):
            moved = torch.where(there, share * distance, 0.0)
            inner, inner_slopes, _ = along(function, moved, axes)
            assert (inner - values - slopes * moved.unsqueeze(1)).abs().amax() < 1e-12
            assert (inner_slopes - slopes).abs().amax() < 1e-12
        _, beyond_slopes, _ = along(function, torch.where(there, 1.001 * distance, 0.0), axes)
        bends.append((beyond_slopes - slopes).abs().amax(dim=1)[there] > 1e-9)
    hidden = "norm" in name or "transposed" in name  # a later layer may not let a kink through
    assert torch.cat(bends).any() if hidden else torch.cat(bends).all()


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda x: nn.functional.gelu(x), "smooth"),
        (lambda x: torch.softmax(x, dim=1), "smooth"),
        (lambda x: nn.functional.batch_norm(x, None, None, training=True), "smooth"),
        (lambda x: x * x, "smooth"),
        (lambda x: torch.sigmoid(torch.relu(x)), "smooth in pieces"),
        (lambda x: torch.relu(x) * torch.relu(x), "smooth in pieces"),
        (lambda x: nn.functional.hardsigmoid(x), "smooth in pieces"),
        (lambda x: torch.relu(x * x - 1), "neither"),
        (lambda x: x.sort(dim=1).values, "neither"),
        (lambda x: x + torch.relu(x.detach()), "neither"),
        (lambda x: x + x.data, "neither"),
        (lambda x: x + (5 * x).to(torch.int64), "neither"),
        (lambda x: x + (5 * x).long(), "neither"),
        (lambda x: x + torch.isclose(x, torch.zeros_like(x), atol=0.1), "neither"),
        (lambda x: x + torch.signbit(x), "neither"),
        (lambda x: x * float(x.sum()), "neither"),
        (lambda x: x + torch.from_numpy(x.detach().numpy()), "neither"),
        (lambda x: torch.relu(x.transpose(0, 1)).transpose(0, 1), "neither"),
        (lambda x: 2 * x.mean(dim=1) - 1, "linear in pieces"),
        (lambda x: torch.relu(x) * torch.full((1,), 2.0).to(x), "linear in pieces"),
    ],
)
def test_other_functions_are_told_apart(function: Callable[[Tensor], Tensor], kind: str) -> None:
    assert along(function, torch.zeros(COUNT, dtype=torch.float64))[2].kind == kind
