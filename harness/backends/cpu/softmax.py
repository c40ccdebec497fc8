"""The fused scale, mask and softmax of unfused attention.

Mirrors ``common/fused_softmax`` and ``pytorch/csrc/extensions/softmax.cpp``: half-precision in and out,
float32 in between. TE's Python uses them for those types only, and torch's softmax otherwise.
"""

from __future__ import annotations

import torch

from harness.backends.cpu.kernel import kernel

_MASKED = -10000.0


def _forward(scores: torch.Tensor, blocked: torch.Tensor | None = None) -> torch.Tensor:
    """Return the softmax of float32 ``scores``; what is ``blocked`` gets probability 0."""
    if blocked is not None:
        scores = scores.masked_fill(blocked, -torch.inf)
    return torch.softmax(scores, dim=-1)


def _backward(grads: torch.Tensor, probabilities: torch.Tensor, scale: float) -> torch.Tensor:
    weighted = grads.float() * probabilities.float()
    total = weighted.sum(-1, keepdim=True)
    return ((weighted - probabilities.float() * total) * scale).to(grads.dtype)


def _later_keys(scores: torch.Tensor) -> torch.Tensor:
    """Mark the keys that come after a query, queries and keys aligned at their ends."""
    queries, keys = scores.shape[-2:]
    return torch.ones(queries, keys, dtype=torch.bool).triu(1 + keys - queries)


@kernel
def scaled_softmax_forward(scores: torch.Tensor, scale: float) -> torch.Tensor:
    """Return softmax(scores * scale) over the keys; scores (batch, heads, queries, keys)."""
    return _forward(scores.float() * scale).to(scores.dtype)


@kernel
def scaled_masked_softmax_forward(scores: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
    """Return the softmax with the keys where ``mask`` is nonzero at -10000; a row of nothing else is zero."""
    masked = torch.where(mask.bool(), _MASKED, scores.float() * scale)
    probabilities = _forward(masked)
    empty = masked.amax(-1, keepdim=True) == _MASKED
    return probabilities.masked_fill_(empty, 0.0).to(scores.dtype)


@kernel
def scaled_upper_triang_masked_softmax_forward(scores: torch.Tensor, scale: float) -> torch.Tensor:
    """Return the causal softmax; scores (batch * heads, queries, keys), square."""
    return _forward(scores.float() * scale, _later_keys(scores)).to(scores.dtype)


@kernel
def scaled_aligned_causal_masked_softmax_forward(scores: torch.Tensor, scale: float) -> torch.Tensor:
    """Return the causal softmax with queries and keys aligned at their ends."""
    return _forward(scores.float() * scale, _later_keys(scores)).to(scores.dtype)


@kernel
def scaled_softmax_backward(grads: torch.Tensor, probabilities: torch.Tensor, scale: float) -> torch.Tensor:
    """Return the gradient with respect to the unscaled scores."""
    return _backward(grads, probabilities, scale)


# A masked key has probability 0, which carries its gradient to 0 as well: one backward serves all four.
scaled_masked_softmax_backward = scaled_softmax_backward
scaled_upper_triang_masked_softmax_backward = scaled_softmax_backward
scaled_aligned_causal_masked_softmax_backward = scaled_softmax_backward
