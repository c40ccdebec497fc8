# [Linear in a reentrant region, inside an FP8 autocast], then TorchDropout; 1 iteration, region 0 raising in
# a backward.

import contextlib
import sys

import torch
import transformer_engine.pytorch as te
from transformer_engine.common.recipe import DelayedScaling

recipe = DelayedScaling(amax_history_len=4)

torch.manual_seed(0)
linear = te.Linear(32, 32)
dropout = torch.nn.Dropout(0.1)
failing = False


def block(x):
    out = linear(x)
    if failing:
        raise InterruptedError
    return out


x = torch.randn(16, 32).cuda().requires_grad_()
with te.autocast(recipe=recipe):
    y = te.checkpoint(block, x)
out = dropout(y)
before = torch.cuda.get_rng_state()
failing = True
with contextlib.suppress(InterruptedError):
    out.backward(torch.randn(16, 32).to(out))

same = torch.equal(torch.cuda.get_rng_state(), before)
print("expected: the random state from before the backward")
print("observed:", "that state" if same else "another")
sys.exit(not same)
