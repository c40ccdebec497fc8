"""A real Redis server on loopback, of a test's own."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_READY = "Ready to accept connections"


class RedisServer:
    """A server that keeps nothing on the disk, and can be killed at any moment."""

    def __init__(self, program: str, folder: Path, *options: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        command = [
            program,
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--dir",
            str(folder),
        ]
        self._process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)  # noqa: S603
        assert self._process.stdout is not None
        assert any(_READY in line for line in self._process.stdout), "the server has not started"
        self.pid = self._process.pid

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


@contextmanager
def redis_server(folder: Path, *options: str) -> Iterator[RedisServer]:
    """Start a server, or skip the test where there is none to start."""
    pytest.importorskip("redis", reason="the client is not installed: pip install redis")
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed")
    server = RedisServer(program, folder, *options)
    try:
        yield server
    finally:
        server.kill()
