"""The selected block, its stack, and the table of owners."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dashboard import maps
from dashboard.callbacks.block import MOST_FRAMES, short_path, stack
from dashboard.callbacks.dumps import answer, listing
from dashboard.figures import block_facts, owner_table
from tests.fake_live_data import churn, make_map
from vramscope import owners
from vramscope.columns import INACTIVE
from vramscope.records import DumpInfo, StackReply
from vramscope.units import format_bytes


def test_a_block_is_found_from_any_address_inside_it() -> None:
    found = make_map(500)
    assigned = owners.assign(found)
    for block in (0, 7, found.block_count - 1):
        begin, size = int(found.block_address[block]), int(found.block_bytes[block])
        for address in (begin, begin + size - 1):
            facts = block_facts.find(found, assigned, address)
            assert facts is not None
            assert (facts.address, facts.size_bytes) == (begin, size)


@pytest.mark.parametrize("address", [-1, 0, 2**63, 2**64, 2**80])
def test_an_address_without_a_block_finds_nothing(address: int) -> None:
    found = make_map(500)
    assert block_facts.find(found, owners.assign(found), address) is None


def test_a_free_block_has_no_owner_and_no_requested_size() -> None:
    # PyTorch leaves the size of the last request there, where it means nothing.
    found = make_map(500)
    block = int(np.flatnonzero(found.block_state == INACTIVE)[0])
    facts = block_facts.find(found, owners.assign(found), int(found.block_address[block]))
    assert facts is not None
    assert (facts.requested_bytes, facts.owner, facts.rule) == (None, None, None)
    labels = [label for label, _ in block_facts.rows(facts)]
    assert labels == ["Address", "Size", "State", "Segment"]


def test_a_named_block_tells_its_tensor_and_the_rule() -> None:
    found = make_map(500)
    facts = block_facts.find(found, owners.assign(found), int(found.tensor_address[0]))
    assert facts is not None
    rows = dict(block_facts.rows(facts))
    assert rows["Tensor"] == "layers.0.attn.w0 (2048, 2048) bfloat16"
    assert rows["Owner"] == "parameter"
    assert rows["Because"] == owners.RULES["named"]
    assert rows["Requested"].endswith("+ 100 B rounding")


def test_owners_are_worked_out_once_for_a_map() -> None:
    found = make_map(500)
    assert maps.owners_of(found) is maps.owners_of(found)
    assert maps.owners_of(churn(found)) is not maps.owners_of(found)


def test_the_shares_add_up_and_keep_their_order() -> None:
    found = make_map(2000)
    bar, texts, largest, whole = owner_table.shares(found, owners.assign(found))
    assert sum(share for _, share in bar) == pytest.approx(1)
    assert [colour for colour, _ in texts] == ["owner-1", "owner-3", "owner-4", "owner-5", "owner-0"]
    # AND the largest is told, and of how much they are shares
    assert largest == max(bar, key=lambda entry: entry[1])[0]
    active = int(found.block_bytes[found.block_state != INACTIVE].sum())
    assert whole == f"of {format_bytes(active)} active"
    # AND a map without any active block divides by nothing, and has no largest
    freed = replace(found, block_state=np.full_like(found.block_state, INACTIVE))
    empty, _, largest, whole = owner_table.shares(freed, owners.assign(freed))
    assert all(0 <= share <= 1 for _, share in empty)
    assert (largest, whole) == (None, "of 0 B active")


@pytest.mark.parametrize(
    ("dtype", "short"),
    [
        ("bfloat16", "bf16"),
        ("float32", "f32"),
        ("int64", "i64"),
        ("uint8", "u8"),
        ("float8_e4m3fn", "f8_e4m3fn"),
        ("complex64", "c64"),
        ("quint8", "qu8"),
        ("bool", "bool"),
        (None, None),
    ],
)
def test_types_have_short_names_in_the_table(dtype: str | None, short: str | None) -> None:
    assert owner_table.short_type(dtype) == short


def test_the_table_is_sorted_limited_and_says_what_it_leaves_out() -> None:
    found = make_map(3000)
    assigned = owners.assign(found)
    rows = owner_table.rows(found, assigned)
    sizes = [row["mib"] for row in rows]
    assert sizes == sorted(sizes, reverse=True)
    assert len(rows) == owner_table.MOST_ROWS
    assert len({row["id"] for row in rows}) == len(rows)
    whole = len(owners.top_tensors(found, assigned))
    assert owner_table.note(assigned, len(rows)) == f"300 largest of {whole:,}"
    assert owner_table.note(assigned, whole) == f"all {whole:,}"


def test_a_stack_shows_its_frames_or_why_there_are_none() -> None:
    assert "history is off" in str(stack(StackReply(reason="history is off")))
    shown = str(stack(StackReply((("/home/me/lib/model.py", 612, "forward"),))))
    assert "lib/model.py:612" in shown
    assert "/home/me/lib/model.py" in shown
    deep = stack(StackReply(tuple(("a.py", n, "f") for n in range(MOST_FRAMES + 3))))
    assert "+ 3 frames" in str(deep)


def test_paths_keep_their_last_two_parts() -> None:
    assert short_path("/a/b/c.py") == "b/c.py"
    assert short_path("c.py") == "c.py"


def test_snapshots_are_listed_newest_first_with_safe_links() -> None:
    dumps = [DumpInfo("a/../b", "job", 0, 1, "/x/one.pickle", 5), DumpInfo("c", "job", 1, 2, "/x/two.pickle", 6)]
    first, second = listing(dumps, lambda found: {"a/../b": "0f0f"}.get(found.id), "/base/").children
    # THEN one whose file is there is opened by its name, and downloaded beside it
    assert second.children[0].href == "/base/postmortem/?file=0f0f"
    assert second.children[1].children[1].href == "/base/dumps/a%2F..%2Fb"
    # AND one whose file is gone says so
    assert "its file is gone" in str(first)
    assert "href" not in str(first)
    assert answer(dumps[1]) == "Rank 1 wrote two.pickle (6 B)."
    assert "No snapshot" in str(listing([], lambda _: None, "/"))
