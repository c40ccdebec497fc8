# Linear in a reentrant region, inside an FP8 autocast; 2 iterations, 1 evaluation under no_grad.

import sys

import torch
import transformer_engine.pytorch as te
from transformer_engine.common.recipe import DelayedScaling

recipe = DelayedScaling(amax_history_len=4)


def direct(function, *args): return function(*args)


def run(checkpoint):
    torch.manual_seed(0)
    linear = te.Linear(32, 32)

    def forward(x):
        with te.autocast(recipe=recipe):
            return checkpoint(linear, x)

    x1 = torch.randn(16, 32).cuda().requires_grad_()
    out1 = forward(x1)
    with torch.no_grad():
        forward((100 * torch.randn(16, 32)).cuda())
    out1.backward(torch.randn(16, 32).to(out1))
    linear.zero_grad()
    x3 = torch.randn(16, 32).cuda().requires_grad_()
    out3 = forward(x3)
    out3.backward(torch.randn(16, 32).to(out3))
    gradients = [(f"{name}.grad", p.grad) for name, p in linear.named_parameters()]
    return [("out3", out3), *gradients]


expected, observed = run(direct), run(te.checkpoint)
for (name, a), (_, b) in zip(expected, observed):
    off = (b - a).abs().max() / a.abs().max()
    print(f"{name}: expected as in the direct run, observed off by {off:.2%} of the largest")
sys.exit(not all(torch.equal(a, b) for (_, a), (_, b) in zip(expected, observed)))
