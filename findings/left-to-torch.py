# TorchLinear in a reentrant region (gain 2 as a float by keyword); 1 iteration.

import sys

import torch
import transformer_engine.pytorch as te


def direct(function, *args, **kwargs): return function(*args, **kwargs)


def run(checkpoint):
    torch.manual_seed(0)
    torch_linear = torch.nn.Linear(32, 32, device="cuda")

    class Block(torch.nn.Module):
        def forward(self, x, gain):
            return torch_linear(x) * gain

    x = torch.randn(16, 32).cuda().requires_grad_()
    out = checkpoint(Block(), x, gain=2.0)
    out.backward(torch.randn(16, 32).to(out))


run(direct)
print("expected: no error")
try:
    run(te.checkpoint)
except Exception as error:
    print(f"observed: {type(error).__name__}: {error}")
    sys.exit(1)
print("observed: no error")
