# Linear inside an FP8 autocast, in a reentrant region; 1 iteration.

import sys

import torch
import transformer_engine.pytorch as te
from transformer_engine.common.recipe import DelayedScaling

recipe = DelayedScaling(amax_history_len=4)


def direct(function, *args): return function(*args)


def run(checkpoint):
    torch.manual_seed(0)
    linear = te.Linear(32, 32)

    def block(x):
        with te.autocast(recipe=recipe):
            return linear(x)

    x = torch.randn(16, 32).cuda().requires_grad_()
    out = checkpoint(block, x)
    out.backward(torch.randn(16, 32).to(out))
    return linear.fp8_meta["scaling_fwd"].scale.clone()


expected, observed = run(direct), run(te.checkpoint)
print(f"expected forward scale: {expected.tolist()}")
print(f"observed forward scale: {observed.tolist()}")
sys.exit(not torch.equal(expected, observed))
