"""Every allocator that a test makes is sound when the test is over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from vramscope.allocator import Allocator


@pytest.fixture(autouse=True)
def _validated(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    made: list[Allocator] = []
    init = Allocator.__init__

    def recording(self: Allocator, *arguments: Any, **options: Any) -> None:
        init(self, *arguments, **options)
        made.append(self)

    monkeypatch.setattr(Allocator, "__init__", recording)
    yield
    for allocator in made:
        allocator.validate()
