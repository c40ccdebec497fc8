# [Linear in a reentrant region, inside an FP8 autocast], then [Linear inside an FP8 autocast with a recipe of
# its own (DelayedScaling, E4M3, history 4, max)]; 2 iterations, up to 2 forwards before a backward.

import sys

import torch
import transformer_engine.pytorch as te
from transformer_engine.common.recipe import DelayedScaling, Format

recipe = DelayedScaling(fp8_format=Format.E4M3, amax_history_len=4, amax_compute_algo="most_recent")


def direct(function, *args): return function(*args)


def run(checkpoint):
    torch.manual_seed(0)
    linear1 = te.Linear(32, 32)
    linear2 = te.Linear(32, 32)

    def forward(x):
        with te.autocast(recipe=recipe):
            x = checkpoint(linear1, x)
        with te.autocast(recipe=DelayedScaling(fp8_format=Format.E4M3, amax_history_len=4)):
            return linear2(x)

    x1 = torch.randn(16, 32).cuda().requires_grad_()
    out1 = forward(x1)
    x2 = torch.randn(16, 32).cuda().requires_grad_()
    out2 = forward(x2)
    out1.backward(torch.randn(16, 32).to(out1))
    out2.backward(torch.randn(16, 32).to(out2))
    return linear2.fp8_meta["scaling_bwd"].scale.clone()


expected, observed = run(direct), run(te.checkpoint)
print(f"expected backward scale: {expected.tolist()}")
print(f"observed backward scale: {observed.tolist()}")
sys.exit(not torch.equal(expected, observed))
