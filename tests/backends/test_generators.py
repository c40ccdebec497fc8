"""Where random numbers come from, and which of them a checkpoint repeats. True of both backends."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.backends.test_modules import autocast, recipe

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.backends.base import Backend

NAME = "model-parallel-rng"
REENTRANT = pytest.mark.parametrize("use_reentrant", [False, True], ids=["non_reentrant", "reentrant"])


def mask(backend: Backend) -> torch.Tensor:
    """Draw as dropout does: from the device's generator."""
    return torch.nn.functional.dropout(torch.ones(100, device=backend.device))


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a, b)


def new_tracker(seed: int = 5) -> Any:
    import transformer_engine.pytorch as te

    tracker = te.CudaRNGStatesTracker()
    tracker.add(NAME, seed)
    return tracker


def device_generator() -> Any:
    return torch.cuda.default_generators[0]


# --- The generators ---


def test_dropout_moves_the_devices_generator_and_leaves_the_cpus(backend: Backend) -> None:
    cpu, device = backend.rng_states()
    mask(backend)
    later_cpu, later_device = backend.rng_states()
    assert same(later_cpu, cpu)
    assert not same(later_device, device)


def test_rewinding_the_cpus_generator_rewinds_no_dropout(backend: Backend) -> None:
    before = torch.get_rng_state()
    first = mask(backend)
    torch.set_rng_state(before)
    assert not same(mask(backend), first)


def test_a_copied_state_of_the_device_rewinds_its_dropout(backend: Backend) -> None:
    before = torch.cuda.get_rng_state()
    first = mask(backend)
    torch.cuda.set_rng_state(before)
    assert same(mask(backend), first)


def test_seeding_seeds_both_generators(backend: Backend) -> None:
    backend.seed(3)
    states = backend.rng_states()
    first = mask(backend)
    backend.seed(4)
    assert not any(map(same, backend.rng_states(), states))
    backend.seed(3)
    assert all(map(same, backend.rng_states(), states))
    assert torch.initial_seed() == torch.cuda.initial_seed() == 3
    assert same(mask(backend), first)


def test_seeding_the_device_at_random_leaves_the_cpus_generator(backend: Backend) -> None:
    cpu, device = backend.rng_states()
    torch.cuda.seed()
    later_cpu, later_device = backend.rng_states()
    assert same(later_cpu, cpu)
    assert not same(later_device, device)


# --- Shared states ---


def test_a_state_taken_by_reference_goes_on_changing(backend: Backend) -> None:
    generator = device_generator()
    kept = generator.graphsafe_get_state()
    first = mask(backend)
    assert same(kept.get_state(), generator.get_state())
    generator.graphsafe_set_state(kept)
    assert not same(mask(backend), first)


def test_a_cloned_state_stays_as_it_was(backend: Backend) -> None:
    generator = device_generator()
    outer = generator.graphsafe_get_state()
    before = generator.get_state()
    clone = generator.clone_state()
    first = mask(backend)
    assert same(clone.get_state(), before)
    generator.graphsafe_set_state(clone)
    assert same(mask(backend), first)
    generator.graphsafe_set_state(outer)


def test_what_is_done_to_a_state_that_is_not_current_changes_no_dropout(backend: Backend) -> None:
    backend.seed(3)
    first = mask(backend)
    backend.seed(3)
    clone = device_generator().clone_state()
    clone.manual_seed(9)
    clone.set_state(clone.get_state())
    assert clone.initial_seed() == 9
    assert device_generator().initial_seed() == 3
    assert same(mask(backend), first)


def test_a_state_takes_what_was_written_to_it_along_when_it_becomes_current(backend: Backend) -> None:
    backend.seed(9)
    first = mask(backend)
    generator = device_generator()
    outer, other = generator.graphsafe_get_state(), generator.clone_state()
    other.manual_seed(9)
    generator.graphsafe_set_state(other)
    assert same(mask(backend), first)
    generator.graphsafe_set_state(outer)


# --- The tracker ---


def test_te_keeps_a_trackers_states_as_generators() -> None:
    assert all(isinstance(state, torch.Generator) for state in new_tracker().get_states().values())


def test_a_fork_leaves_the_outer_numbers_alone(backend: Backend) -> None:
    backend.seed(3)
    first = mask(backend)
    backend.seed(3)
    with new_tracker().fork():
        assert not same(mask(backend), first)
    assert same(mask(backend), first)


def test_a_second_fork_goes_on_where_the_first_one_ended(backend: Backend) -> None:
    with new_tracker().fork():
        expected = [mask(backend) for _ in range(2)]
    tracker = new_tracker()
    found = []
    for _ in expected:
        with tracker.fork():
            found.append(mask(backend))
        mask(backend)
    assert all(map(same, found, expected))


def test_seeding_ends_a_fork_that_was_left_open(emulation: Backend) -> None:
    tracker = new_tracker()
    # Held, for it would close when collected.
    fork = tracker.fork()
    fork.__enter__()
    (forked,) = tracker.get_states().values()
    kept = forked.get_state()
    emulation.seed(3)
    mask(emulation)
    assert same(forked.get_state(), kept)


# --- What a checkpoint repeats ---


def masks_of_both_phases(
    backend: Backend,
    draw: Callable[[], torch.Tensor],
    *,
    use_reentrant: bool,
    **options: Any,
) -> list[torch.Tensor]:
    """Draw in a checkpointed region, and return what its forward and its recompute drew."""
    import transformer_engine.pytorch as te

    drawn: list[torch.Tensor] = []

    def region(x: torch.Tensor) -> torch.Tensor:
        drawn.append(draw())
        return x * drawn[-1]

    x = torch.ones(100, device=backend.device, requires_grad=True)
    te.checkpoint(region, x, use_reentrant=use_reentrant, **options).sum().backward()
    return drawn


@REENTRANT
def test_without_a_tracker_a_recompute_draws_the_mask_of_its_forward(
    backend: Backend, use_reentrant: bool
) -> None:
    forward, recompute = masks_of_both_phases(backend, lambda: mask(backend), use_reentrant=use_reentrant)
    assert same(recompute, forward)


@REENTRANT
@pytest.mark.parametrize("forked", [True, False], ids=["in_a_fork", "outside_of_forks"])
def test_with_a_tracker_a_recompute_draws_other_numbers_than_its_forward(
    backend: Backend, use_reentrant: bool, forked: bool
) -> None:
    """A fault of TE: the states that its checkpoint goes back to are references, and have moved on.

    Until 2.11 it keeps a copy of the device's own state, so only what is drawn in a fork is not repeated.
    """
    from transformer_engine.pytorch import distributed

    by_reference = forked or hasattr(distributed, "is_graph_safe_rng_state")
    tracker = new_tracker()

    def draw() -> torch.Tensor:
        with tracker.fork() if forked else nullcontext():
            return mask(backend)

    forward, recompute = masks_of_both_phases(
        backend, draw, use_reentrant=use_reentrant, get_rng_state_tracker=lambda: tracker
    )
    assert same(recompute, forward) == (not by_reference)


@REENTRANT
@pytest.mark.parametrize("module", ["transformer_layer", "torch"])
def test_without_a_tracker_gradients_are_those_of_the_direct_run(
    backend: Backend, use_reentrant: bool, module: str
) -> None:
    import transformer_engine.pytorch as te

    results = []
    for checkpointed in (False, True):
        backend.seed(11)
        layer: torch.nn.Module = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Dropout())
        if module == "transformer_layer":
            layer = te.TransformerLayer(32, 64, 4, hidden_dropout=0.2, attention_dropout=0.2)
        layer.to(backend.device)
        x = torch.randn(16, 2, 32, device=backend.device).requires_grad_()
        with autocast(recipe("delayed")):
            out = te.checkpoint(layer, x, use_reentrant=use_reentrant) if checkpointed else layer(x)
        out.sum().backward()
        results.append([out, x.grad, *(parameter.grad for parameter in layer.parameters())])
    assert all(map(same, *results))
