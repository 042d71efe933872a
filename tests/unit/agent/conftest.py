"""A short runtime folder, and agents that end with their test."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.unit.agent.fake_source import FakeSource
from vramscope.agent.agent import Agent
from vramscope.agent.job import identify


@pytest.fixture
def socket_path() -> Iterator[Path]:
    """A socket's path in a private folder; short, since a socket's path may have 103 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="vs-", dir="/tmp"))
    yield folder / "collector.sock"
    shutil.rmtree(folder)


MakeAgent = Callable[..., Agent]


@pytest.fixture
def make_agent(socket_path: Path) -> Iterator[MakeAgent]:
    """Return a function that starts an agent for a source; all are stopped at the end."""
    started: list[Agent] = []

    def make(source: Any = None, *, budget_ratio: float = 1.0, torch: ModuleType | None = None) -> Agent:
        identity = identify(
            {"RANK": "1", "WORLD_SIZE": "2"}, ["train.py"], pid=42, parent_pid=41, started_unix_us=7, name="test"
        )
        agent = Agent(
            source or FakeSource(),
            identity,
            socket_path,
            budget_ratio=budget_ratio,
            counters_hz=50.0,
            torch=torch,
        )
        agent.start()
        started.append(agent)
        return agent

    yield make
    for agent in started:
        agent.stop("detached", 10.0)
