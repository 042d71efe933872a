"""docs/api.md names every route, and its examples have the shape of what the routes answer."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import flask
import pytest
from flask.testing import FlaskClient

from tests.fake_live_data import FakeLiveData

# Objects whose keys are data or depend on the job: which environment variables, which categories, which agent.
OPEN = ("alloc_conf", "categories", "agent")


class Route(NamedTuple):
    method: str
    path: str
    example: Any


def documented() -> list[Route]:
    text = (Path(__file__).parents[3] / "docs" / "api.md").read_text()
    sections = re.split(r"^### ", text, flags=re.MULTILINE)[1:]
    routes = []
    for section in sections:
        method, path = section.splitlines()[0].replace("\\", "").split()
        example = re.search(r"^```json\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
        routes.append(Route(method, path, json.loads(example[1]) if example else None))
    return routes


def differences(example: Any, answer: Any, where: str = "answer") -> list[str]:
    """Return where ``answer`` has other keys or kinds than ``example``; null stands for any kind, a list for its first."""
    if example is None or answer is None or where.rpartition(".")[2] in OPEN:
        return []
    if isinstance(example, dict) and isinstance(answer, dict):
        found = [f"{where}.{key} is in one only" for key in example.keys() ^ answer.keys()]
        for key in example.keys() & answer.keys():
            found += differences(example[key], answer[key], f"{where}.{key}")
        return found
    if isinstance(example, list) and isinstance(answer, list):
        return differences(example[0], answer[0], f"{where}[0]") if example and answer else []
    return [] if kind(example) == kind(answer) else [f"{where} is {answer!r}"]


def kind(value: Any) -> str:
    return "number" if type(value) in (int, float) else type(value).__name__


def test_each_route_is_documented_and_no_other(server: flask.Flask) -> None:
    # GIVEN the routes that answer, less the one that answers for unknown ones, and the tests' own page
    answering = {
        (method, re.sub(r"<(?:\w+:)?(\w+)>", "<>", rule.rule))
        for rule in server.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
        if rule.endpoint not in ("api.unknown", "page", "static")
    }

    # THEN
    assert answering == {(route.method, re.sub(r"<\w+>", "<>", route.path)) for route in documented()}


@pytest.mark.parametrize("route", documented(), ids=lambda route: f"{route.method} {route.path}")
def test_an_example_has_the_shape_of_the_answer(client: FlaskClient, live: FakeLiveData, route: Route) -> None:
    # GIVEN a job with a snapshot
    live.dump("job-1")
    path = route.path.replace("/dumps/<id>", "/dumps/dump-0").replace("<id>", "job-1").replace("<n>", "0")
    if route.example is None:
        assert path == "/dumps/dump-0", "only the download has no JSON"
        return

    # WHEN
    response = client.open(path + ("?limit=3" if path.endswith("owners") else ""), method=route.method)

    # THEN
    assert response.status_code == (201 if route.method == "POST" else 200)
    assert differences(route.example, response.get_json()) == []


def test_the_comparison_finds_what_differs() -> None:
    example = {"a": 1, "b": [{"c": "text"}], "agent": {"x": 1}}
    assert differences(example, {"a": 1.5, "b": [{"c": None}, {}], "agent": {}}) == []
    assert differences(example, {"a": "1", "b": [{"d": "text"}], "agent": {}}) != []
    assert differences(example, {"a": True, "b": []}) == ["answer.agent is in one only", "answer.a is True"]
