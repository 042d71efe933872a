"""Where the folders lie, and which of them are refused in one line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vramscope.agent.paths import make_private_folder, state_folder
from vramscope.errors import BadInputError


def test_a_user_without_a_home_keeps_history_in_the_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a container's uid: no HOME, and a passwd file that does not know it
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.setenv("TMPDIR", "/tmp")
    monkeypatch.setattr("tempfile.tempdir", None)

    # THEN
    assert state_folder({}) == Path(f"/tmp/vramscope-{os.getuid()}-state")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.write_text(""), "is not a folder"),
        (lambda path: path.symlink_to("/tmp"), "is a symbolic link"),
        (lambda path: path.symlink_to("/nowhere"), "is a symbolic link"),
        (lambda path: path.mkdir(mode=0o755), "chmod 700"),
    ],
)
def test_what_is_no_private_folder_is_refused_with_what_to_do(tmp_path: Path, make: object, words: str) -> None:
    path = tmp_path / "run"
    assert callable(make)
    make(path)
    with pytest.raises(BadInputError, match=words) as refused:
        make_private_folder(path)
    assert "\n" not in str(refused.value)
