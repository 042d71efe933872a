"""A training job for the end-to-end tests: it obeys one command a line, and answers each with its own truth as JSON.

Runs under the CUDA build of torch; the truth is what torch, cudaMemGetInfo and NVML say in this very process.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import sys
import time
from typing import Any

import pynvml
import torch
from torch import nn
from torch.nn import functional

import vramscope
from vramscope.units import MIB

WIDTH, HEADS, TOKENS, VOCABULARY = 192, 4, 64, 500


class Layer(nn.Module):
    """One transformer layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_attention, self.norm_mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, tokens, width = x.shape
        q, k, v = self.qkv(self.norm_attention(x)).view(rows, tokens, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).reshape(rows, tokens, width))
        return x + self.down(functional.gelu(self.up(self.norm_mlp(x))))


class Transformer(nn.Module):
    """A small transformer whose layers are spread over ``devices`` in order, as a pipeline."""

    def __init__(self, devices: list[torch.device], layers: int = 4) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH, device=devices[0])
        places = [devices[index * len(devices) // layers] for index in range(layers)]
        self.layers = nn.ModuleList(Layer().to(place) for place in places)
        self.head = nn.Linear(WIDTH, VOCABULARY, device=devices[-1])

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x.to(layer.qkv.weight.device))
        return self.head(x.to(self.head.weight.device))


class Job:
    """The model, what the commands keep alive, and the truth about both."""

    def __init__(self, devices: list[torch.device]) -> None:
        self.devices = devices
        self.model = Transformer(devices)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.kept: list[Any] = []
        self.fitted: bool | None = None
        vramscope.attach(self.model, self.optimizer, name="end-to-end")

    def train(self, steps: int) -> None:
        """Take ``steps`` steps; the gradients of the last one stay."""
        for _ in range(steps):
            self.optimizer.zero_grad()
            self.loss().backward()
            self.optimizer.step()

    def loss(self) -> torch.Tensor:
        tokens = torch.randint(0, VOCABULARY, (2, TOKENS), device=self.devices[0])
        wanted = torch.randint(0, VOCABULARY, (2, TOKENS), device=self.devices[-1])
        return functional.cross_entropy(self.model(tokens).flatten(0, 1), wanted.flatten())

    def forward(self) -> None:
        """Keep the activations of one forward pass."""
        self.kept.append(self.loss())

    def fragment(self) -> None:
        """Leave holes: of many blocks of many sizes, every other one is freed."""
        for device in self.devices:
            sizes = [300, 2000, 70_000, 900_000, 3 * MIB, 12 * MIB, 15 * MIB]
            blocks = [torch.empty(size + 512 * i, dtype=torch.uint8, device=device) for i in range(4) for size in sizes]
            self.kept += blocks[::2]

    def streams(self) -> None:
        """Use a side stream, and free blocks that it still uses: they stay pending, as its events are not ready."""
        ctypes.c_int.in_dll(ctypes.CDLL(None), "fake_gpu_busy").value = 1
        for device in self.devices:
            side = torch.cuda.Stream(device)
            with torch.cuda.stream(side):
                self.kept += [torch.empty(size, dtype=torch.uint8, device=device) for size in (5000, 4 * MIB)]
            for size in (7000, 3 * MIB):
                torch.empty(size, dtype=torch.uint8, device=device).record_stream(side)

    def graph_pool(self) -> None:
        """Keep memory in a private pool."""
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            self.kept += [pool, torch.empty(3 * MIB, dtype=torch.uint8, device=self.devices[0])]

    def history(self) -> None:
        torch.cuda.memory._record_memory_history(stacks="python")

    def oom(self) -> None:
        try:
            torch.empty(1 << 50, dtype=torch.uint8, device=self.devices[0])
        except torch.cuda.OutOfMemoryError:
            return
        raise AssertionError("a PiB fitted")

    def fill(self, left_mib: int) -> None:
        """Leave ``left_mib`` of the driver's memory."""
        free_bytes, _ = torch.cuda.mem_get_info(self.devices[0])
        self.kept.append(torch.empty(free_bytes - left_mib * MIB, dtype=torch.uint8, device=self.devices[0]))

    def request(self, size_bytes: int) -> None:
        """Ask for so much; the truth tells whether it fitted."""
        try:
            torch.empty(size_bytes, dtype=torch.uint8, device=self.devices[0])
            self.fitted = True
        except torch.cuda.OutOfMemoryError:
            self.fitted = False

    def empty_cache(self) -> None:
        torch.cuda.empty_cache()

    def mark(self) -> None:
        vramscope.mark("epoch 3")

    def detach(self) -> None:
        vramscope.detach()

    def wait(self) -> None:
        """Change nothing."""

    def truth(self) -> dict[str, Any]:
        gc.collect()
        # The other backend, cudaMallocAsync, refuses to tell.
        told = torch.cuda.get_allocator_backend() == "native"
        return {
            "pid": os.getpid(),
            "time_unix_us": time.time_ns() // 1000,
            "torch_version": torch.__version__,
            "devices": {device.index: self.device_truth(device.index) for device in self.devices},
            "segments": torch.cuda.memory_snapshot() if told else [],
            "tensors": self.tensors(),
            "fitted": self.fitted,
        }

    def device_truth(self, index: int) -> dict[str, Any]:
        free_bytes, total_bytes = torch.cuda.mem_get_info(index)
        # CUDA_VISIBLE_DEVICES renumbers the job's devices, and not NVML's.
        handle = pynvml.nvmlDeviceGetHandleByIndex(torch.cuda._get_nvml_device_index(index))
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        return {
            "stats": torch.cuda.memory_stats(index),
            "free_bytes": free_bytes,
            "total_bytes": total_bytes,
            "nvml": {
                "uuid": pynvml.nvmlDeviceGetUUID(handle),
                "name": pynvml.nvmlDeviceGetName(handle),
                "total_bytes": memory.total,
                "used_bytes": memory.used,
                "free_bytes": memory.free,
                "utilization_percent": pynvml.nvmlDeviceGetUtilizationRates(handle).gpu,
                "temperature_celsius": pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
                "power_milliwatts": pynvml.nvmlDeviceGetPowerUsage(handle),
                "processes": sorted(
                    [process.pid, process.usedGpuMemory]
                    for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
                ),
            },
        }

    def tensors(self) -> list[dict[str, Any]]:
        """Return what the model and the optimizer own, by full name; only what lies on a GPU."""
        found = []
        for name, parameter in self.model.named_parameters():
            found.append(("parameter", name, parameter))
            if parameter.grad is not None:
                found.append(("gradient", name, parameter.grad))
            state = self.optimizer.state.get(parameter, {})
            found += [("optimizer state", f"{key} of {name}", value) for key, value in state.items()]
        return [
            {
                "category": category,
                "name": name,
                "device": tensor.device.index,
                "address": tensor.data_ptr(),
                "bytes": tensor.nbytes,
                "shape": list(tensor.shape),
                "dtype": str(tensor.dtype).removeprefix("torch."),
            }
            for category, name, tensor in found
            if tensor.is_cuda
        ]


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--devices", type=int, nargs="+", default=[0])
    devices = [torch.device("cuda", index) for index in options.parse_args().devices]
    pynvml.nvmlInit()
    job = Job(devices)
    print(json.dumps(job.truth()), flush=True)
    for line in sys.stdin:
        command, *arguments = line.split()
        getattr(job, command)(*map(int, arguments))
        print(json.dumps(job.truth()), flush=True)


if __name__ == "__main__":
    main()
