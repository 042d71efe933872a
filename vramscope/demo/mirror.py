"""Mirrors every storage that PyTorch makes under FakeTensorMode into a simulated GPU's allocator."""

from __future__ import annotations

import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from vramscope.allocator import Allocator, Frames, OutOfMemory

MAX_FRAMES = 12
_NOT_THE_USERS = (str(Path(torch.__file__).parent), __file__)


class Mirror(TorchDispatchMode):  # type: ignore[misc]  # torch is not type-checked here, so its classes are Any
    """Use it inside FakeTensorMode: ``with FakeTensorMode(), Mirror(allocator): …``; it then sees what the program gets.

    A storage's address is taken when an operator first returns it, and freed when the storage dies. A request that
    does not fit raises torch.OutOfMemoryError with the allocator's text out of the operator, as on a GPU.
    ``after_each`` is called after each new storage, in the training thread, with no lock held.
    """

    def __init__(
        self,
        allocator: Allocator,
        *,
        record_stacks: bool = True,
        after_each: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        self._allocator = allocator
        self._lock = threading.Lock()
        self._spans: dict[int, tuple[int, int]] = {}
        # A storage can die on any thread and in the middle of anything, a call of the allocator included (the cyclic
        # collector runs there too). So its finalizer only notes it here, and the next user of the lock frees it.
        self._dead: deque[int] = deque()
        self._stacks = _Stacks() if record_stacks else None
        self._after_each = after_each

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for item in tree_iter(result):
            if isinstance(item, Tensor):
                self._see(item.untyped_storage())
        return result

    @contextmanager
    def settled(self) -> Iterator[Allocator]:
        """Hold the allocator with every dead storage freed. Keep it short: the training thread waits."""
        with self._lock:
            while self._dead:
                address, _ = self._spans.pop(self._dead.popleft())
                self._allocator.free(address)
            yield self._allocator

    def span(self, tensor: Tensor) -> tuple[int, int] | None:
        """Return (address, bytes) of the tensor's storage, or None where it was never seen (made outside the mode)."""
        # Without the lock: the agent asks for some thousand tensors, and what it can reach was seen
        # and is alive, so that its entry does not change.
        return self._spans.get(tensor.untyped_storage()._cdata)

    def _see(self, storage: torch.UntypedStorage) -> None:
        size_bytes = storage.nbytes()
        # PyTorch gives a null pointer for 0 bytes; such a storage may get bytes (and be seen) later.
        if size_bytes == 0:
            return
        # The address of the C++ object is the storage's identity while it lives; settled() forgets the dead first.
        identity = storage._cdata
        with self.settled() as allocator:
            if identity in self._spans:
                return
            frames = self._stacks.here() if self._stacks is not None else ()
            try:
                address = allocator.malloc(size_bytes, frames=frames)
            except OutOfMemory as error:
                raise torch.OutOfMemoryError(str(error)) from None
            self._spans[identity] = (address, size_bytes)
        weakref.finalize(storage, self._dead.append, identity).atexit = False
        self._after_each()


class _Stacks:
    """Python stacks as PyTorch records them: innermost first, without the frames of torch and of this module."""

    def __init__(self) -> None:
        # A program has few different stacks and the allocator's trace has many entries, so that each is kept once.
        self._known: dict[Frames, Frames] = {}

    def here(self) -> Frames:
        """Return up to MAX_FRAMES frames (filename, line, name)."""
        found: list[tuple[str, int, str]] = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and len(found) < MAX_FRAMES:
            code = frame.f_code
            if not code.co_filename.startswith(_NOT_THE_USERS):
                found.append((code.co_filename, frame.f_lineno, code.co_name))
            frame = frame.f_back
        stack = tuple(found)
        return self._known.setdefault(stack, stack)
