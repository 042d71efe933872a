"""From a request to a block and a segment, as tables."""

from __future__ import annotations

import pytest

from vramscope.allocator import parse_alloc_conf
from vramscope.allocator.rounding import round_size, segment_size
from vramscope.units import GIB, KIB, MIB


@pytest.mark.parametrize(
    ("request_bytes", "expected"),
    [(1, 512), (511, 512), (512, 512), (513, 1024), (MIB, MIB), (MIB + 1, MIB + 512), (3_000_000, 3_000_320)],
)
def test_a_request_is_rounded_to_512_bytes(request_bytes: int, expected: int) -> None:
    assert round_size(request_bytes) == expected


@pytest.mark.parametrize(
    ("divisions", "request_bytes", "expected"),
    [
        pytest.param("4", 1200 * MIB, 1280 * MIB, id="up to a quarter of 1 GiB"),
        pytest.param("4", GIB, GIB, id="a power of two stays"),
        pytest.param("4", 2048, 2048, id="512 times the divisions is not divided"),
        pytest.param("4", 2049, 2560, id="one byte more is"),
        pytest.param("4", 100, 512, id="less than a block"),
        pytest.param("1", 1200 * MIB, 1200 * MIB, id="one division is none"),
        pytest.param("[1:0]", 1200 * MIB, 1200 * MIB, id="nor is zero"),
        pytest.param("[256:1,512:2,1024:4,>:8]", 300 * MIB, 300 * MIB, id="bucket 256"),
        pytest.param("[256:1,512:2,1024:4,>:8]", 600 * MIB, 768 * MIB, id="bucket 512"),
        pytest.param("[256:1,512:2,1024:4,>:8]", 1200 * MIB, 1280 * MIB, id="bucket 1024"),
        pytest.param("[256:1,512:2,1024:4,>:8]", 2100 * MIB, 2304 * MIB, id="all above"),
        pytest.param("[256:2]", 5 * MIB, 6 * MIB, id="the first key fills the buckets below"),
        pytest.param("[256:2]", 600 * MIB, 600 * MIB, id="and none above"),
        pytest.param("[1:2]", 600 * KIB, 768 * KIB, id="what is below 1 MiB uses its bucket"),
        pytest.param("[1:1,32768:2]", 90 * GIB, 96 * GIB, id="and what is above 64 GiB the last"),
    ],
)
def test_roundup_power2_divisions(divisions: str, request_bytes: int, expected: int) -> None:
    settings = parse_alloc_conf(f"roundup_power2_divisions:{divisions}")
    assert round_size(request_bytes, settings.roundup_power2_divisions) == expected


@pytest.mark.parametrize(
    ("block_bytes", "expected"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 512, 12 * MIB),
    ],
)
def test_segment_sizes(block_bytes: int, expected: int) -> None:
    assert segment_size(block_bytes) == expected
