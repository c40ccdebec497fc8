# Linear in a non-reentrant region, inside an FP8 autocast; 1 iteration. With an input that needs no gradient.

import sys

import torch
import transformer_engine.pytorch as te
from transformer_engine.common.recipe import DelayedScaling

recipe = DelayedScaling(amax_history_len=4)


def direct(function, *args, use_reentrant=True): return function(*args)


def run(checkpoint):
    torch.manual_seed(0)
    linear = te.Linear(32, 32)
    x = torch.randn(16, 32).cuda()
    with te.autocast(recipe=recipe):
        out = checkpoint(linear, x, use_reentrant=False)
    out.backward(torch.randn(16, 32).to(out))


run(direct)
print("expected: no error")
try:
    run(te.checkpoint)
except Exception as error:
    print(f"observed: {type(error).__name__}: {error}")
    sys.exit(1)
print("observed: no error")
