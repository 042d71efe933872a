"""PyTorch's CUDA caching allocator as a pure state machine: the simulated GPU."""

from vramscope.allocator.alloc_conf import parse_alloc_conf
from vramscope.allocator.allocator import Allocator
from vramscope.allocator.blocks import Frames, PoolId
from vramscope.allocator.out_of_memory import OutOfMemory
from vramscope.allocator.settings import Settings
from vramscope.allocator.state import TraceEntry

__all__ = ["Allocator", "Frames", "OutOfMemory", "PoolId", "Settings", "TraceEntry", "parse_alloc_conf"]
