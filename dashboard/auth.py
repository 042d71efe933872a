"""Who may ask: a token for every route but ``/healthz``, hosts that are ours, and writes from our own pages only.

The token travels as Jupyter's does: once in the printed URL, then in a cookie; programs send ``Authorization: Bearer``.
"""

from __future__ import annotations

import hmac
import html
import ipaddress
import re
import secrets
from collections.abc import Sequence
from urllib.parse import quote, urlencode, urlsplit

import flask
from werkzeug.wrappers import Response

from vramscope.errors import BadInputError

OPEN_PATHS = ("/healthz",)
TOKEN_FORM = re.compile(r"[A-Za-z0-9._~-]{8,256}")
LOOPBACK_NAMES = ("localhost",)

MISSING_TOKEN = "this needs the token: open the URL that vramscope printed at its start, or send Authorization: Bearer"
WRONG_TOKEN = "this token is not the one of the running vramscope: open the URL that it printed at its start"


def make_token() -> str:
    """Return a new random token of 256 bits, safe in a URL and in a cookie."""
    return secrets.token_hex(32)


def check_token(token: str) -> str:
    """Return ``token`` if a URL and a cookie carry it unchanged. Raises BadInputError, without repeating it, if not."""
    if not TOKEN_FORM.fullmatch(token):
        raise BadInputError(
            "the token must be 8 to 256 letters, digits or characters of . _ ~ - (VRAMSCOPE_TOKEN, --token)"
        )
    return token


def protect(server: flask.Flask, *, token: str, hosts: Sequence[str]) -> None:
    """Check each request to ``server`` before it reaches a route.

    ``hosts`` are the names by which this machine may be addressed besides localhost and IP addresses.
    """
    own_names = {name.lower() for name in (*LOOPBACK_NAMES, *hosts)}

    @server.before_request
    def check() -> Response | None:
        if not is_own_host(flask.request.host, own_names):
            return refusal(403, f"the host {flask.request.host!r} is not one of this vramscope; see --allow-host")
        if not is_own_origin(flask.request):
            return refusal(403, "a page of another origin may not change anything here")
        if flask.request.path in OPEN_PATHS:
            return None
        return check_request_token(flask.request, token)


def is_own_host(host: str, own_names: set[str]) -> bool:
    """Return whether a Host header names this machine.

    DNS rebinding brings a name of the attacker's that resolves to us, so names must be known; an address is never one.
    """
    name, _ = split_host(host)
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name in own_names
    return True


def split_host(host: str) -> tuple[str, int | None]:
    """Return the name (lower case, without brackets) and the port of a Host header; ("", None) where it is garbage."""
    try:
        parts = urlsplit(f"//{host}")
        return parts.hostname or "", parts.port
    except ValueError:
        return "", None


def is_own_origin(request: flask.Request) -> bool:
    """Return whether ``request`` only reads, or does not come from a page of another origin.

    SameSite=Strict already keeps the cookie from other sites, but another port of the same host is the same site.
    """
    if request.method in ("GET", "HEAD", "OPTIONS"):
        return True
    origin = request.headers.get("Origin")
    if origin is not None:
        return _netloc(origin) == request.host
    return request.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:  # "http://[", say
        return None


def check_request_token(request: flask.Request, token: str) -> Response | None:
    """Return None where the request carries ``token``; else the refusal, or the redirect that stores it as a cookie."""
    cookie = cookie_name(request.host)
    scheme, _, credentials = request.headers.get("Authorization", "").partition(" ")
    bearer = credentials.strip() if scheme.lower() == "bearer" else None
    for given in (bearer, request.cookies.get(cookie)):
        if given is not None and same(given, token):
            return None if "token" not in request.args else without_token(request)
    in_url = request.args.get("token")
    if in_url is not None and same(in_url, token):
        response = without_token(request)
        response.set_cookie(
            cookie, token, httponly=True, samesite="Strict", secure=request.is_secure, path=request.script_root or "/"
        )
        return response
    if in_url is None and bearer is None and cookie not in request.cookies:
        return refusal(401, MISSING_TOKEN)
    return refusal(403 if bearer or in_url else 401, WRONG_TOKEN)


def same(given: str, token: str) -> bool:
    """Compare in constant time; as bytes, since compare_digest refuses text that is not ASCII."""
    return hmac.compare_digest(given.encode(), token.encode())


def cookie_name(host: str) -> str:
    """Return the cookie's name for this port, since browsers send the cookies of one host to all of its ports."""
    return f"vramscope-{split_host(host)[1] or 'default'}"


def without_token(request: flask.Request) -> Response:
    """Return the redirect to the same page without the token, so that it stays out of history, bookmarks and shots."""
    kept = [(key, value) for key, value in request.args.items(multi=True) if key != "token"]
    query = f"?{urlencode(kept)}" if kept else ""
    return flask.redirect(f"{quote(request.script_root + request.path)}{query}", 303)


def refusal(status: int, line: str) -> Response:
    """Return one line that says why: as a small page to a browser that opens one, as JSON to everything else."""
    if flask.request.accept_mimetypes.best == "text/html":
        body = f"<!doctype html><html lang=en><title>vramscope</title><h1>vramscope</h1><p>{html.escape(line)}</p>"
        return flask.Response(body, status, mimetype="text/html")
    response = flask.jsonify(error=line)
    response.status_code = status
    if status == 401:
        response.headers["WWW-Authenticate"] = 'Bearer realm="vramscope"'
    return response
