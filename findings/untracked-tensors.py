# [Linear inside an FP8 autocast], then [Linear in a reentrant region (given its input by keyword too), inside
# an FP8 autocast]; 1 iteration.

import sys

import torch
import transformer_engine.pytorch as te
from transformer_engine.common.recipe import DelayedScaling

recipe = DelayedScaling(amax_history_len=4)


def direct(function, *args, **kwargs): return function(*args, **kwargs)


def run(checkpoint):
    torch.manual_seed(0)
    linear1 = te.Linear(32, 32)
    linear2 = te.Linear(32, 32)

    def block(x, also):
        return linear2(x) + also

    x = torch.randn(16, 32).cuda().requires_grad_()
    with te.autocast(recipe=recipe):
        y = linear1(x)
    with te.autocast(recipe=recipe):
        out = checkpoint(block, y, also=y)
    out.backward(torch.randn(16, 32).to(out))


run(direct)
print("expected: no error")
try:
    run(te.checkpoint)
except Exception as error:
    print(f"observed: {type(error).__name__}: {error}")
    sys.exit(1)
print("observed: no error")
