"""The words of out-of-memory messages: what each size is called, and which words say that memory ran out.

All of it in lower case and without blanks, as ``vramscope/pasted_text.py`` leaves a paste. From PyTorch's sources, 0.3 to
2.14, its neighbours' (torch_npu, IPEX, NCCL, PaddlePaddle, TensorFlow, JAX), and messages that people pasted.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Clause(NamedTuple):
    """What a size is called: ``words`` stand before or behind it, blanks dropped, colons left out before it.

    A clause that is not ``certain`` counts only inside a message that another clause or mark began; ``after`` lists the
    characters one of which must precede the number, where the words alone are too common.
    """

    key: str
    words: str
    certain: bool = True
    after: str = ""


BEFORE = (
    Clause("tried", "triedtoallocate"),
    Clause("tried", "fractionlimit.requestedsize"),
    Clause("tried", "cannotallocate", certain=False),
    Clause("tried", "whiletryingtoallocate", certain=False),
    Clause("tried", "outofmemoryallocating", certain=False),
    Clause("tried", "requested", certain=False),
    Clause("total", "capacityof"),
    Clause("total", "capactyof"),  # 2.1 and 2.2 spell it so
    Clause("total", "devicelimit"),
    Clause("free", "ofwhich", certain=False),
    Clause("free", "free(accordingtocuda)"),
    Clause("free", "free(accordingtohip)"),
    Clause("free", "availablememoryisonly", certain=False),
    Clause("in_use", "thisprocesshas"),
    Clause("allocated", "oftheallocatedmemory"),
    Clause("allocated", "mpsallocated"),
    Clause("allocated", "currentlyallocated"),
    Clause("other", "otherallocations", certain=False),
    Clause("allowed", "maxallowed", certain=False),
    Clause("allowed", "pytorchlimit(setbyusersuppliedmemoryfraction)"),
)
BEHIND = (
    Clause("total", "totalcapacity"),
    Clause("total", "total", certain=False, after="(;"),
    Clause("allocated", "alreadyallocated"),
    Clause("allocated", "isallocatedbypytorch"),
    Clause("allocated", "memoryhasbeenallocated", certain=False),
    Clause("private_pools", "allocatedinprivatepools"),
    Clause("unallocated", "isreserved"),
    Clause("active", "currentactive", certain=False, after="(;"),
    Clause("free", "isfree", certain=False),
    Clause("free", "free", certain=False, after="(;"),
    Clause("allowed", "allowed", certain=False, after="(;."),
    Clause("cached", "cached", certain=False, after="(;"),
    Clause("reserved", "reserved", certain=False, after="(;"),
)


class Mark(NamedTuple):
    """Words that tell an out-of-memory without a size: which backend, and what kind.

    The pattern's groups may name the ``backend`` where the mark does not, the ``device``, TensorFlow's ``exact`` bytes, or
    sizes in bytes by their keys.
    """

    pattern: re.Pattern[str]
    backend: str = ""
    kind: str = ""


# What a message is where it is not the caching allocator's own: the first four are keys of the facts. A mention is the
# exception's name, which may turn out to be the head of a message.
DISGUISED, OUTSIDE, FOREIGN, RETRY, MENTION = "disguised_oom", "not_caching_allocator", "foreign", "retry", "mention"

MARKS = (
    Mark(
        re.compile(r"(?P<backend>cuda|hip|xpu|npu|mps|mlu|musa|gcu|hpu)(?:backend)?outofmemory(?!error)"), kind=MENTION
    ),
    Mark(re.compile(r"torch\.(?:cuda\.)?outofmemoryerror(?!:allocation)"), kind=MENTION),
    Mark(re.compile(r"triedtoallocatemorethan1ebmemory")),
    Mark(re.compile(r"outofmemoryerror:allocationondevice(?:(?P<device>\d{1,4})would)?"), "cuda-async"),
    Mark(re.compile(r"(?<!memoryerror:)allocationondevice(?:(?P<device>\d{1,4})would|thiserrormeans)"), "cuda-async"),
    Mark(re.compile(r"thcudacheckfail.{0,300}?error2:outofmemory"), "cuda"),
    Mark(re.compile(r"(?P<backend>cuda|hip)runtimeerror\(\d{1,4}\):outofmemory")),
    Mark(re.compile(r"(?P<backend>cuda|hip)drivererror:outofmemory")),
    Mark(re.compile(r"(?P<backend>cuda|hip)error:outofmemory"), kind=OUTSIDE),
    Mark(re.compile(r"(?P<backend>cuda|hip)failure\d{0,3}outofmemory"), kind=OUTSIDE),  # NCCL and RCCL
    Mark(re.compile(r"(?:ur_result|pi)_error_out_of_\w{0,7}(?:memory|resources)"), "xpu", OUTSIDE),
    Mark(re.compile(r"allocationisoutofdevicememory"), "xpu", OUTSIDE),
    Mark(re.compile(r"cu(?:blas|dnn|solver|sparse)_status_alloc_failed"), "cuda", DISGUISED),
    Mark(re.compile(r"(?:hip|roc)(?:blas|solver|sparse)_status_alloc_failed"), "hip", DISGUISED),
    # Not every assertion of the allocator: those that it fails while it is short of memory.
    Mark(
        re.compile(
            r"(?:nvml_success|handles_|expandable_segment_|mapped).{0,80}?internalassertfailedat.{0,200}?"
            r"(?P<backend>cuda|hip|xpu|npu)cachingallocator\.cpp"
        ),
        kind=DISGUISED,
    ),
    Mark(re.compile(r"expandablesegmentsarenotcompatiblewithmemorypool"), "cuda", FOREIGN),
    Mark(re.compile(r"youtriedtoallocate"), "cpu", FOREIGN),
    Mark(re.compile(r"outofmemoryerroron[a-z]{3}\d{1,4}\.cannotallocate"), "paddle", FOREIGN),
    Mark(
        re.compile(r"failedtoallocate[\d.]{1,20}[kmgt]?i?b?\((?P<exact>\d{1,20})bytes\)fromdevice"),
        "tensorflow",
        FOREIGN,
    ),
    Mark(re.compile(r"oomwhenallocatingtensor"), "tensorflow", FOREIGN),
    Mark(re.compile(r"resource_exhausted:outofmemory"), "jax", FOREIGN),
    Mark(
        re.compile(
            r"memoryallocationfailedwithoomondevice(?P<device>\d{1,4})whiletryingtoallocate"
            r"(?P<tried>\d{1,20})bytes\(free:(?P<free>\d{1,20}),total:(?P<total>\d{1,20})\)"
        ),
        kind=RETRY,  # 2.14 warns so at each failed cudaMalloc, before it frees its cache and tries again
    ),
)
