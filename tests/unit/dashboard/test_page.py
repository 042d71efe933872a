"""The layout, its ids, and the page's routes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import flask
import pytest
from dash.development.base_component import Component
from flask.testing import FlaskClient

from dashboard import ids, page_routes, postmortem_ids
from layouts import charts, compare, postmortem
from layouts import live as live_layout
from tests.fake_live_data import FakeLiveData
from tests.unit.dashboard.frames import decode
from vramscope.agent.categories import CATEGORIES

ASSETS = Path(__file__).resolve().parents[3] / "assets"
LIVE_IDS = {value for name, value in vars(ids).items() if name.isupper() and isinstance(value, str)}


def live_page() -> list[Any]:
    return [live_layout.layout("/"), charts.map_axes(), charts.timeline_plot()]


def postmortem_page() -> list[Any]:
    return [postmortem.layout("/")]


def used_ids(component: Any) -> Iterator[str]:
    if isinstance(component, (list, tuple)):
        for child in component:
            yield from used_ids(child)
    if isinstance(component, Component):
        if getattr(component, "id", None):
            yield component.id
        yield from used_ids(getattr(component, "children", None))


def test_every_id_is_in_the_layout_or_in_what_comes_after_it_exactly_once() -> None:
    assert sorted(used_ids(live_page())) == sorted(LIVE_IDS)


def test_the_postmortem_page_has_its_own_ids_and_those_of_the_map_exactly_once() -> None:
    own = {value for name, value in vars(postmortem_ids).items() if name.isupper() and isinstance(value, str)}
    own |= {
        name(table)
        for table in postmortem_ids.TABLES
        for name in (postmortem_ids.table_panel, postmortem_ids.table_grid)
    }
    shared = {value for name, value in vars(ids).items() if name.startswith("MAP") and isinstance(value, str)}
    assert sorted(used_ids(postmortem_page())) == sorted(own | shared | {ids.THEME})


def test_the_links_between_the_pages_hold_the_base_path() -> None:
    def links(component: Any) -> Iterator[tuple[str, bool]]:
        for child in component if isinstance(component, list) else [component]:
            if isinstance(child, Component):
                if type(child).__name__ == "A" and not child.href.startswith("#"):
                    yield child.href, hasattr(child, "aria-current")
                yield from links(getattr(child, "children", None))

    pages = [live_layout, postmortem, compare]
    paths = ["/tools/", "/tools/postmortem/", "/tools/compare/"]
    for page in pages:
        current = paths[pages.index(page)]
        assert list(links(page.layout("/tools/"))) == [(path, path == current) for path in paths]


@pytest.mark.parametrize(
    ("page", "name"),
    [(live_layout, "segment map"), (postmortem, "memory timeline"), (compare, "differences")],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_the_keyboard_can_skip_to_what_the_page_is_about(page: Any, name: str) -> None:
    # GIVEN the first thing on the page that takes the keyboard
    layout = page.layout("/")
    link = layout.children[0]
    # THEN it names what the page has, and leads there
    assert link.children == f"Skip to the {name}"
    assert link.href.removeprefix("#") in set(used_ids(layout))


def test_the_first_picture_does_not_wait_for_plotly() -> None:
    # GIVEN the layout that the browser gets first
    first = set(used_ids(live_layout.layout("/")))
    # THEN the canvas is in it, and what makes the browser start Plotly is not
    assert ids.MAP_CANVAS in first
    assert not {ids.MAP_GRAPH, ids.TIMELINE_GRAPH} & first


def scripts(folder: str) -> list[Path]:
    return sorted([*ASSETS.glob("*.js"), *(ASSETS / folder).glob("*.js")])


@pytest.mark.parametrize(
    ("page", "script"),
    [
        *((live_page, script) for script in scripts("live")),
        *((postmortem_page, script) for script in scripts("postmortem")),
    ],
    ids=lambda value: value.name if isinstance(value, Path) else value.__name__,
)
def test_scripts_name_only_ids_of_the_page(page: Callable[[], Any], script: Path) -> None:
    text = script.read_text()
    named = set(re.findall(r'(?:element|setText|set_props)\("([a-z-]+)"', text)) | set(
        re.findall(r'querySelector\("#([a-z-]+) ', text)
    )
    assert named - {"_dash-config"} <= set(used_ids(page()))
    # Inline code and other origins are what the content security policy refuses.
    assert not re.search(r"https?://|eval\(|innerHTML|new Function", text)


def test_the_style_sheets_load_nothing_and_know_every_owner() -> None:
    text = "".join(sheet.read_text() for sheet in ASSETS.rglob("*.css"))
    assert "url(" not in text
    assert "@import" not in text
    for code in range(len(CATEGORIES)):
        assert f"--o-{code}:" in text
        assert f".fill.owner-{code} " in text


@pytest.fixture
def live() -> FakeLiveData:
    return FakeLiveData(blocks=500, updates_per_s=0.001)


@pytest.fixture
def client(live: FakeLiveData) -> FlaskClient:
    server = flask.Flask("test")
    page_routes.register(server, live)
    return server.test_client()


BLOCKS = "/live/blocks.bin?job=job-1&device=0&rank=0"


def test_the_map_comes_once_and_then_only_when_it_is_another(client: FlaskClient, live: FakeLiveData) -> None:
    # WHEN the map is asked for
    header, arrays = decode(client.get(BLOCKS).data)
    assert header["categories"] == list(CATEGORIES)
    assert len(arrays["piece_units"]) >= header["blocks"]
    # THEN asking again with its token gives a small answer
    assert client.get(f"{BLOCKS}&since={header['token']}").json == {"unchanged": True}
    # AND a newer map has another token
    live.updates_per_s = 1e9
    assert decode(client.get(f"{BLOCKS}&since={header['token']}").data)[0]["token"] != header["token"]


def test_an_unknown_device_is_nothing_and_wrong_options_are_refused(client: FlaskClient) -> None:
    assert client.get("/live/blocks.bin?job=other&device=0").json == {"nothing": True}
    assert client.get("/live/timeline.json?job=other&device=0").json == {"nothing": True}
    refused = client.get(f"{BLOCKS}&sort=<script>")
    assert refused.status_code == 400
    assert "size or address" in refused.json["error"]


@pytest.mark.parametrize("query", ["rank=x&device=y", "rank=" + "9" * 40, "device=-1", "rank=%F0%9F%98%80"])
def test_hostile_numbers_never_break_a_route(client: FlaskClient, query: str) -> None:
    for path in ("blocks.bin", "block.json", "timeline.json"):
        assert client.get(f"/live/{path}?job=job-1&{query}&address=zz&from=a&to=b&width=c").status_code == 200


def test_the_tooltip_gets_a_blocks_name(client: FlaskClient, live: FakeLiveData) -> None:
    found = live.device_map("job-1", 0)
    assert found is not None
    address = int(found.tensor_address[0])
    answer = client.get(f"/live/block.json?job=job-1&device=0&address={address}").json
    assert answer == {"owner": "parameter", "name": "layers.0.attn.w0", "shape": "(2048, 2048)"}
    assert client.get("/live/block.json?job=job-1&device=0&address=1").json == {}


def test_the_last_minute_of_an_ended_job_ends_with_it(client: FlaskClient, live: FakeLiveData) -> None:
    query = "/live/timeline.json?job=job-1&device=0&rank=0&window_s=60"
    assert client.get(query).json["range_ms"][1] > client.get(f"{query}&at=5000000").json["range_ms"][1]
    live.ended = True
    ended = live.jobs()[0].ranks[0].ended_unix_us
    assert ended is not None
    assert client.get(query).json["range_ms"][1] >= ended / 1000
