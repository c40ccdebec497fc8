# Linear in a reentrant region, inside an FP8 autocast; 1 iteration, 1 evaluation under inference_mode.

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

    with torch.inference_mode():
        forward(torch.randn(16, 32).cuda())
    x = torch.randn(16, 32).cuda().requires_grad_()
    out = forward(x)
    out.backward(torch.randn(16, 32).to(out))


run(direct)
print("expected: no error")
try:
    run(te.checkpoint)
except Exception as error:
    print(f"observed: {type(error).__name__}: {error}")
    sys.exit(1)
print("observed: no error")
