"""Follows the job's steps through torch's global optimizer hooks, and the end of forward through a hook on the model."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from vramscope.agent.tensors import TensorRegistry

# "forward_end", "backward_end" (just before the optimizer runs) or "step_end".
OnPhase = Callable[[str], None]


class StepHooks:
    """Counts steps and calls ``on_phase`` in the training thread. ``on_phase`` must not raise and should return at once.

    Steps are those of a registered optimizer (of the first that steps, where there are several), else of the
    first optimizer seen. ``step`` is None until one has stepped. (torch 2.1 drops its optimizer hooks once torch.compile is used,
    and then no steps are seen.)
    """

    def __init__(self, torch: ModuleType, registry: TensorRegistry, on_phase: OnPhase) -> None:
        self._is_compiling = _compiling_check(torch)
        self._registry = registry
        self._on_phase = on_phase
        self._counted: weakref.ref[Any] | None = None
        self.step: int | None = None
        self._handles: list[Any] = []

    def install(self) -> None:
        """Register the hooks that are common to all optimizers."""
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        self._handles.append(register_optimizer_step_pre_hook(self._before_step))
        self._handles.append(register_optimizer_step_post_hook(self._after_step))

    def watch(self, model: Any) -> None:
        """Tell the end of ``model``'s forward, unless it is compiled (then a hook would be traced) or scripted."""
        compiled = hasattr(model, "_orig_mod") or getattr(model, "_compiled_call_impl", None) is not None
        if not compiled and type(model).__module__ != "torch.jit._script":
            self._handles.append(model.register_forward_hook(_ForwardEnd(self._is_compiling, self._on_phase)))

    def remove(self) -> None:
        """Take all hooks out again."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if not self._is_compiling():
            self._on_phase("backward_end")

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._is_compiling() or not self._counts(optimizer):
            return
        self.step = (self.step or 0) + 1
        self._on_phase("step_end")

    def _counts(self, optimizer: Any) -> bool:
        counted = self._counted() if self._counted is not None else None
        if counted is optimizer:
            return True
        registered = self._registry.optimizers()
        if counted is None or (_among(optimizer, registered) and not _among(counted, registered)):
            self._counted = weakref.ref(optimizer)
            return True
        return False


def _among(optimizer: Any, registered: list[Any]) -> bool:
    return any(known is optimizer for known in registered)


class _ForwardEnd:
    """The hook on a model. A copy or a pickle of the model gets a function that does nothing in its place.

    So a checkpoint of the whole model does not need vramscope to be read, and an averaged copy is not taken for the model.
    """

    def __init__(self, is_compiling: Callable[[], bool], on_phase: OnPhase) -> None:
        self._is_compiling = is_compiling
        self._on_phase = on_phase

    def __call__(self, module: Any, args: Any, output: Any) -> None:
        if not self._is_compiling():
            self._on_phase("forward_end")

    def __reduce__(self) -> tuple[Any, ...]:
        # The one callable of the standard library that takes a hook's three arguments and returns None.
        return getattr, (contextlib.nullcontext(), "__exit__")


def _compiling_check(torch: ModuleType) -> Callable[[], bool]:
    """Return torch's own test for "this code is being traced", which the compiler knows and folds away."""
    found: Callable[[], bool] = getattr(torch.compiler, "is_compiling", None) or torch._utils.is_compiling
    return found
