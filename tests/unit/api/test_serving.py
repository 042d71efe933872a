"""What ``vramscope serve`` prints, and the names by which it may be asked."""

from __future__ import annotations

import socket

import pytest

from dashboard import serving
from vramscope.errors import VramscopeError


def lines(host: str, base_path: str = "/") -> list[str]:
    return serving.addresses(host, 8050, token="a-token", base_path=base_path)


def test_the_url_carries_the_token_and_the_tunnel_ends_where_it_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "node-03")
    monkeypatch.setattr("getpass.getuser", lambda: "ada")
    url, tunnel = lines("127.0.0.1")
    assert url == "vramscope: http://127.0.0.1:8050/?token=a-token"
    assert tunnel == "from another machine, first: ssh -L 8050:127.0.0.1:8050 ada@node-03"


def test_on_every_address_the_url_has_the_machines_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "node-03")
    url, tunnel = lines("0.0.0.0", "/tools/")
    assert url == "vramscope: http://node-03:8050/tools/?token=a-token"
    assert "8050:127.0.0.1:8050" in tunnel


def test_an_address_of_version_6_is_in_brackets() -> None:
    url, tunnel = lines("::1")
    assert url.startswith("vramscope: http://[::1]:8050/")
    assert "8050:[::1]:8050" in tunnel


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_on_loopback_only_localhost_is_a_name_of_ours(host: str) -> None:
    assert serving.own_hosts(host) == ()


def test_on_the_network_the_machines_names_are_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "node-03")
    monkeypatch.setattr(socket, "getfqdn", lambda: "node-03.cluster.example")
    assert set(serving.own_hosts("0.0.0.0")) >= {"node-03", "node-03.cluster.example"}


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "0.0.0.0"])
def test_it_listens_where_it_is_told(host: str) -> None:
    with serving.bind(host, 0) as listening:
        assert listening.getsockname()[1] > 0


def test_a_busy_port_says_what_to_do() -> None:
    with (
        serving.bind("127.0.0.1", 0) as first,
        pytest.raises(VramscopeError, match="--port"),
        serving.bind("127.0.0.1", first.getsockname()[1]),
    ):
        pass


@pytest.mark.parametrize("host", ["..", "a..b", "x" * 300])
def test_a_host_that_cannot_be_a_name_is_one_line(host: str) -> None:
    with pytest.raises(VramscopeError, match="--host") as refused:
        serving.bind(host, 0)
    assert "\n" not in str(refused.value)


def test_a_user_without_a_name_still_gets_a_tunnel(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a container's uid that no passwd file knows
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr("getpass.getuser", nameless)
    monkeypatch.setattr(socket, "gethostname", lambda: "node-03")

    # THEN
    assert lines("127.0.0.1")[1] == "from another machine, first: ssh -L 8050:127.0.0.1:8050 node-03"
