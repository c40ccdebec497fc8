"""The command ``minimize``."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.errors import DeviceLost
from harness.exits import HELD, INTERRUPTED, VIOLATED
from harness.options import PATH, case_timeout_option, target_options
from harness.target import Target

if TYPE_CHECKING:
    from harness.corpus import SavedCase


@click.command()
@click.argument("path", metavar="CASE", type=PATH)
@click.option("--corpus", "folder", type=PATH, default=Path("corpus"), help="Where the smallest is saved.")
@click.option("--cases", type=click.IntRange(min=1), help="How many smaller cases to try, at most.")
@case_timeout_option
@target_options
def minimize(path: Path, folder: Path, cases: int | None, case_timeout: float, **target: Any) -> int:
    """Make a saved case as small as it can be while it is violated in the same way.

    The oracle that speaks nearest to the cause stays the same, and no feature beyond the contract comes in.
    A case that no known issue explains does not become one that some do. One that was saved because it ended
    its process is made smaller in processes of their own, while it ends them in the same way.

    Ends with 1, as replaying the result does; with 0 where the case holds here; with 130 where it was
    interrupted, with the smallest so far saved.
    """
    wanted = Target(**target)
    from harness import corpus, files

    loaded = corpus.load(path)
    case = loaded.case
    files.check_folder(folder)
    wanted.check()
    if loaded.seen.ending:
        return _minimize_crash(loaded, folder, wanted, case_timeout, cases)
    from harness import report
    from harness.backends import te_version
    from harness.failure import Failure, kind_of
    from harness.known_issues import of_release
    from harness.minimize import Minimizer
    from harness.sentence import describe

    code = VIOLATED
    # Odd cases make torch and TE utter many warnings.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = wanted.open()
        verdict = session.judge(case)
        kind = kind_of(case, verdict)
        if kind is None:
            click.echo(f"held {case.fingerprint} {describe(case)}\nThere is nothing to minimize.")
            return HELD
        with report.Progress(cases, "smaller cases") as progress:
            failure, issues = Failure(kind, case, verdict), of_release(te_version())
            minimizer = Minimizer(session, failure, issues, lambda number: progress.show(number, kind))
            fault: Exception | DeviceLost | None = None
            try:
                minimizer.run(cases)
            except KeyboardInterrupt:
                code = INTERRUPTED
            except (Exception, DeviceLost) as error:
                # Whatever it is: what was found until then is saved all the same.
                fault = error
    smallest = minimizer.smallest
    saved = corpus.save_failure(folder, smallest, wanted.where(session))
    click.echo(f"{kind}\n{report.failure_text(smallest, saved, wanted.replay_command(saved))}")
    click.echo(f"  the smallest of {minimizer.tried + 1} cases")
    if fault is not None:
        raise fault
    return code


def _minimize_crash(
    crashed: SavedCase, folder: Path, target: Target, case_timeout: float, cases: int | None
) -> int:
    """Make a case smaller that ends its process, for as long as it does so in the same way."""
    from harness import corpus
    from harness.crashes import MOST, shrunk
    from harness.outside import Outside
    from harness.report import failure_text
    from harness.sentence import describe

    with Outside(target, case_timeout) as outside:
        smallest = shrunk(crashed, outside, most=cases or MOST)
    if smallest is None:
        case = crashed.case
        click.echo(
            f"did not end its process {case.fingerprint} {describe(case)}\nThere is nothing to minimize."
        )
        return HELD
    saved = corpus.save(corpus.place(folder, smallest), smallest)
    click.echo(f"{smallest.why}\n{failure_text(smallest, saved, target.replay_command(saved))}")
    return VIOLATED
