"""Shortened paths keep what says which code it was, and nothing of whose machine it was on."""

from __future__ import annotations

import pytest

from vramscope.report.paths import shorten


@pytest.mark.parametrize(
    ("path", "short"),
    [
        ("/home/ada/secret/.venv/lib/python3.11/site-packages/torch/nn/linear.py", "site-packages/torch/nn/linear.py"),
        ("/usr/lib/python3/dist-packages/numpy/core.py", "dist-packages/numpy/core.py"),
        ("C:\\Users\\ada\\venv\\Lib\\site-packages\\torch\\x.py", "site-packages\\torch\\x.py"),
        ("/opt/conda/lib/python3.11/threading.py", "python3.11/threading.py"),
        ("/home/ada/secret/src/model.py", "src/model.py"),
        ("C:\\Users\\ada\\src\\model.py", "src/model.py"),
        ("/train.py", "train.py"),
        ("/home/ada/train.py", "train.py"),
        ("/data/users/ada/model/train.py", "model/train.py"),
        ("/root/train.py", "train.py"),
        ("src/train.py", "src/train.py"),
        ("train.py", "train.py"),
        ("??", "??"),
        ("<frozen runpy>", "<frozen runpy>"),
        ("", ""),
    ],
)
def test_a_path_is_cut_at_site_packages_or_to_its_last_two_parts(path: str, short: str) -> None:
    assert shorten(path) == short


def test_the_last_site_packages_counts() -> None:
    assert shorten("/a/site-packages/b/site-packages/c.py") == "site-packages/c.py"
