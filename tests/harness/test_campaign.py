"""A campaign draws what its seed says, keeps kinds of failures apart, and shrinks each."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import strategies as st

from harness import case as c
from harness import known_issues
from harness.campaign import CHUNK, JudgingFault, chunks, run_chunk
from harness.errors import HarnessFault, ReleaseLacks
from harness.failure import kind_of, known_in
from harness.tally import Tally
from harness.trace import RunError
from harness.verdict import Verdict
from harness.violations import Violation
from strategies.domains import DOMAINS

BODIES = st.lists(
    st.sampled_from([c.Linear(), c.Linear(training=False), c.TorchGELU()]), min_size=1, max_size=4
)
CASES = st.builds(
    lambda bodies, iterations, evaluations: c.Case(
        graph=c.Chain(tuple(bodies)),
        schedule=(c.Evaluate(),) * evaluations + (c.Forward(), c.Backward()) * iterations,
    ),
    BODIES,
    st.integers(1, 3),
    st.integers(0, 2),
)


def verdict(case: c.Case, *names: str) -> Verdict:
    violations = tuple(Violation(oracle=name, iteration=0, message="x") for name in names)  # type: ignore[arg-type]
    return Verdict(fingerprint=case.fingerprint, violations=violations)


def judge(case: c.Case) -> Verdict:
    """Two faults: eval modules make outputs differ, evaluations leave snapshots."""
    found = []
    if any(not module.training for module in c.modules(case)):
        found.append("outputs")
    if any(isinstance(step, c.Evaluate) for step in case.schedule):
        found.append("FIFO drained")
    return verdict(case, *found)


def drawn(seed: int, cases: int) -> list[str]:
    seen: list[str] = []
    run_chunk(lambda case: verdict(case), CASES, seed, cases, lambda case, _: seen.append(case.fingerprint))
    return seen


def test_the_same_seed_draws_the_same_cases_and_another_seed_others() -> None:
    assert drawn(1, 40) == drawn(1, 40)
    assert drawn(1, 40) != drawn(2, 40)


def test_every_case_asked_for_is_drawn_and_observed_though_some_fail() -> None:
    seen: list[str] = []
    run_chunk(judge, CASES, 0, 60, lambda case, _: seen.append(case.fingerprint))
    assert len(seen) == len(set(seen)) == 60


def test_each_kind_of_failure_is_shrunk_apart() -> None:
    failures = {failure.kind: failure.case for failure in run_chunk(judge, CASES, 0, 60, lambda *_: None)}

    once = (c.Forward(), c.Backward())
    assert failures == {
        "FIFO drained": c.Case(graph=c.Chain((c.Linear(),)), schedule=(c.Evaluate(), *once)),
        "outputs": c.Case(graph=c.Chain((c.Linear(training=False),)), schedule=once),
    }


def test_a_failure_is_named_after_the_violation_nearest_to_its_cause() -> None:
    case = c.Case(graph=c.Linear(), schedule=(c.Evaluate(),))
    assert kind_of(case, verdict(case, "outputs", "pairing")) == "pairing"
    assert kind_of(case, verdict(case)) is None


def test_a_fault_of_the_harness_ends_the_chunk_with_its_case() -> None:
    calls = Counter[str]()

    def broken(_case: c.Case) -> Verdict:
        calls["judge"] += 1
        raise ZeroDivisionError("ours")

    with pytest.raises(JudgingFault, match="ZeroDivisionError: ours") as caught:
        run_chunk(broken, CASES, 0, 50, lambda *_: None)
    assert isinstance(caught.value, HarnessFault)
    assert isinstance(caught.value.case, c.Case)
    assert calls["judge"] == 1, "a fault of the harness is not shrunk"


def test_a_case_that_raises_even_directly_proves_nothing_and_is_a_fault() -> None:
    def raises(case: c.Case) -> Verdict:
        error = RunError(0, "Forward", 0, "NotImplementedError", "no such kernel")
        return Verdict(fingerprint=case.fingerprint, violations=(), direct_error=error)

    with pytest.raises(JudgingFault, match="the direct run raised NotImplementedError"):
        run_chunk(raises, CASES, 0, 50, lambda *_: None)


def without_eval(case: c.Case) -> Verdict:
    """A release that lacks all modules in eval mode, and fails in every evaluation."""
    if any(not module.training for module in c.modules(case)):
        raise ReleaseLacks("2.1.0", "eval mode")
    return judge(case)


def test_a_case_that_the_release_cannot_run_is_counted_and_the_drawing_goes_on() -> None:
    seen: list[str] = []
    lacking: list[str] = []
    failures = run_chunk(
        without_eval,
        CASES,
        0,
        60,
        lambda case, _: seen.append(case.fingerprint),
        refused=lambda error: lacking.append(error.what),
    )
    assert set(lacking) == {"eval mode"}
    assert len(seen) + len(lacking) == 60
    everywhere: list[str] = []
    run_chunk(judge, CASES, 0, 60, lambda case, _: everywhere.append(case.fingerprint))
    assert set(seen) < set(everywhere), "every release draws the same cases"
    assert [failure.kind for failure in failures] == ["FIFO drained"]


def test_a_case_that_cannot_run_is_a_fault_where_nobody_counts_it() -> None:
    with pytest.raises(JudgingFault, match="lacks eval mode"):
        run_chunk(without_eval, CASES, 0, 60, lambda *_: None)


def test_tallies_add_up_what_could_not_run() -> None:
    tally, more = Tally(cases=2), Tally(cases=1, lacking=Counter({"eval mode": 3}))
    tally.add(more)
    assert (tally.cases, tally.drawn, tally.lacking) == (3, 6, Counter({"eval mode": 3}))


def test_a_failure_that_does_not_come_again_is_kept() -> None:
    answers = iter(["outputs"])

    def flaky(case: c.Case) -> Verdict:
        return verdict(case, *itertools.islice(answers, 1))

    (failure,) = run_chunk(flaky, CASES, 0, 10, lambda *_: None)
    assert failure.kind == "outputs"


def test_a_deadline_in_the_past_draws_nothing() -> None:
    seen: list[str] = []
    run_chunk(judge, CASES, 0, 50, lambda case, _: seen.append(case.fingerprint), deadline=0.0)
    assert seen == []


def test_chunks_add_up_and_have_seeds_of_their_own() -> None:
    parts = list(chunks(2 * CHUNK + 7, seed=100))
    assert [number for _, number in parts] == [CHUNK, CHUNK, 7]
    seeds = {seed for seed, _ in [*parts, *chunks(CHUNK, seed=101)]}
    assert len(seeds) == 4


@pytest.mark.parametrize("of", [1, 2, 3, 5])
def test_shards_share_all_chunks_of_a_campaign_between_them(of: int) -> None:
    cases = 4 * CHUNK + 7
    shards = [list(chunks(cases, 100, (index, of))) for index in range(1, of + 1)]
    assert sorted(chunk for shard in shards for chunk in shard) == list(chunks(cases, 100))
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


def test_a_tally_forgets_what_is_taken_back() -> None:
    case = c.Case(graph=c.Autocast(c.Region(c.Linear())), schedule=(c.Forward(), c.Backward()))
    violation = Violation(oracle="pairing", message="popped another", iteration=0)
    verdict = Verdict(fingerprint="", violations=(violation,), evaluated=("pairing",))
    once, twice = Tally(), Tally()
    for tally in (once, twice, twice):
        tally.count(case, verdict)
    twice.take_back(once)
    assert twice == once
    twice.take_back(once)
    assert twice == Tally()


def test_a_tally_counts_cases_features_and_oracles() -> None:
    tally = Tally()
    case = c.Case(graph=c.Autocast(c.Region(c.Linear())), schedule=(c.Forward(), c.Backward()))
    tally.count(case, Verdict(fingerprint="", violations=(), evaluated=("outputs",)))

    assert (tally.cases, tally.oracles["outputs"], tally.features["reentrant"]) == (1, 1, 1)


def test_known_issues_explain_nothing_where_equality_is_promised() -> None:
    assert known_in(DOMAINS["contract"]) == ()
    assert known_in(DOMAINS["frontier"])


def test_a_known_issue_is_counted_and_is_no_failure() -> None:
    case = c.Case(graph=c.Autocast(c.Region(c.Region(c.Linear()))), schedule=(c.Forward(), c.Backward()))
    seen, tally = verdict(case, "FIFO drained"), Tally()
    tally.count(case, seen, known_issues.load())
    assert (tally.known, tally.violations) == ({"nested-regions": 1}, {})
    assert kind_of(case, seen, known_issues.load()) is None
    assert kind_of(case, seen) == "FIFO drained"
