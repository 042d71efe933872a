"""What the paste box answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from dash.development.base_component import Component

from dashboard.callbacks import pasted

MESSAGE = (
    "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 23.69 GiB total capacity; 20.00 GiB already allocated; "
    "1.50 GiB free; 21.00 GiB reserved in total by PyTorch)"
)


def words(component: Any) -> Iterator[str]:
    for child in component if isinstance(component, list) else [component]:
        if isinstance(child, Component):
            yield from words(getattr(child, "children", None))
        elif child is not None:
            yield str(child)


def test_sizes_stand_in_bytes_with_what_rounding_leaves_open() -> None:
    found = list(words(pasted.reading(MESSAGE)))
    at = found.index("tried to allocate")
    assert found[at : at + 3] == ["tried to allocate", "2.00 GiB", f"{2 << 30:,}"]
    assert 0 < int(found[at + 3].replace(",", "")) < 1 << 24


def test_what_the_message_does_not_say_is_absent_and_never_zero() -> None:
    found = list(words(pasted.reading(MESSAGE.replace("; 1.50 GiB free", ""))))
    at = found.index("free on the device")
    assert found[at + 1 : at + 3] == ["absent", "–"]


@pytest.mark.parametrize("text", ["", "  \n", "all is well", "memory: 3 GiB of fun"])
def test_other_text_is_one_line(text: str) -> None:
    assert len(list(words(pasted.reading(text)))) == 1


def test_a_whole_log_is_refused_in_one_line() -> None:
    assert len(list(words(pasted.reading("x" * (pasted.LIMIT_CHARS + 1))))) == 1
