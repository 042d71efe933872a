"""Imports point one way, and nothing third-party enters a training job: read from the source, not by importing."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("app", "collectors", "dashboard", "layouts", "vramscope")

# What each room may import of the others; docs/architecture.md draws it.
MAY_IMPORT = {
    "vramscope": (),
    "collectors": ("vramscope",),
    "layouts": ("dashboard.ids", "dashboard.postmortem_ids", "dashboard.compare_ids", "vramscope"),
    "dashboard": ("layouts", "vramscope"),
    "app": ("collectors", "dashboard", "layouts", "vramscope"),
}


def files_of(room: str) -> list[Path]:
    single = ROOT / f"{room}.py"
    return [single] if single.exists() else sorted((ROOT / room).rglob("*.py"))


def imports_of(tree: ast.AST) -> Iterator[tuple[str, bool]]:
    """Yield the dotted name of each import under ``tree``, and whether it runs when the module is imported."""
    for node, at_import in _walk(tree, True):
        if isinstance(node, ast.Import):
            yield from ((alias.name, at_import) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports here are absolute"
            yield str(node.module), at_import
            yield from ((f"{node.module}.{alias.name}", at_import) for alias in node.names)


def _walk(node: ast.AST, at_import: bool) -> Iterator[tuple[ast.AST, bool]]:
    for child in ast.iter_child_nodes(node):
        deferred = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or _is_type_checking(child)
        yield child, at_import and not deferred
        yield from _walk(child, at_import and not deferred)


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imports_in(file: Path) -> list[tuple[str, bool]]:
    return list(imports_of(ast.parse(file.read_text())))


def is_within(name: str, *parents: str) -> bool:
    return any(name == parent or name.startswith(f"{parent}.") for parent in parents)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_lies_below_it(room: str) -> None:
    assert files_of(room)
    wrong = [
        f"{file.relative_to(ROOT)} imports {name}"
        for file in files_of(room)
        for name, _ in imports_in(file)
        if is_within(name, *ROOMS)
        and not is_within(name, room, *MAY_IMPORT[room])
        # `from dashboard import ids` names the package too.
        and not any(allowed.startswith(f"{name}.") for allowed in MAY_IMPORT[room])
    ]
    assert wrong == []


def test_figures_know_neither_layouts_nor_callbacks() -> None:
    for file in sorted((ROOT / "dashboard" / "figures").glob("*.py")):
        wrong = [name for name, _ in imports_in(file) if is_within(name, "layouts", "dashboard.callbacks", "flask")]
        assert wrong == [], file.name


def training_side() -> dict[str, list[tuple[str, bool]]]:
    """Return the imports of every module that ``import vramscope`` or the agent can load, by the module's name."""
    found: dict[str, list[tuple[str, bool]]] = {}
    waiting = ["vramscope"]
    waiting += [f"vramscope.agent.{file.stem}" for file in (ROOT / "vramscope" / "agent").glob("*.py")]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        path = ROOT.joinpath(*name.split("."))
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if not file.exists():
            continue  # a name inside a module, not a module
        found[name] = imports_in(file)
        waiting += [imported for imported, _ in found[name] if is_within(imported, "vramscope")]
    return found


def test_the_training_side_is_standard_library_only() -> None:
    loaded = training_side()
    assert {"vramscope", "vramscope.agent.wire", "vramscope.errors"} <= set(loaded)
    wrong = [
        f"{module} imports {name}"
        for module, imports in loaded.items()
        for name, at_import in imports
        if not is_within(name, "vramscope", *sys.stdlib_module_names)
        # torch is the job's own, and is imported only inside functions.
        and not (is_within(name, "torch") and not at_import)
    ]
    assert wrong == []


def test_the_reader_of_imports_sees_each_form() -> None:
    # GIVEN
    source = "import a.b\nfrom c import d\nif x:\n    import e\ndef f():\n    import torch\n"

    # WHEN
    found = dict(imports_of(ast.parse(source)))

    # THEN
    assert found == {"a.b": True, "c": True, "c.d": True, "e": True, "torch": False}
