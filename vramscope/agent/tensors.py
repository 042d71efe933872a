"""Names the tensors of the registered models and optimizers: parameters, buffers, gradients and optimizer state."""

from __future__ import annotations

import array
import json
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from vramscope.agent.categories import CODE
from vramscope.errors import BadInputError, one_line

Span = Callable[[Any], "tuple[int, int, int] | None"]
_TRIES = 3


class TensorColumns(NamedTuple):
    """The named tensors of one device: one entry of each for a storage; ``labels`` are JSON ``[name, shape, dtype]``."""

    address: array.array[int]
    size_bytes: array.array[int]
    category: array.array[int]
    labels: list[str]

    def labels_column(self) -> bytes:
        """Return all labels as the UTF-8 JSON that a ``map`` frame carries."""
        return f"[{','.join(self.labels)}]".encode()


class TensorRegistry:
    """The registered models and optimizers, held weakly: a job that drops its model gets the memory back."""

    def __init__(self) -> None:
        self._models: list[weakref.ref[Any]] = []
        self._optimizers: list[weakref.ref[Any]] = []
        self.problem: str | None = None

    def add(self, model: Any = None, optimizer: Any = None) -> None:
        """Register a model and an optimizer, each once. Raises BadInputError where they are not torch's."""
        if model is not None and not _has(model, "named_parameters", "named_buffers"):
            raise BadInputError(f"attach(model=…) takes one torch.nn.Module, not {_what(model)}")
        if optimizer is not None and not _has(optimizer, "param_groups", "state"):
            raise BadInputError(f"attach(optimizer=…) takes one torch optimizer, not {_what(optimizer)}")
        if model is not None and all(known is not model for known in self.models()):
            self._models.append(weakref.ref(model))
        if optimizer is not None and all(known is not optimizer for known in self.optimizers()):
            self._optimizers.append(weakref.ref(optimizer))

    def models(self) -> list[Any]:
        return [model for model in (reference() for reference in self._models) if model is not None]

    def optimizers(self) -> list[Any]:
        return [optimizer for optimizer in (reference() for reference in self._optimizers) if optimizer is not None]

    def columns(self, span: Span) -> dict[int, TensorColumns]:
        """Return the named tensors by device; ``span`` is ``Source.tensor_span``.

        A storage that several names share (tied weights) counts once, for the first. The job may change its model in
        another thread meanwhile: then the walk begins again. Where it fails every time there are no names, and ``problem`` says
        why in one line.
        """
        for _ in range(_TRIES):
            try:
                found = _columns(self._named(), span)
            except RuntimeError as error:  # "dictionary changed size during iteration"
                self.problem = _problem(error)
            except Exception as error:  # noqa: BLE001 - the boundary to the job: a model's own named_parameters, say
                self.problem = _problem(error)
                break
            else:
                self.problem = None
                return found
        return {}

    def _named(self) -> Iterator[tuple[str, str, Any]]:
        """Yield (category, full name, tensor), parameters first, so that they give shared storages their name."""
        models = self.models()
        names: dict[int, str] = {}
        for model in models:
            prefix = f"{type(model).__name__}." if len(models) > 1 else ""
            for name, parameter in model.named_parameters():
                names[id(parameter)] = prefix + name
                yield "parameter", prefix + name, parameter
                if parameter.grad is not None:
                    yield "gradient", prefix + name, parameter.grad
            for name, buffer in model.named_buffers():
                yield "buffer", prefix + name, buffer
        for optimizer in self.optimizers():
            yield from _optimizer_tensors(optimizer, names)


def _has(found: object, *names: str) -> bool:
    return not isinstance(found, type) and all(hasattr(found, name) for name in names)


def _what(found: object) -> str:
    return f"the class {found.__name__}" if isinstance(found, type) else type(found).__name__


def _problem(error: Exception) -> str:
    return f"the tensors of the model and the optimizer could not be named ({one_line(error)})"


def _optimizer_tensors(optimizer: Any, names: Mapping[int, str]) -> Iterator[tuple[str, str, Any]]:
    """Yield an optimizer's state, and the parameters and gradients that no registered model named."""
    for group_index, group in enumerate(optimizer.param_groups):
        for index, parameter in enumerate(group["params"]):
            name = names.get(id(parameter))
            if name is None:
                name = f"group {group_index}, parameter {index}"
                yield "parameter", name, parameter
                if parameter.grad is not None:
                    yield "gradient", name, parameter.grad
            for key, value in list(optimizer.state.get(parameter, {}).items()):
                for tensor in _tensors_in(value):
                    yield "optimizer state", f"{key} of {name}", tensor


def _tensors_in(value: Any) -> Iterator[Any]:
    """Yield the tensors of one entry of an optimizer's state: itself, or those of a list or dict (L-BFGS, Shampoo)."""
    if hasattr(value, "untyped_storage"):
        yield value
    elif isinstance(value, (list, tuple)):
        yield from (item for item in value if hasattr(item, "untyped_storage"))
    elif isinstance(value, dict):
        yield from (item for item in value.values() if hasattr(item, "untyped_storage"))


def _columns(named: Iterator[tuple[str, str, Any]], span: Span) -> dict[int, TensorColumns]:
    found: dict[int, TensorColumns] = {}
    seen: set[tuple[int, int]] = set()
    for category, name, tensor in named:
        place = span(tensor)
        if place is None or place[:2] in seen:
            continue
        device, address, size_bytes = place
        seen.add((device, address))
        columns = found.get(device)
        if columns is None:
            columns = found[device] = TensorColumns(array.array("Q"), array.array("Q"), array.array("B"), [])
        columns.address.append(address)
        columns.size_bytes.append(size_bytes)
        columns.category.append(CODE[category])
        columns.labels.append(_label(name, tensor.shape, tensor.dtype))
    return found


@lru_cache(maxsize=1 << 16)
def _label(name: str, shape: tuple[int, ...], dtype: Any) -> str:
    """Return one label as JSON. Names and shapes seldom change, and making thousands of them costs milliseconds."""
    return json.dumps([name, str(tuple(shape)), str(dtype).removeprefix("torch.")])
