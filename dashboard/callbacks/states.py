"""The live light, the banners and the footer."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from dash import Dash, Input, Output, html, no_update
from dash.development.base_component import Component

from dashboard import ids
from dashboard.figures import states
from dashboard.figures.selection import Selection, find_rank
from vramscope.records import JobInfo, LiveData, RankInfo


def register(app: Dash, live: LiveData) -> None:
    def show_state(tick: int, selection: dict[str, Any] | None, paused: bool) -> tuple[Any, ...]:
        if paused:
            return "light paused", states.LIGHTS["paused"], no_update, no_update
        chosen, jobs, status = Selection(**(selection or {})), live.jobs(), live.status()
        stats = live.stats(chosen.job, chosen.device, chosen.rank) if chosen.job and chosen.device is not None else None
        key = states.light(status, jobs, chosen)
        banners = [*_other_job(states.newer_job(jobs, chosen)), *_banners(states.banners(status, jobs, chosen, stats))]
        found = find_rank(jobs, chosen)
        cost = states.agent_cost(stats) if stats else ""
        return (
            f"light {key}",
            states.LIGHTS[key],
            banners,
            [html.Span(cost), html.Span(_torch(found[1]) if found else "")],
        )

    app.callback(
        Output(ids.LIGHT, "className"),
        Output(ids.LIGHT_TEXT, "children"),
        Output(ids.BANNERS, "children"),
        Output(ids.FOOTER, "children"),
        Input(ids.TICK, "n_intervals"),
        Input(ids.SELECTION, "data"),
        Input(ids.PAUSED, "data"),
    )(show_state)


def _other_job(job: JobInfo | None) -> list[Component]:
    """Return the way to a job that runs while the one on the page has ended: nothing leads there by itself."""
    if job is None:
        return []
    link = html.A("Show it", href=f"?job={quote(job.id, safe='')}")
    return [html.Div([f"Another job is running: {job.name}. ", link], className="banner info")]


def _banners(found: list[states.Banner]) -> list[Any]:
    """Return a line for each that matters, and the quiet ones folded into one."""
    loud = [html.Div(line, className=f"banner {tone}") for tone, line in found if tone != "quiet"]
    quiet = [line for tone, line in found if tone == "quiet"]
    if len(quiet) > 1:
        more = html.Summary(f"{quiet[0]}  (+ {len(quiet) - 1} more)")
        return [*loud, html.Details([more, *(html.Div(line) for line in quiet[1:])], className="banner quiet")]
    return [*loud, *(html.Div(line, className="banner quiet") for line in quiet)]


def _torch(rank: RankInfo) -> str:
    return f"pid {rank.pid} on {rank.host} · torch {rank.torch_version} · maps: {rank.map_way}"
