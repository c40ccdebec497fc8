"""A run walks its schedule, keeps what the oracles need, and tells TE's errors from the harness's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pytest
import torch
import transformer_engine.pytorch as te

from harness import case as c
from harness.errors import HarnessFault
from harness.execute import Run, run_checkpointed, run_direct
from harness.inputs import Inputs
from harness.trace import TensorKey

if TYPE_CHECKING:
    from harness.session import Session
    from harness.trace import Trace

LINEAR = c.Autocast(c.Region(c.Linear()))
ONCE = (c.Forward(), c.Backward())


def direct(session: Session, case: c.Case) -> Trace:
    return run_direct(case, Inputs(case, session.backend.device), session.backend, session.probe)


def checkpointed(session: Session, case: c.Case, checkpointer: Any) -> Trace:
    inputs = Inputs(case, session.backend.device)
    return run_checkpointed(case, inputs, session.backend, session.probe, checkpointer)


def test_a_run_keeps_every_output_and_gradient_by_iteration(te_session: Session) -> None:
    trace = direct(te_session, c.Case(graph=LINEAR, schedule=(c.Evaluate(), *ONCE)))

    assert set(trace.tensors) == {
        TensorKey("output", 0),
        TensorKey("FP8 state", 0),
        TensorKey("output", 1),
        TensorKey("input gradient", 1),
        TensorKey("parameter gradient", 1, "body.body.weight"),
        TensorKey("parameter gradient", 1, "body.body.bias"),
        TensorKey("FP8 state", 1),
    }
    assert trace.error is None


def test_the_same_case_runs_to_the_same_bits(te_session: Session) -> None:
    case = c.Case(graph=LINEAR, schedule=ONCE * 2)
    first, second = direct(te_session, case), direct(te_session, case)
    assert all(torch.equal(first.tensors[key], second.tensors[key]) for key in first.tensors)  # type: ignore[arg-type]


def test_another_seed_gives_other_inputs_and_parameters(te_session: Session) -> None:
    case, other = (c.Case(graph=LINEAR, schedule=ONCE, seed=seed) for seed in (0, 1))
    key = TensorKey("output", 0)
    assert not torch.equal(direct(te_session, case).tensors[key], direct(te_session, other).tensors[key])  # type: ignore[arg-type]


def test_inputs_have_the_cases_shape_dtype_and_magnitude(te_session: Session) -> None:
    schedule = (c.Forward(1000.0), c.Backward(0.0))
    case = c.Case(graph=LINEAR, schedule=schedule, dtype="bfloat16", rows=32, width=64)
    inputs = Inputs(case, te_session.backend.device)

    assert (inputs[0].shape, inputs[0].dtype) == ((16, 2, 64), torch.bfloat16)
    assert 800 < float(inputs[0].float().std()) < 1200
    assert not inputs[1].any()
    with pytest.raises(HarnessFault, match="takes no tensor"):
        Inputs(c.Case(graph=LINEAR, schedule=(c.OptimizerStep(),)), te_session.backend.device)[0]


def test_an_optimizer_step_changes_what_follows(te_session: Session) -> None:
    key = TensorKey("output", 1)
    with_step = direct(te_session, c.Case(graph=LINEAR, schedule=(*ONCE, c.OptimizerStep(), *ONCE)))
    without = direct(te_session, c.Case(graph=LINEAR, schedule=ONCE * 2))
    assert not torch.equal(with_step.tensors[key], without.tensors[key])  # type: ignore[arg-type]


def test_an_error_ends_the_run_and_says_where(te_session: Session) -> None:
    def breaks(*_args: Any, **_kwargs: Any) -> Any:
        raise LookupError("first line\nsecond line")

    trace = checkpointed(te_session, c.Case(graph=LINEAR, schedule=ONCE * 2), breaks)

    assert trace.error is not None
    assert (trace.error.step, trace.error.doing, trace.error.type) == (0, "Forward", "LookupError")
    assert trace.error.message == "first line"
    assert trace.standstills == []


def test_an_error_of_the_harness_is_no_result(te_session: Session) -> None:
    def ours(*_args: Any, **_kwargs: Any) -> Any:
        raise HarnessFault("ours")

    with pytest.raises(HarnessFault, match="ours"):
        checkpointed(te_session, c.Case(graph=LINEAR, schedule=ONCE), ours)


def test_an_error_in_a_note_is_the_harnesss_own(te_session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_args: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Run, "_note", fails)
    with pytest.raises(ZeroDivisionError):
        direct(te_session, c.Case(graph=LINEAR, schedule=ONCE))


def test_an_error_in_the_recorder_is_a_fault_though_te_is_running(
    te_session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_args: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(te_session.probe, "queue", fails)
    with pytest.raises(HarnessFault, match="recorder failed: ZeroDivisionError"):
        checkpointed(te_session, c.Case(graph=LINEAR, schedule=ONCE), te.checkpoint)


def test_a_case_that_failed_does_not_poison_the_next(te_session: Session) -> None:
    def leaks(function: Any, x: torch.Tensor, **_options: Any) -> Any:
        import transformer_engine.pytorch as te

        with torch.enable_grad():
            te.checkpoint(function, x.detach().requires_grad_())
        raise RuntimeError("after a push")

    case = c.Case(graph=LINEAR, schedule=ONCE * 2)
    checkpointed(te_session, case, leaks)

    assert te_session.judge(case).held


def test_modes_are_set_on_the_module_named(te_session: Session) -> None:
    graph = c.Chain((c.Linear(), c.TorchDropout(p=0.5)))
    loud = direct(te_session, c.Case(graph=graph, schedule=ONCE))
    quiet = direct(te_session, c.Case(graph=graph, schedule=(c.SetMode(1, False), *ONCE)))
    key = TensorKey("output", 0)

    assert (loud.tensors[key] == 0).any()  # type: ignore[union-attr]
    assert not (quiet.tensors[key] == 0).any()  # type: ignore[union-attr]


def test_backwards_come_in_the_order_that_the_case_says(te_session: Session) -> None:
    """Directly, each backward gives the gradients of its own forward, whatever comes before it."""
    graph, forwards = c.Linear(), (c.Forward(), c.Forward(8.0))
    in_order = direct(te_session, c.Case(graph=graph, schedule=(*forwards, c.Backward(), c.Backward(8.0))))
    last_first = direct(
        te_session, c.Case(graph=graph, schedule=(*forwards, c.Backward(which=1), c.Backward(8.0)))
    )
    assert [k.iteration for k in in_order.tensors if k.quantity == "input gradient"] == [0, 1]
    assert [k.iteration for k in last_first.tensors if k.quantity == "input gradient"] == [1, 0]


def test_an_abandoned_forward_has_an_output_and_no_gradient(te_session: Session) -> None:
    schedule = (c.Forward(), c.Abandon(), c.Forward(), c.Backward())
    trace = direct(te_session, c.Case(graph=c.Linear(), schedule=schedule))
    assert trace.abandoned == {0}
    assert {k.iteration for k in trace.tensors if k.quantity == "output"} == {0, 1}
    assert {k.iteration for k in trace.tensors if k.quantity == "input gradient"} == {1}
    assert [standstill.iteration for standstill in trace.standstills] == [0, 1]


def test_deep_copied_modules_go_on_with_the_same_names_and_state(te_session: Session) -> None:
    case = c.Case(graph=LINEAR, schedule=(*ONCE, c.DeepCopy(), *ONCE))
    copied = checkpointed(te_session, case, te.checkpoint)
    kept = checkpointed(te_session, c.Case(graph=LINEAR, schedule=ONCE * 2), te.checkpoint)
    assert copied.events == kept.events
    assert copied.tensors.keys() == kept.tensors.keys()


def test_a_twin_is_a_copy_of_its_original_as_that_was_when_it_was_made(te_session: Session) -> None:
    graph = c.Chain((c.TorchLinear(), c.Twin(0)))
    steps = (*ONCE, c.OptimizerStep(), c.DeepCopy(beside=True), c.OptimizerStep(), *ONCE)
    tensors = direct(te_session, c.Case(graph=graph, schedule=steps)).tensors
    names = {key.name for key in tensors if key.quantity == "parameter gradient"}
    assert names == {"0.weight", "0.bias", "1.module.weight", "1.module.bias"}

    def output(*before: c.Step) -> torch.Tensor:
        case = c.Case(graph=graph, schedule=(*ONCE, *before, c.Evaluate()))
        found = direct(te_session, case).tensors[TensorKey("output", 1)]
        assert found is not None
        return found

    # Trained apart, a module and its twin differ; copied anew, they are one function again.
    assert not torch.equal(output(c.OptimizerStep()), output(c.OptimizerStep(), c.DeepCopy(beside=True)))
    assert torch.equal(output(), output(c.DeepCopy(beside=True)))


def test_a_loaded_state_is_that_of_when_it_was_saved(te_session: Session) -> None:
    steps = (c.SaveState(), *ONCE, c.OptimizerStep(), c.LoadState(), c.Evaluate())
    loaded = direct(te_session, c.Case(graph=c.TorchLinear(), schedule=steps))
    trained = direct(te_session, c.Case(graph=c.TorchLinear(), schedule=(*steps[:4], steps[5])))
    key = TensorKey("output", 1)
    assert not torch.equal(loaded.tensors[key], trained.tensors[key])  # type: ignore[arg-type]


def test_an_error_inside_an_autocast_of_several_steps_closes_it(te_session: Session) -> None:
    def raising(*_args: Any, **_kwargs: Any) -> Any:
        raise ZeroDivisionError

    schedule = (c.OpenAutocast(), *ONCE, c.CloseAutocast())
    trace = checkpointed(te_session, c.Case(graph=c.Region(c.Linear()), schedule=schedule), raising)
    assert trace.error is not None
    assert dict(te_session.probe.flags())["autocast depth"] == "0"


@pytest.mark.parametrize(
    "steps", [(c.Forward(fails=0),), (c.Forward(), c.Backward(fails=0))], ids=["forward", "backward"]
)
def test_a_planned_error_ends_its_iteration_and_nothing_else(
    te_session: Session, steps: tuple[c.Step, ...]
) -> None:
    case = c.Case(graph=LINEAR, schedule=(*steps, *ONCE))
    for trace in (direct(te_session, case), checkpointed(te_session, case, te.checkpoint)):
        assert trace.failed == [len(steps) - 1]
        assert trace.mixed == {0}
        assert TensorKey("input gradient", 0) not in trace.tensors
        assert TensorKey("input gradient", 1) in trace.tensors


def test_each_backward_of_a_retained_graph_is_kept_as_it_was(te_session: Session) -> None:
    schedule = (c.Forward(), c.Backward(retain=True), c.Backward())
    trace = direct(te_session, c.Case(graph=c.TorchLinear(), schedule=schedule))
    first = trace.tensors[TensorKey("parameter gradient", 0, "weight")]
    both = trace.tensors[TensorKey("parameter gradient", 0, "weight (backward 2)")]
    assert first is not None
    assert both is not None
    assert not torch.equal(first, both)


def test_losses_added_up_give_each_input_its_gradient(te_session: Session) -> None:
    schedule = (c.Forward(), c.Forward(8.0), c.Backward(losses=2))
    trace = direct(te_session, c.Case(graph=LINEAR, schedule=schedule))
    assert {k.iteration for k in trace.tensors if k.quantity == "input gradient"} == {0, 1}
    assert trace.mixed == {0, 1}


def test_both_functions_of_autograd_give_the_same_gradients(te_session: Session) -> None:
    ways: tuple[Literal["backward", "grad"], ...] = ("backward", "grad")
    traces = [
        direct(te_session, c.Case(graph=LINEAR, schedule=(c.Forward(), c.Backward(way=way)))) for way in ways
    ]
    gradients = [
        {key: t for key, t in trace.tensors.items() if "gradient" in key.quantity} for trace in traces
    ]
    assert gradients[0].keys() == gradients[1].keys()
    assert all(torch.equal(gradients[0][key], gradients[1][key]) for key in gradients[0])  # type: ignore[arg-type]
