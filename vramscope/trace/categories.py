"""What a stack says about its memory: an owner category by stated rules, and the allocation site. Both are estimates by stack."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from vramscope.agent.categories import CODE
from vramscope.columns import U8
from vramscope.snapshot.columns import I32, NONE, Snapshot, Stacks
from vramscope.trace.columns import Bools


class Rule(NamedTuple):
    """A frame whose file and function match both patterns gives its category; ``why`` says so to people."""

    category: str
    why: str
    file: re.Pattern[str]
    function: re.Pattern[str]


def _rule(category: str, why: str, *, file: str = "", function: str = "") -> Rule:
    return Rule(category, why, re.compile(file), re.compile(function))


NO_RULE = "no frame of its stack tells"
# The innermost frame that matches any of them decides, by the first one that it matches.
RULES = (
    _rule("library workspace", "a frame of a library's workspace (cuBLAS, cuDNN)", function=r"(?i)workspace"),
    _rule("optimizer state", "torch/optim, where state is made (_init_group)", function=r"^_init_group$"),
    _rule("optimizer state", "torch/optim/sgd.py, which keeps its momentum", file=r"torch/optim/sgd\.py$"),
    _rule(
        "temporary",
        "within the arithmetic of an optimizer's step",
        file=r"torch/optim/",
        function=r"^_(multi|single)_tensor_",
    ),
    _rule("temporary", "torch/nn/utils/clip_grad.py", file=r"torch/nn/utils/clip_grad\.py$"),
    _rule(
        "optimizer state", "a frame of an optimizer", file=r"torch/optim/|bitsandbytes/optim|/optimizers/|fused_adam"
    ),
    _rule("KV cache", "a frame of a key-value cache", file=r"/cache_utils\.py$|vllm/.*cache"),
    _rule("input", "a frame of torch/utils/data", file=r"torch/utils/data/"),
    _rule(
        "communication",
        "a frame of torch/distributed or NCCL",
        file=r"torch/distributed/(?!run\.py|launch|elastic)",
    ),
    _rule("communication", "a frame of torch/distributed or NCCL", function=r"c10d::|^nccl[A-Z]|ProcessGroupNCCL"),
    _rule(
        "gradient",
        "a frame of the autograd engine, or of a backward",
        function=r"torch::autograd::(Engine|python::PythonEngine|AccumulateGrad|generated::\w+Backward)",
    ),
    _rule(
        "gradient", "a frame of the autograd engine, or of a backward", function=r"^(backward|_engine_run_backward)$"
    ),
    _rule(
        "parameter",
        "a module moved, loaded or made (torch/nn)",
        file=r"torch/nn/modules/module\.py$",
        function=r"^(_apply|to|cuda|convert|float|half|bfloat16|to_empty|load_state_dict|_load_from_state_dict|load)$",
    ),
    _rule("parameter", "a module moved, loaded or made (torch/nn)", file=r"torch/nn/(parameter|init)\.py$"),
    _rule(
        "parameter",
        "a module moved, loaded or made (torch/nn)",
        file=r"torch/nn/",
        function=r"^(__init__|reset_parameters)$",
    ),
    _rule("parameter", "a model read from a file", file=r"torch/serialization\.py$|safetensors/"),
    _rule(
        "parameter",
        "a model read from a file",
        function=r"^(from_pretrained|_load_pretrained_model|load_model|load_state_dict)$",
    ),
    _rule("activation", "a forward pass (torch/nn, forward)", function=r"^(forward|_call_impl|_wrapped_call_impl)$"),
    _rule("activation", "a forward pass (torch/nn, forward)", file=r"torch/nn/(functional\.py|modules/)"),
)

# Frames of torch, of C++ (their functions have "::", their files are "??" or libraries), and of generated code.
_OF_TORCH = re.compile(
    r"(site|dist)-packages/torch/"
    r"|(^|/)torch/(_\w+|amp|autograd|backends|compiler|cuda|distributed|fx|jit|nn|optim|utils)/"
    r"|(^|/)torch/(_\w+|functional|hub|serialization|storage)\.py$"
    r"|^\?\?$|^$|^<|\.(cpp|cc|cu|cuh|h|hpp|c)$|\.so(\.\d+)*$"
)


class StackRules(NamedTuple):
    """For each of K stacks the code of its category, and the place in RULES of what decided it, NONE where nothing did."""

    category: U8
    rule: I32

    def why(self, stack: int) -> str:
        """Return in words why ``stack`` has its category."""
        if stack == NONE:
            return "it has no stack"
        rule = int(self.rule[stack])
        return NO_RULE if rule == NONE else RULES[rule].why


def rules_of(snapshot: Snapshot) -> StackRules:
    """Return what decides the category of each stack (K,): each frame is looked at once, then each stack for its innermost hit."""
    table = snapshot.stacks
    frame_rule = _by_frame(snapshot, _rule_of_frame)
    frame = innermost(table, frame_rule != NONE)
    rule = np.full(len(table), NONE, np.int32)
    rule[frame != NONE] = frame_rule[frame[frame != NONE]]
    codes = np.array([CODE[rule.category] for rule in RULES] + [CODE["unknown"]], np.uint8)
    return StackRules(codes[rule], rule)


def sites_of(snapshot: Snapshot) -> I32:
    """Return the allocation site of each stack, shape (K,): its innermost frame outside torch, NONE where there is none."""
    return innermost(snapshot.stacks, _by_frame(snapshot, _is_outside) > 0)


def frame_label(snapshot: Snapshot, frame: int) -> str:
    """Return frame number ``frame`` in one line."""
    table, texts = snapshot.stacks, snapshot.texts
    file, function = texts.get(int(table.frame_file[frame])), texts.get(int(table.frame_name[frame]))
    return frame_text((file, int(table.frame_line[frame]), function))


def frame_text(frame: tuple[str, int, str]) -> str:
    """Return a frame (file, line, function) as "function (file:line)"; those of C++ have no line and, often, no file."""
    file, line, function = frame
    if file in ("", "??"):
        return function
    return f"{function} ({file}:{line})" if line else f"{function} ({file})"


def innermost(table: Stacks, matches: Bools) -> I32:
    """Return for each stack (K,) the innermost of its frames that ``matches`` (F,), NONE where none does."""
    found = np.full(len(table), NONE, np.int32)
    hits = np.flatnonzero(matches[table.stack_frame])
    # The first hit from where a stack begins is its own if it lies before where the stack ends.
    place = np.searchsorted(hits, table.stack_first[:-1])
    own = np.flatnonzero(place < len(hits))
    own = own[hits[place[own]] < table.stack_first[own + 1]]
    found[own] = table.stack_frame[hits[place[own]]]
    return found


def _by_frame(snapshot: Snapshot, look: Callable[[str, str], int]) -> I32:
    """Return what ``look`` finds for the file and function of each frame (F,); the same pair is looked at once."""
    table, texts = snapshot.stacks, snapshot.texts
    # Both numbers in one, which sorts ten times as fast as rows of two.
    different, place = np.unique(table.frame_file.astype(np.int64) * len(texts) + table.frame_name, return_inverse=True)
    pairs = (divmod(pair, len(texts)) for pair in different.tolist())
    found = [look(texts.get(file).replace("\\", "/"), texts.get(name)) for file, name in pairs]
    return np.array(found, np.int32)[place]


def _rule_of_frame(file: str, function: str) -> int:
    for place, rule in enumerate(RULES):
        if rule.function.search(function) and rule.file.search(file):
            return place
    return NONE


def _is_outside(file: str, function: str) -> int:
    return int("::" not in function and not _OF_TORCH.search(file))
