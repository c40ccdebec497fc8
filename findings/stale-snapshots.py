# Linear in a reentrant region, inside an FP8 autocast; 2 iterations, inputs of size 1 and 8, a forward
# abandoned.

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

    forward(torch.randn(16, 32).cuda().requires_grad_())  # its backward never comes
    x = (8 * torch.randn(16, 32)).cuda().requires_grad_()
    out = forward(x)
    out.backward(torch.randn(16, 32).to(out))
    gradients = [(f"{name}.grad", p.grad) for name, p in linear.named_parameters()]
    return [("x.grad", x.grad), *gradients]


expected, observed = run(direct), run(te.checkpoint)
for (name, a), (_, b) in zip(expected, observed):
    off = (b - a).abs().max() / a.abs().max()
    print(f"{name}: expected as in the direct run, observed off by {off:.2%} of the largest")
sys.exit(not all(torch.equal(a, b) for (_, a), (_, b) in zip(expected, observed)))
