# [[Linear in a reentrant region], then [a copy of module 0 in a reentrant region]] inside an FP8 autocast.

import copy
import sys

import torch
import transformer_engine.pytorch as te
from transformer_engine.common.recipe import DelayedScaling

recipe = DelayedScaling(amax_history_len=4)


def direct(function, *args): return function(*args)


def run(checkpoint):
    torch.manual_seed(0)
    linear = te.Linear(32, 32)
    linear_copy = copy.deepcopy(linear)
    model = torch.nn.ModuleDict({"linear": linear, "linear_copy": linear_copy})

    def step(size):
        model.zero_grad()
        x = (size * torch.randn(16, 32)).cuda().requires_grad_()
        with te.autocast(recipe=recipe):
            out = checkpoint(linear_copy, checkpoint(linear, x))
        out.backward(torch.randn(16, 32).to(out))
        return [(f"{name}.grad", p.grad) for name, p in model.named_parameters()]

    step(1)
    model["linear_copy"] = linear_copy = copy.deepcopy(linear)
    step(8)
    return step(8)


expected, observed = run(direct), run(te.checkpoint)
for (name, a), (_, b) in zip(expected, observed):
    off = (b - a).abs().max() / a.abs().max()
    print(f"{name}: expected as in the direct run, observed off by {off:.2%} of the largest")
sys.exit(not all(torch.equal(a, b) for (_, a), (_, b) in zip(expected, observed)))
