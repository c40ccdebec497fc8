# MultiheadAttention (dropout 0.1) in a reentrant region, inside an FP8 autocast; 1 iteration. With an RNG
# tracker.

import os
import sys

os.environ.update(NVTE_FLASH_ATTN="0", NVTE_FUSED_ATTN="0")

import torch
import transformer_engine.pytorch as te
from transformer_engine.common.recipe import DelayedScaling

recipe = DelayedScaling(amax_history_len=4)


def direct(function, *args, get_rng_state_tracker=None): return function(*args)


def run(checkpoint):
    torch.manual_seed(0)
    tracker = te.CudaRNGStatesTracker()
    tracker.add("model-parallel-rng", 1)
    attention = te.MultiheadAttention(
        32, 2, attn_mask_type="no_mask", attention_dropout=0.1, get_rng_state_tracker=lambda: tracker
    )
    x = torch.randn(8, 2, 32).cuda().requires_grad_()
    with te.autocast(recipe=recipe):
        out = checkpoint(attention, x, get_rng_state_tracker=lambda: tracker)
    out.backward(torch.randn(8, 2, 32).to(out))
    gradients = [(f"{name}.grad", p.grad) for name, p in attention.named_parameters()]
    return [("x.grad", x.grad), *gradients]


expected, observed = run(direct), run(te.checkpoint)
for (name, a), (_, b) in zip(expected, observed):
    off = (b - a).abs().max() / a.abs().max()
    print(f"{name}: expected as in the direct run, observed off by {off:.2%} of the largest")
sys.exit(not all(torch.equal(a, b) for (_, a), (_, b) in zip(expected, observed)))
