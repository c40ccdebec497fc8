"""Record the golden files on a GPU: ``python3 -m tests.backends.record_golden FOLDER``.

Runs every case on the real extension and writes one file per family, with a summary. A case that fails is
recorded with its error. Copy the files to ``tests/backends/golden`` to compare with them.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from harness.backends import activate
from tests.backends.golden_cases import all_cases
from tests.backends.golden_files import save

if TYPE_CHECKING:
    from tests.backends.golden_case import Case, Outputs


def run(case: Case) -> Outputs | str:
    """Return the outputs of ``case`` on the CPU, or the first line of its error."""
    try:
        outputs = {name: tensor.detach().cpu() for name, tensor in case.run().items()}
        torch.cuda.synchronize()
    except Exception as error:  # one broken case must not lose the others
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
    return outputs


def main(folder: Path) -> None:
    """Record all families into ``folder``."""
    backend = activate("cuda")
    folder.mkdir(parents=True, exist_ok=True)
    results: dict[str, dict[str, Outputs | str]] = defaultdict(dict)
    for case in all_cases():
        results[case.family][case.name] = run(case)
    for family, of_family in results.items():
        save(folder / f"{family}.npz", of_family)
        errors = {name: error for name, error in of_family.items() if isinstance(error, str)}
        print(f"{family}: {len(of_family)} cases, {len(errors)} errors")
        for name, error in errors.items():
            print(f"    {name}: {error[:200]}")
    description = json.dumps(backend.describe(), indent=2, sort_keys=True)
    (folder / "recorded_on.json").write_text(description + "\n")
    print(description)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
