# [[Linear in a reentrant region], then Linear] in a reentrant region, inside an FP8 autocast; 1 iteration.

import sys

import torch
import transformer_engine.pytorch as te
from transformer_engine.common.recipe import DelayedScaling

recipe = DelayedScaling(amax_history_len=4)


def direct(function, *args): return function(*args)


def run(checkpoint):
    torch.manual_seed(0)
    linear1 = te.Linear(32, 32)
    linear2 = te.Linear(32, 32)
    model = torch.nn.ModuleDict({"linear1": linear1, "linear2": linear2})

    def block(x):
        return linear2(checkpoint(linear1, x))

    x = torch.randn(16, 32).cuda().requires_grad_()
    with te.autocast(recipe=recipe):
        out = checkpoint(block, x)
    out.backward(torch.randn(16, 32).to(out))
    gradients = [(f"{name}.grad", p.grad) for name, p in model.named_parameters()]
    return [("x.grad", x.grad), *gradients]


expected, observed = run(direct), run(te.checkpoint)
for (name, a), (_, b) in zip(expected, observed):
    off = (b - a).abs().max() / a.abs().max()
    print(f"{name}: expected as in the direct run, observed off by {off:.2%} of the largest")
sys.exit(not all(torch.equal(a, b) for (_, a), (_, b) in zip(expected, observed)))
