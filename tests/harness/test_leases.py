"""Processes share GPUs evenly, and a slot is free as soon as its process is gone."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness import backends, leases
from harness.errors import CannotRunHere
from harness.gpus import Gpu
from tests.harness.fake_nvml import GIB, Device, FakeNvml
from tests.harness.lease_holders import Holder, bind_to_one, holders, take_one, take_one_and_have_children

Start = Callable[..., Holder]


def gpu(name: str, memory: int = 140 * GIB) -> Gpu:
    return Gpu(word=name, uuid=name, product="P", memory=memory, free=memory, capability=(9, 0))


PAIR = [gpu("GPU-a"), gpu("GPU-b")]


@pytest.fixture
def start() -> Iterator[Start]:
    with holders() as starter:
        yield starter


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let this be the folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


# --- Slots -------------------------------------------------------------------------------------------


def test_processes_of_two_runs_share_the_gpus_evenly(start: Start, tmp_path: Path) -> None:
    here = [start(take_one, PAIR, tmp_path) for _ in range(3)]
    mine = Counter(holder.said for holder in here)
    there = [start(take_one, PAIR[::-1], tmp_path) for _ in range(3)]
    others = Counter(holder.said for holder in there)
    assert mine == {"GPU-a": 2, "GPU-b": 1}
    assert others == {"GPU-a": 1, "GPU-b": 2}


def test_a_worker_that_is_replaced_leaves_its_slot_to_the_next(start: Start, tmp_path: Path) -> None:
    first, second = start(take_one, PAIR, tmp_path), start(take_one, PAIR, tmp_path)
    words = [first.said, second.said]
    assert sorted(words) == ["GPU-a", "GPU-b"]
    second.kill()
    assert start(take_one, PAIR, tmp_path).said == words[1]


def test_children_that_outlive_a_worker_do_not_keep_its_slot(start: Start, tmp_path: Path) -> None:
    parent = start(take_one_and_have_children, PAIR, tmp_path)
    word, *children = parent.said
    try:
        parent.kill()
        assert start(take_one, PAIR, tmp_path).said == word == "GPU-a"
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)


def test_a_gpu_takes_no_more_than_fit_until_all_are_full() -> None:
    slots = leases._slots([gpu("small", 4 * GIB), gpu("big", 10 * GIB)])
    words = [next(slots)[0].word for _ in range(11)]
    assert words == ["small", "big", "small", "big", "big", "big", "big", "small", "big", "small", "big"]


def test_names_with_slashes_become_files_of_the_folder(tmp_path: Path) -> None:
    assert leases.take([gpu("MIG-GPU-cut/7/0")], tmp_path).word == "MIG-GPU-cut/7/0"
    assert [path.name for path in tmp_path.iterdir()] == ["MIG-GPU-cut-7-0.0"]


# --- Binding -----------------------------------------------------------------------------------------


def test_a_process_is_bound_by_its_environment_and_its_child_to_the_same_gpu(
    start: Start, tmp_path: Path
) -> None:
    nvml = FakeNvml([Device("GPU-aa"), Device("GPU-bb")])
    environment = {"TMPDIR": str(tmp_path), "CUDA_VISIBLE_DEVICES": "1,0"}
    found, same, word = start(bind_to_one, nvml, environment).said
    assert (found.uuid, found.word, word) == ("GPU-bb", "1", "1")
    assert same
    for _ in range(2):
        found, _same, word = start(bind_to_one, nvml, {**environment, "CUDA_VISIBLE_DEVICES": word}).said
        assert (found.uuid, word) == ("GPU-bb", "1")
    names = {path.name for path in next(tmp_path.iterdir()).iterdir()}
    assert {"GPU-bb.0", "GPU-bb.1", "GPU-bb.2"} <= names


def test_a_gpu_that_others_have_filled_is_left_out(start: Start, tmp_path: Path) -> None:
    nvml = FakeNvml([Device("GPU-full", free=GIB), Device("GPU-free")])
    environment = {"TMPDIR": str(tmp_path)}
    words = [start(bind_to_one, nvml, environment).said[2] for _ in range(2)]
    assert words == ["GPU-free", "GPU-free"]


def test_where_there_is_no_gpu_nothing_is_touched(start: Start, tmp_path: Path) -> None:
    environment = {"TMPDIR": str(tmp_path), "CUDA_VISIBLE_DEVICES": "7"}
    assert start(bind_to_one, FakeNvml([Device("GPU-a")]), environment).said == (None, True, "7")
    assert list(tmp_path.iterdir()) == []


# --- The folder --------------------------------------------------------------------------------------


def test_the_folder_is_the_users_alone(temporary: Path) -> None:
    place = leases.folder()
    assert place.parent == temporary
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert leases.folder() == place


@pytest.mark.parametrize("trap", ["link", "file", "open to all"])
@pytest.mark.usefixtures("temporary")
def test_a_folder_that_another_may_have_put_there_is_refused(trap: str, tmp_path: Path) -> None:
    place = leases.folder()
    place.rmdir()
    if trap == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        place.symlink_to(tmp_path / "elsewhere")
    elif trap == "file":
        place.touch(mode=0o600)
    else:
        place.mkdir()
        place.chmod(0o777)
    with pytest.raises(CannotRunHere, match="set TMPDIR to another folder") as raised:
        leases.folder()
    assert "\n" not in str(raised.value)


def test_a_link_in_place_of_a_lease_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("text")
    (tmp_path / "GPU-a.0").symlink_to(tmp_path / "precious")
    with pytest.raises(CannotRunHere, match="GPUs cannot be shared out there"):
        leases.take(PAIR, tmp_path)
    assert (tmp_path / "precious").read_text() == "text"


def test_a_folder_that_cannot_be_made_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(CannotRunHere, match="No such file or directory"):
        leases.folder()


# --- Before torch ------------------------------------------------------------------------------------

_BEFORE_TORCH = """
import pickle, sys
from harness import leases

def bind(backend):
    print(backend, "torch" in sys.modules)
    sys.exit()

leases.bind = bind
"""


def said_by(program: str, *arguments: str, cwd: Path | None = None) -> str:
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", _BEFORE_TORCH + program, *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    return done.stdout.strip()


@pytest.mark.parametrize("employer", ["fuzz", "replay", "known-issues"])
def test_workers_are_bound_before_torch_is_imported(employer: str, tmp_path: Path) -> None:
    import functools
    import pickle

    from harness import outside, rediscovery, workers
    from harness.plan import Plan
    from harness.target import Target

    target = Target(backend="cuda")
    work = {
        "fuzz": functools.partial(workers._work, Plan(target=target, seed=0, cases=1), tmp_path),
        "replay": functools.partial(outside._judge_all, target),
        "known-issues": functools.partial(rediscovery._work, target, 1),
    }[employer]
    program = "from unittest.mock import Mock\npickle.loads(bytes.fromhex(sys.argv[1]))(Mock())"
    assert said_by(program, pickle.dumps(work).hex()) == "cuda False"


def test_pytest_is_bound_before_torch_is_imported(tmp_path: Path) -> None:
    program = "import pytest\npytest.main(['-p', 'harness.pytest_plugin', '--backend', 'cuda'])"
    assert said_by(program, cwd=tmp_path) == "cuda False"


# --- On a real GPU -----------------------------------------------------------------------------------


@pytest.fixture
def cuda() -> None:
    if backends.active().name != "cuda":
        pytest.skip("looks at a real GPU")


@pytest.mark.usefixtures("cuda")
def test_this_process_is_bound_to_the_one_gpu_that_torch_sees() -> None:
    import torch

    bound = leases.bind("cuda")
    assert bound is not None
    assert os.environ["CUDA_VISIBLE_DEVICES"] == bound.word
    assert torch.cuda.device_count() == 1
    seen = torch.cuda.get_device_properties(0)
    assert f"GPU-{seen.uuid}" == bound.uuid or bound.is_mig
    assert torch.cuda.get_device_capability(0) == bound.capability


@pytest.mark.usefixtures("cuda")
def test_a_process_that_only_makes_the_backend_active_takes_no_memory_of_the_gpu() -> None:
    program = (
        "import torch; from harness import backends; backends.activate('cuda');"
        "print(torch._C._cuda_hasPrimaryContext(0))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == "False"
