# [Linear in a reentrant region, inside an FP8 autocast], then [module 0 again]; 1 iteration.

import sys

import torch
import transformer_engine.pytorch as te
from transformer_engine.common.recipe import DelayedScaling

recipe = DelayedScaling(amax_history_len=4)


def direct(function, *args): return function(*args)


def run(checkpoint):
    torch.manual_seed(0)
    linear = te.Linear(32, 32)
    x = torch.randn(16, 32).cuda().requires_grad_()
    with te.autocast(recipe=recipe):
        y = checkpoint(linear, x)
    out = linear(y)
    out.backward(torch.randn(16, 32).to(out))


run(direct)
print("expected: no error")
try:
    run(te.checkpoint)
except Exception as error:
    print(f"observed: {type(error).__name__}: {error}")
    sys.exit(1)
print("observed: no error")
