"""Every rule of the contract, checked by an abstract run that knows nothing of how a case was made."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from harness import case as c
from harness import record, validity
from harness.features import features
from strategies.contract import contract
from tests.strategies.abstract_run import (
    ENABLING,
    TE_KINDS,
    State,
    anchors,
    recognised,
    run,
    switches_gradients_on,
    with_pending,
)

draws = settings(database=None, deadline=None, derandomize=True, max_examples=150)


@draws
@given(contract())
def test_every_draw_is_a_valid_case_and_survives_json(case: c.Case) -> None:
    validity.check(case)
    assert validity.decode(c.encode(case)) == case


@draws
@given(contract())
def test_a_region_entered_with_gradients_on_is_given_one_that_needs_one_or_is_a_frozen_backbone(
    case: c.Case,
) -> None:
    for visit in run(case):
        if isinstance(visit.node, c.Region) and visit.state.gradients and not visit.given:
            leaves = [node for node in c.walk(visit.node) if isinstance(node, c.Module)]
            assert visit.node.use_reentrant
            assert all(leaf.frozen for leaf in leaves)


@draws
@given(contract())
def test_the_output_of_the_graph_needs_a_gradient(case: c.Case) -> None:
    assert run(case)[-1].result


@draws
@given(contract())
def test_b_what_cuts_gradients_stands_in_a_residual(case: c.Case) -> None:
    for visit in run(case):
        if isinstance(visit.node, c.GradMode) and visit.state.gradients and not visit.result:
            assert isinstance(visit.above[-1], c.Residual)


@draws
@given(contract())
def test_f_pytorch_is_not_asked_for_gradients_that_come_on_inside(case: c.Case) -> None:
    for visit in run(case):
        if isinstance(visit.node, c.Region) and not visit.state.gradients and not recognised(visit.node):
            inside = [n for n in c.walk(visit.node) if isinstance(n, c.GradMode)]
            assert not any(node.mode in ENABLING for node in inside)


@draws
@given(contract())
def test_c_gradients_made_without_recomputation_are_made_by_transformer_engine(case: c.Case) -> None:
    for visit in run(case):
        if isinstance(visit.node, c.Region) and not visit.state.gradients and visit.result:
            assert recognised(visit.node)


@draws
@given(contract())
def test_c_nothing_enables_gradients_under_inference_mode(case: c.Case) -> None:
    modes = {step.mode for step in case.schedule if isinstance(step, c.Evaluate)}
    states = [
        State(gradients=True),
        *(State(gradients=False, inference=m == "inference_mode") for m in modes),
    ]
    for visit in (visit for state in states for visit in run(case, state)):
        assert not (visit.state.inference and visit.state.gradients)


@draws
@given(contract())
def test_d_contexts_stand_only_where_transformer_engine_keeps_the_region(case: c.Case) -> None:
    for region in c.regions(case):
        assert region.contexts is None or recognised(region)


@draws
@given(contract())
def test_d_contexts_leave_the_recompute_its_gradients(case: c.Case) -> None:
    for visit in run(case):
        region = visit.node
        if isinstance(region, c.Region) and region.contexts is not None and visit.state.gradients:
            assert region.contexts.recompute != "no_grad"
            assert region.use_reentrant or region.contexts.forward != "no_grad"


@draws
@given(contract())
def test_e_every_region_saves_a_tensor(case: c.Case) -> None:
    for region in c.regions(case):
        assert anchors(region.body)


@draws
@given(contract())
def test_e_a_cut_inside_a_region_stands_in_a_chain_with_an_anchor(case: c.Case) -> None:
    for visit in run(case):
        is_cut = isinstance(visit.node, c.GradMode) and visit.node.mode not in ENABLING
        if is_cut and visit.region is not None:
            chain, residual = visit.above[-2:]
            assert isinstance(residual, c.Residual)
            assert isinstance(chain, c.Chain)
            assert any(anchors(node) for node in chain.nodes if node is not residual)


@draws
@given(contract())
def test_f_operations_stay_outside_regions(case: c.Case) -> None:
    for region in c.regions(case):
        assert not any(isinstance(node, c.OpsLinear) for node in c.walk(region))


@draws
@given(contract())
def test_f_pytorch_is_given_no_keyword_arguments_for_a_reentrant_region(case: c.Case) -> None:
    for region in c.regions(case):
        if region.gain is not None and region.gain.by_keyword and region.use_reentrant:
            assert recognised(region)


@draws
@given(contract())
def test_g_no_autocast_but_a_nested_one_closes_with_gradients_off(case: c.Case) -> None:
    for visit in run(case):
        if isinstance(visit.node, c.Autocast) and not any(isinstance(n, c.Autocast) for n in visit.above):
            assert visit.state.gradients


@draws
@given(contract())
def test_g_an_autocast_opened_inside_a_region_is_nested_or_the_region_is_non_reentrant(case: c.Case) -> None:
    for visit in run(case):
        if isinstance(visit.node, c.Autocast) and visit.region is not None:
            enclosed = any(isinstance(node, c.Autocast) and node.enabled for node in visit.above)
            assert enclosed or not visit.region.use_reentrant


@draws
@given(contract())
def test_g_fp8_is_switched_off_only_inside_an_autocast(case: c.Case) -> None:
    for visit in run(case):
        if isinstance(visit.node, c.Autocast) and not visit.node.enabled:
            assert any(isinstance(node, c.Autocast) and node.enabled for node in visit.above)


@draws
@given(contract())
def test_h_modules_with_dropout_keep_their_mode_between_forward_and_backward(case: c.Case) -> None:
    for step, pending in with_pending(case):
        if isinstance(step, c.SetMode) and pending:
            assert validity.dropout_of(c.modules(case)[step.module]) == 0


@draws
@given(contract())
def test_i_regions_are_not_nested_and_the_graph_is_small(case: c.Case) -> None:
    for region in c.regions(case):
        assert not any(isinstance(node, c.Region) for node in c.walk(region.body))
    assert 1 <= len(c.regions(case)) <= 3
    assert 1 <= sum(not isinstance(leaf, c.TorchDropout) for leaf in c.modules(case)) <= 5


def test_j_k_zero_magnitudes_and_graphs_without_fp8_are_inside_the_contract() -> None:
    met: set[bool | str] = set()
    for case in record.draw(contract(), 200, seed=1):
        met.update(step.magnitude == 0 for step in case.schedule if isinstance(step, c.Forward | c.Backward))
        if not any(isinstance(node, c.Autocast) for node in c.walk(case.graph)):
            met.add("FP8 off")
    assert met == {True, False, "FP8 off"}


@draws
@given(contract())
def test_l_an_evaluation_meets_no_region_with_gradients_on(case: c.Case) -> None:
    for step in case.schedule:
        if isinstance(step, c.Evaluate):
            visits = run(case, State(gradients=False, inference=step.mode == "inference_mode"))
            assert not any(v.state.gradients for v in visits if isinstance(v.node, c.Region))


@draws
@given(contract())
def test_m_the_first_forward_is_not_in_inference_mode(case: c.Case) -> None:
    forwards = [step for step in case.schedule if isinstance(step, c.Forward | c.Evaluate)]
    assert forwards[0] != c.Evaluate(forwards[0].magnitude, "inference_mode")


@draws
@given(contract())
def test_every_switch_of_a_mode_is_a_real_one(case: c.Case) -> None:
    training = [leaf.training for leaf in c.modules(case)]
    for step in case.schedule:
        if isinstance(step, c.SetMode):
            assert training[step.module] != step.training
            training[step.module] = step.training


@draws
@given(contract())
def test_b_nothing_switches_gradients_on_only_to_have_them_cut(case: c.Case) -> None:
    for visit in run(case):
        cuts = isinstance(visit.node, c.GradMode) and visit.node.mode not in ENABLING and not visit.result
        if cuts and visit.state.gradients:
            below = [node for node in c.walk(visit.node) if isinstance(node, c.GradMode)]
            assert not any(node.mode in ENABLING for node in below)


@draws
@given(contract())
def test_o_with_gradients_switched_on_no_frozen_mlp_looks_for_a_bias(case: c.Case) -> None:
    if any(isinstance(node, c.GradMode) and node.mode in ENABLING for node in c.walk(case.graph)):
        mlps = [leaf for leaf in c.modules(case) if isinstance(leaf, c.LayerNormMLP)]
        assert not any(leaf.frozen and leaf.normalization == "RMSNorm" for leaf in mlps)


@draws
@given(contract())
def test_p_nothing_frozen_leads_with_layernorm_linear_where_it_may_not_see_a_gradient(case: c.Case) -> None:
    visits = run(case)
    high = [v for v in visits if isinstance(v.node, TE_KINDS) and not v.state.fp8]
    reentrant = [region for region in c.regions(case) if region.use_reentrant]
    torchs = [n for region in reentrant for n in c.walk(region) if isinstance(n, c.TorchLinear)]
    if (high and any(v.state.fp8 for v in visits)) or torchs:
        kinds = (c.LayerNormLinear, c.MultiheadAttention, c.TransformerLayer)
        assert not any(isinstance(leaf, kinds) and leaf.frozen for leaf in c.modules(case))


@draws
@given(contract())
def test_n_with_a_tracker_no_region_has_dropout(case: c.Case) -> None:
    if case.rng_tracker:
        leaves = [node for region in c.regions(case) for node in c.walk(region) if isinstance(node, c.Module)]
        assert not any(validity.dropout_of(leaf) for leaf in leaves)


@draws
@given(contract())
def test_q_with_torch_autocast_no_reentrant_region_shares_a_cast(case: c.Case) -> None:
    if case.torch_autocast:
        for region in c.regions(case):
            linears = sum(isinstance(node, c.TorchLinear) for node in c.walk(region))
            assert linears < 2 or not region.use_reentrant


@draws
@given(contract())
def test_b_c_no_tuple_is_joined_where_gradients_were_only_on_inside_its_region(case: c.Case) -> None:
    for visit in run(case):
        region = visit.node
        if isinstance(region, c.Region) and region.results == "tuple" and not visit.state.gradients:
            assert not switches_gradients_on(region)


@draws
@given(contract())
def test_r_while_a_graph_is_pending_nothing_is_evaluated_and_no_parameter_changes(case: c.Case) -> None:
    for step, pending in with_pending(case):
        assert 0 <= pending <= 2
        if isinstance(step, c.Evaluate | c.OptimizerStep):
            assert not pending


@pytest.mark.parametrize(
    "feature",
    [
        "several forwards pending", "module that recomputes itself", "region that returns a tuple",
        "dropout drawn on the CPU", "RNG tracker", "autocast inside region",
    ],
)  # fmt: skip
def test_rare_features_are_drawn_often_enough_to_matter(feature: str) -> None:
    met = [case for case in record.draw(contract(), 500, seed=1) if feature in features(case)]
    assert len(met) >= 5


@draws
@given(contract())
def test_s_modules_that_recompute_themselves_stand_outside_regions_and_torch_autocast(case: c.Case) -> None:
    inside = [node for region in c.regions(case) for node in c.walk(region)]
    assert not any(isinstance(node, c.LayerNormMLP) and node.recompute for node in inside)
    recomputing = any(isinstance(leaf, c.LayerNormMLP) and leaf.recompute for leaf in c.modules(case))
    assert not (recomputing and case.torch_autocast)
