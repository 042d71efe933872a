"""Where the application (app.py, dashboard, collectors, layouts, assets) lies, in a wheel and in a checkout."""

from __future__ import annotations

import sys
from pathlib import Path

from vramscope.errors import VramscopeError

PACKAGE_FOLDER = Path(__file__).resolve().parent


def application_folder(package_folder: Path = PACKAGE_FOLDER) -> Path:
    """Return the folder that holds app.py: ``vramscope/_app`` in a wheel, the repository's root in a checkout."""
    for folder in (package_folder / "_app", package_folder.parent):
        if (folder / "app.py").is_file() and (folder / "dashboard").is_dir():
            return folder
    raise VramscopeError(f"the application is missing beside {package_folder}; install vramscope again")


def put_application_on_path() -> None:
    """Let ``import app`` and ``import collectors`` find ours, before any of the same name in the working directory.

    Only our own command does this: ``import vramscope`` in a training job leaves sys.path alone.
    """
    folder = str(application_folder())
    if sys.path[:1] != [folder]:
        sys.path.insert(0, folder)
