"""The fixtures of several tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.postmortem_site import Site, site_over


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    found = site_over(tmp_path)
    yield found
    found.files.close()
