"""PyTorch's CUDA caching allocator as a pure state machine: the simulated GPU."""

from vramscope.allocator.alloc_conf import parse_alloc_conf
from vramscope.allocator.allocator import Allocator
from vramscope.allocator.blocks import Frames, PoolId
from vramscope.allocator.out_of_memory import OutOfMemory
from vramscope.allocator.prospect import Fit, LargestFit, Prospect
from vramscope.allocator.recorded import recorded_settings
from vramscope.allocator.settings import Settings, order_of
from vramscope.allocator.state import TraceEntry

__all__ = [
    "Allocator",
    "Fit",
    "Frames",
    "LargestFit",
    "OutOfMemory",
    "PoolId",
    "Prospect",
    "Settings",
    "TraceEntry",
    "order_of",
    "parse_alloc_conf",
    "recorded_settings",
]
