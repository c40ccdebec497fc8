# [a residual around [Linear in a non-reentrant region (contexts no_grad and null)]] inside an FP8 autocast; 1
# iteration.

import contextlib
import sys

import torch
import transformer_engine.pytorch as te
from transformer_engine.common.recipe import DelayedScaling
from transformer_engine.pytorch.quantization import FP8GlobalStateManager

recipe = DelayedScaling(amax_history_len=4)

torch.manual_seed(0)
linear = te.Linear(32, 32)

x = torch.randn(16, 32).cuda().requires_grad_()
with te.autocast(recipe=recipe):
    out = x + te.checkpoint(
        linear, x, use_reentrant=False, context_fn=lambda: (torch.no_grad(), contextlib.nullcontext())
    )
out.backward(torch.randn(16, 32).to(out))

queues = FP8GlobalStateManager.quantization_state.fp8_tensors_recompute_buffer
left = sum(len(queue) for queue in queues)
print("expected: 0 snapshots left in the recompute queues")
print(f"observed: {left} snapshots left in the recompute queues")
sys.exit(left > 0)
