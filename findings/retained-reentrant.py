# TorchLinear in a reentrant region (as a callable); 1 iteration, a graph retained.

import sys

import torch
import transformer_engine.pytorch as te


def direct(function, *args): return function(*args)


def run(checkpoint):
    torch.manual_seed(0)
    torch_linear = torch.nn.Linear(32, 32, device="cuda")
    x = torch.randn(16, 32).cuda().requires_grad_()
    out = checkpoint(lambda x: torch_linear(x), x)
    out.backward(torch.randn(16, 32).to(out), retain_graph=True)
    out.backward(torch.randn(16, 32).to(out))


run(direct)
print("expected: no error")
try:
    run(te.checkpoint)
except Exception as error:
    print(f"observed: {type(error).__name__}: {error}")
    sys.exit(1)
print("observed: no error")
