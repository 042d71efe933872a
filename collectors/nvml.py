"""NVML's figures of the machine's GPUs, through pynvml. It never creates a CUDA context: NVML needs none."""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from collectors.announce import normal_uuid
from vramscope.records import DeviceReading

INTERVAL_S = 1.0
RETRY_S = 10.0
# A driver that hangs holds the sampling thread; the page must say so instead of showing old figures as new.
HUNG_S = 10.0


class NvmlAway(Exception):
    """NVML cannot be used at all; the text says why."""


def load_pynvml() -> ModuleType:
    """Return the module pynvml, NVML initialised. Raises NvmlAway where the package or the driver's library is missing."""
    try:
        module = importlib.import_module("pynvml")
    except ImportError:
        raise NvmlAway("the package nvidia-ml-py is not installed") from None
    _value, problem = call(module, "nvmlInit")
    if problem is not None:
        raise NvmlAway(problem)
    return module


def call(module: Any, name: str, *arguments: Any, **named: Any) -> tuple[Any, str | None]:
    """Return (value, None), or (None, why) where NVML or this pynvml cannot tell it. Every NVML call goes through here."""
    function = getattr(module, name, None)
    if function is None:
        return None, "this pynvml does not have it"
    try:
        return function(*arguments, **named), None
    except module.NVMLError as error:
        return None, _words(error)
    except UnicodeDecodeError:
        return None, "the driver gave text that is not UTF-8"


def read_devices(module: Any, now_us: int) -> tuple[DeviceReading, ...]:
    """Return a reading of each GPU, followed by those of its MIG devices. Raises NvmlAway where not even a count can be had."""
    count, problem = call(module, "nvmlDeviceGetCount")
    if problem is not None:
        raise NvmlAway(problem)
    found: list[DeviceReading] = []
    for index in range(count):
        handle, problem = call(module, "nvmlDeviceGetHandleByIndex", index)
        if problem is not None:
            found.append(
                DeviceReading(f"nvml-{index}", index, f"GPU {index}", now_us, missing=(f"every reading: {problem}",))
            )
            continue
        parent = _read(module, handle, index, now_us, None)
        found.append(parent)
        found += [_read(module, mig, index, now_us, parent.uuid) for mig in _mig_devices(module, handle)]
    return tuple(found)


def _read(module: Any, handle: Any, index: int, now_us: int, mig_parent_uuid: str | None) -> DeviceReading:
    missing: list[str] = []

    def ask(what: str, name: str, *arguments: Any) -> Any:
        value, problem = call(module, name, handle, *arguments)
        if problem is not None:
            missing.append(f"{what}: {problem}")
        return value

    uuid, name = ask("UUID", "nvmlDeviceGetUUID"), ask("name", "nvmlDeviceGetName")
    memory = _memory(module, handle, missing)
    rates = ask("utilization", "nvmlDeviceGetUtilizationRates")
    processes = ask("processes", "nvmlDeviceGetComputeRunningProcesses")
    return DeviceReading(
        uuid=_text(uuid) or f"nvml-{index}",
        nvml_index=index,
        name=_text(name) or f"GPU {index}",
        time_unix_us=now_us,
        total_bytes=_figure(memory, "total"),
        used_bytes=_figure(memory, "used"),
        free_bytes=_figure(memory, "free"),
        utilization_percent=_figure(rates, "gpu"),
        temperature_celsius=ask("temperature", "nvmlDeviceGetTemperature", getattr(module, "NVML_TEMPERATURE_GPU", 0)),
        power_milliwatts=ask("power", "nvmlDeviceGetPowerUsage"),
        processes=None if processes is None else tuple((int(p.pid), _figure(p, "usedGpuMemory")) for p in processes),
        mig_parent_uuid=mig_parent_uuid,
        missing=tuple(missing),
    )


def _memory(module: Any, handle: Any, missing: list[str]) -> Any:
    """Return version 2 where the driver has it: its ``used`` leaves out what the driver itself reserves, as nvidia-smi does."""
    version = getattr(module, "nvmlMemory_v2", None)
    if version is not None:
        found, problem = call(module, "nvmlDeviceGetMemoryInfo", handle, version=version)
        if problem is None:
            return found
    found, problem = call(module, "nvmlDeviceGetMemoryInfo", handle)
    if problem is not None:
        missing.append(f"memory: {problem}")
    return found


def _mig_devices(module: Any, handle: Any) -> Iterator[Any]:
    """Yield the handles of a GPU's MIG devices. A GPU that cannot do MIG has none, which is not a missing reading."""
    mode, problem = call(module, "nvmlDeviceGetMigMode", handle)
    if problem is not None or not mode[0]:
        return
    count, problem = call(module, "nvmlDeviceGetMaxMigDeviceCount", handle)
    for index in range(count if problem is None else 0):
        mig, problem = call(module, "nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
        if problem is None:
            yield mig


def _figure(found: Any, name: str) -> int | None:
    value = getattr(found, name, None)
    return None if value is None else int(value)


def _text(found: str | bytes | None) -> str | None:
    # pynvml gives bytes or str, by its version.
    return found.decode("utf-8", "replace") if isinstance(found, bytes) else found


def _words(error: Exception) -> str:
    return str(error) or error.__class__.__name__


class Sampler:
    """Reads NVML once a second in a thread of its own, so that a driver that hangs stops nothing else."""

    def __init__(self, load: Callable[[], Any] = load_pynvml, *, clock: Callable[[], float] = time.time) -> None:
        self._load = load
        self._clock = clock
        self._stopped = threading.Event()
        self._problem: str | None = None
        self._answered_s: float | None = None
        self._started_s = clock()
        self._readings: tuple[DeviceReading, ...] = ()
        self._thread = threading.Thread(target=self._run, name="vramscope-nvml", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end; it is not waited for, because NVML may hold it."""
        self._stopped.set()

    @property
    def readings(self) -> dict[str, DeviceReading]:
        """The newest readings by UUID, in the form of ``normal_uuid``."""
        return {normal_uuid(reading.uuid): reading for reading in self._readings}

    @property
    def available(self) -> bool:
        return self._answered_s is not None and self.message() is None

    def message(self) -> str | None:
        """Return the line that says what is missing, or None where NVML answers."""
        if self._problem is not None:
            return f"GPU figures of NVML are missing ({self._problem}); memory that is not PyTorch's cannot be told"
        silent_s = self._clock() - (self._answered_s or self._started_s)
        if silent_s > HUNG_S:
            return f"NVML has not answered for {silent_s:.0f} s; its figures are old"
        return None

    def _run(self) -> None:
        module: Any = None
        while not self._stopped.is_set():
            try:
                module = module or self._load()
                self._readings = read_devices(module, int(self._clock() * 1e6))
                self._problem, self._answered_s = None, self._clock()
                wait_s = INTERVAL_S
            except NvmlAway as away:
                module, self._readings, self._problem, wait_s = None, (), str(away), RETRY_S
            except Exception as error:  # noqa: BLE001 - the thread's boundary: a driver's odd answer must not end sampling
                module, self._readings, wait_s = None, (), RETRY_S
                self._problem = f"{error.__class__.__name__}: {error}"
            self._stopped.wait(wait_s)
