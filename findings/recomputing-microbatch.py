# LayerNormMLP (recompute) inside an FP8 autocast; 2 iterations, inputs of size 1 and 8, first microbatches
# told from others (2 times).

import sys

import torch
import transformer_engine.pytorch as te
from transformer_engine.common.recipe import DelayedScaling

recipe = DelayedScaling(amax_history_len=4)


def run(recompute):
    torch.manual_seed(0)
    mlp = te.LayerNormMLP(32, 64, checkpoint=recompute)

    def forward(x, first=None):
        with te.autocast(recipe=recipe):
            return mlp(x, is_first_microbatch=first)

    def step(size, first=None):
        mlp.zero_grad()
        x = (size * torch.randn(16, 32)).cuda().requires_grad_()
        out = forward(x, first)
        out.backward(torch.randn(16, 32).to(out))
        gradients = [(f"{name}.grad", p.grad) for name, p in mlp.named_parameters()]
        return [("x.grad", x.grad), *gradients]

    step(1, True)
    return step(8, False)


expected, observed = run(False), run(True)
for (name, a), (_, b) in zip(expected, observed):
    off = (b - a).abs().max() / a.abs().max()
    print(f"{name}: expected as in the direct run, observed off by {off:.2%} of the largest")
sys.exit(not all(torch.equal(a, b) for (_, a), (_, b) in zip(expected, observed)))
