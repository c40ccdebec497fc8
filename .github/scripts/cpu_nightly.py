#!/usr/bin/env python3
"""A night without a GPU: contract under every supported release, frontier under the newest, and the museum.

Usage: cpu_nightly.py OUT SECONDS [--seed N] [RELEASE...]

For example, an hour for all releases, and ten minutes for two:

    .github/scripts/cpu_nightly.py /tmp/night 3600
    .github/scripts/cpu_nightly.py /tmp/night 600 2.19 2.20.2

OUT is a new folder, or one with what is kept from nights before: its corpus, database and issues. SECONDS
is how long cases are drawn, in equal shares. Without a RELEASE these are all from 2.5 on, where the
contract begins to hold, corrected, and then the museum judges its cases under every release, older ones
too. The newest release that the package index has is one of them even where the harness does not know it
yet. The newest is taken as it is, so that a fix that is lost again shows. OUT/junit.xml has a test for each
campaign. Ends with 1 where anything was violated, came as a surprise, or has no verdict.
"""

from __future__ import annotations

import argparse
import json
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree as ET

from children import LIMIT_PASSED, harness
from finding import Target
from night import Night, duration
from packaging.version import Version

from harness.errors import HarnessError
from harness.releases import KNOWN, normalized, ordered

_FIRST = "2.5.0"
_SLACK = 900.0
"""Seconds that a campaign has beside half as long again as its share: to fetch, to start, and to shrink."""
_MUSEUM_LIMIT = 1800.0
_VERDICTS = {
    None: "not begun",
    0: "held",
    1: "violated",
    125: "cannot run here",
    LIMIT_PASSED: "ended by its time limit",
}


def main() -> int:
    """Run the night."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("out", type=Path)
    parser.add_argument("seconds", type=duration)
    parser.add_argument("releases", nargs="*")
    parser.add_argument("--seed", type=int, default=secrets.randbits(31))
    asked = parser.parse_intermixed_args()
    try:
        given = {normalized(release) for release in asked.releases}
    except HarnessError as error:
        parser.error(str(error))

    night = Night(asked.out.resolve())
    releases = ordered(given or _supported(night))
    campaigns = [("contract", release) for release in releases] + [("frontier", releases[-1])]
    share = asked.seconds / len(campaigns)
    night.notes.append(f"Seed {asked.seed}; cases were drawn for {share:g} seconds in each campaign.")
    print(f"seed {asked.seed}", flush=True)
    statuses = {}
    for domain, release in campaigns:
        newest = release == releases[-1]
        target = Target(te_mode="installed" if newest else "corrected", backend="cpu", release=release)
        statuses[f"{domain} {release}"] = _fuzz(night, domain, target, share, asked.seed)
    if not given:
        museum = harness("museum", "--json", night.out / "museum.json")
        statuses["museum"] = night.children.run(museum, night.museum, _MUSEUM_LIMIT)
    _write_junit(night.out / "junit.xml", statuses)
    night.notes += [f"{name}: {_verdict(status)}" for name, status in statuses.items()]
    return night.conclude("Night on CPUs", int(any(statuses.values())))


def _fuzz(night: Night, domain: str, target: Target, seconds: float, seed: int) -> int | None:
    release = str(target.release)
    corpus = night.corpus / release
    if domain == "contract":
        night.replay_kept(corpus, target)
    log, report = (night.out / f"{domain}-{release}.{kind}" for kind in ("log", "json"))
    options = ["--domain", domain, "--seconds", seconds, "--seed", seed, "--corpus", corpus, "--json", report]
    options += ["--events", night.events, *night.database_options(release), *target.options]
    status = night.children.run(harness("fuzz", *options), log, seconds * 1.5 + _SLACK)
    night.examine(target)
    if report.is_file():
        cases = json.loads(report.read_text(encoding="utf-8"))["cases"]
        night.notes.append(f"{domain} {release}: {cases} cases (`{log.name}`, `{report.name}`)")
    return status


def _supported(night: Night) -> set[str]:
    """Return the releases on which the contract holds, and the newest that there is."""
    supported = {release for release in KNOWN if Version(release) >= Version(_FIRST)}
    newest = _newest()
    if newest is None:
        night.notes.append(f"pip named no newest release; {KNOWN[-1]} was taken for it.")
        return supported
    if newest not in KNOWN:
        night.notes.append(f"**{newest} is a release that the harness does not know yet.**")
    return supported | {newest}


def _newest() -> str | None:
    """Return the newest release that pip finds, with the user's own index and proxies."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        command += ["--dest", folder, "transformer-engine"]
        subprocess.run(command, stdin=subprocess.DEVNULL, check=False)  # noqa: S603
        wheels = [path.name for path in Path(folder).glob("*.whl")]
    return normalized(wheels[0].split("-")[1]) if wheels else None


def _verdict(status: int | None) -> str:
    return _VERDICTS.get(status, f"ended with {status}")


def _write_junit(path: Path, statuses: dict[str, int | None]) -> None:
    suite = ET.Element("testsuite", name="cpu-nightly", tests=str(len(statuses)))
    for name, status in statuses.items():
        test = ET.SubElement(suite, "testcase", classname="cpu-nightly", name=name)
        if status:
            ET.SubElement(test, "failure", message=_verdict(status))
        elif status is None:
            ET.SubElement(test, "skipped", message=_verdict(status))
    ET.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


if __name__ == "__main__":
    sys.exit(main())
