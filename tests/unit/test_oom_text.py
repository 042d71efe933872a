"""Out-of-memory messages read back from text as people paste it, of every release and backend."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramscope.oom_reading import describe
from vramscope.oom_text import OutOfMemory, Size, facts_of, read_out_of_memory
from vramscope.units import GIB, KIB, MIB

CASES = Path(__file__).parents[2].parent / "shared" / "cases" / "oom"

ADVICE_2_0 = (
    " If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation."
    "  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF"
)
ADVICE_2_3 = (
    " If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid "
    "fragmentation.  See documentation for Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html)"
)


def printed(size_bytes: int, units: tuple[str, str, str] = ("KiB", "MiB", "GiB")) -> str:
    """Return a size as c10's ``format_size`` prints it."""
    if size_bytes <= KIB:
        return f"{size_bytes} bytes"
    for unit_bytes, unit, following in zip((KIB, MIB), units, (MIB, GIB), strict=False):
        if size_bytes <= following:
            return f"{size_bytes / unit_bytes:.2f} {unit}"
    return f"{size_bytes / GIB:.2f} {units[2]}"


# Each release's format: the sizes it prints, by key, and its text.
Format = tuple[tuple[str, ...], Callable[[dict[str, str]], str]]
FORMATS: dict[str, Format] = {
    "1.0": (
        ("tried", "total", "allocated", "free", "cached"),
        lambda s: (
            f"CUDA out of memory. Tried to allocate {s['tried']} (GPU 1; {s['total']} total capacity; {s['allocated']} "
            f"already allocated; {s['free']} free; {s['cached']} cached)"
        ),
    ),
    "2.0": (
        ("tried", "total", "allocated", "free", "allowed", "reserved"),
        lambda s: (
            f"CUDA out of memory. Tried to allocate {s['tried']} (GPU 1; {s['total']} total capacity; {s['allocated']} "
            f"already allocated; {s['free']} free; {s['allowed']} allowed; {s['reserved']} reserved in total by PyTorch)"
            f"{ADVICE_2_0}"
        ),
    ),
    "2.1": (
        ("tried", "total", "free", "in_use", "allocated", "unallocated"),
        lambda s: (
            f"CUDA out of memory. Tried to allocate {s['tried']}. GPU 1 has a total capacty of {s['total']} of which "
            f"{s['free']} is free. Including non-PyTorch memory, this process has {s['in_use']} memory in use. Of the "
            f"allocated memory {s['allocated']} is allocated by PyTorch, and {s['unallocated']} is reserved by PyTorch but "
            "unallocated. If reserved but unallocated memory is large try setting max_split_size_mb to avoid fragmentation."
        ),
    ),
    "2.6": (
        ("tried", "total", "free", "in_use", "allowed", "allocated", "private_pools", "unallocated"),
        lambda s: (
            f"CUDA out of memory. Tried to allocate {s['tried']}. GPU 1 has a total capacity of {s['total']} of which "
            f"{s['free']} is free. Including non-PyTorch memory, this process has {s['in_use']} memory in use. "
            f"{s['allowed']} allowed; Of the allocated memory {s['allocated']} is allocated by PyTorch, with "
            f"{s['private_pools']} allocated in private pools (e.g., CUDA Graphs), and {s['unallocated']} is reserved by "
            f"PyTorch but unallocated.{ADVICE_2_3}"
        ),
    ),
    "2.12": (
        ("tried", "total", "free", "allocated", "unallocated"),
        lambda s: (
            "CUDA out of memory. Allocation was preemptively rejected because it would exceed per_process_memory_fraction "
            f"limit. Requested size: {s['tried']}. GPU 1 has a total capacity of {s['total']} of which {s['free']} is free. "
            f"Of the allocated memory {s['allocated']} is allocated by PyTorch, and {s['unallocated']} is reserved by "
            "PyTorch but unallocated."
        ),
    ),
    "xpu": (
        ("tried", "total", "allocated", "unallocated"),
        lambda s: (
            f"XPU out of memory. Tried to allocate {s['tried']}. GPU 1 has a total capacity of {s['total']}. Of the allocated "
            f"memory {s['allocated']} is allocated by PyTorch, and {s['unallocated']} is reserved by PyTorch but "
            "unallocated. Please use `empty_cache` to release all unoccupied cached memory."
        ),
    ),
    "npu": (
        ("tried", "total", "allocated", "active", "free", "reserved"),
        lambda s: (
            f"NPU out of memory. Tried to allocate {s['tried']} (NPU 1; {s['total']} total capacity; {s['allocated']} already "
            f"allocated; {s['active']} current active; {s['free']} free; {s['reserved']} reserved in total by PyTorch)"
        ),
    ),
    "mps": (
        ("allocated", "other", "allowed", "tried"),
        lambda s: (
            f"MPS backend out of memory (MPS allocated: {s['allocated']}, other allocations: {s['other']}, max allowed: "
            f"{s['allowed']}). Tried to allocate {s['tried']} on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to "
            "disable upper limit for memory allocations (may cause system failure)."
        ),
    ),
    "cuda-async": (
        ("allocated", "tried", "total", "free", "allowed"),
        lambda s: (
            "Allocation on device 1 would exceed allowed memory. (out of memory)\n"
            f"Currently allocated     : {s['allocated']}\nRequested               : {s['tried']}\n"
            f"Device limit            : {s['total']}\nFree (according to CUDA): {s['free']}\n"
            f"PyTorch limit (set by user-supplied memory fraction)\n                        : {s['allowed']}"
        ),
    ),
}
PREFIXES = (
    "",
    "# ",
    " #  ",
    "> ",
    "// ",
    "[rank3]: ",
    "E       ",
    "(VllmWorker rank=3 pid=50999) ERROR 07-07 15:19:48 [worker.py:492] ",
    "2025-11-12T11:25:13.4961658Z ",
    "worker-1  | ",
    "\x1b[0;31m",
    "[1,3]<stderr>:",
)


def sizes_read(text: str) -> dict[str, Size | None]:
    (message,) = read_out_of_memory(text)
    return message.sizes


def facts(text: str) -> dict[str, Any]:
    return facts_of(read_out_of_memory(text))


@pytest.mark.skipif(not CASES.exists(), reason="the shared cases are not here")
def test_every_shared_case_reads_as_its_facts() -> None:
    wrong = []
    for file in sorted(CASES.glob("*.txt")):
        wanted = json.loads(file.with_suffix(".json").read_text())["facts"]
        wanted.pop("known_fraction", None)  # told elsewhere in the report, not in its text
        if facts(file.read_text(encoding="utf-8")) != wanted:
            wrong.append(file.name)
    assert wrong == []


@pytest.mark.parametrize("release", FORMATS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_message_wrapped_anywhere_reads_back_exactly(release: str, data: st.DataObject) -> None:
    # GIVEN a message of this release, broken into lines of any length, inside words and numbers too, and prefixed
    keys, write = FORMATS[release]
    truth = {key: data.draw(st.integers(0, 1 << data.draw(st.integers(0, 47))), key) for key in keys}
    units = data.draw(st.sampled_from((("KiB", "MiB", "GiB"), ("KB", "MB", "GB"))))
    text = write({key: printed(size_bytes, units) for key, size_bytes in truth.items()})
    prefix = data.draw(st.sampled_from(PREFIXES))
    width = data.draw(st.integers(7, 500))
    lines = [line[at : at + width] for line in text.split("\n") for at in range(0, len(line), width)]
    pasted = data.draw(st.sampled_from(("\n", "\r\n", " \n", "\\n"))).join(prefix + line for line in lines)

    # WHEN
    (message,) = read_out_of_memory(f"Traceback (most recent call last):\n{pasted}\n")

    # THEN
    assert set(message.sizes) == set(keys)
    for key, size_bytes in truth.items():
        size = message.sizes[key]
        assert size is not None
        assert abs(size.size_bytes - size_bytes) <= size.tolerance_bytes
        assert size.text == printed(size_bytes, units)
    assert message.backend == (release if release in ("xpu", "npu", "mps", "cuda-async") else "cuda")
    assert message.device == (None if release == "mps" else 1)
    assert message.rank == (3 if "rank" in prefix else None)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(sorted(FORMATS)), min_size=1, max_size=6))
def test_several_messages_are_all_found_in_order(releases: list[str]) -> None:
    # GIVEN messages that differ in what they tried to allocate
    texts = [
        FORMATS[release][1]({key: f"{index}.00 MiB" for key in FORMATS[release][0]})
        for index, release in enumerate(releases, 2)
    ]

    # WHEN
    found = read_out_of_memory("\n".join(texts))

    # THEN
    assert [message.sizes["tried"] for message in found] == [
        Size(f"{index}.00 MiB", index * MIB, 5244) for index in range(2, len(releases) + 2)
    ]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.text(max_size=20),
            st.sampled_from(
                [
                    "CUDA out of memory",
                    "Tried to allocate ",
                    "1.00 GiB",
                    " free;",
                    "(GPU 0; ",
                    "Process 1 has ",
                    "\x1b[",
                    "\n#",
                ]
            ),
        ),
        max_size=30,
    )
)
def test_any_text_is_read_or_left_alone(parts: list[str]) -> None:
    found = read_out_of_memory("".join(parts))
    assert found == sorted(found, key=lambda message: message.start)
    assert all(describe(message) for message in found)


@pytest.mark.parametrize(
    "piece",
    [
        "CUDA out of memory",
        "Tried to allocate 1.00 GiB; ",
        "1",
        "\n",
        "[",
        "(a=",
        "thcudacheckfail",
        "mapped internal assert failed at ",
        "&#1",
        "<a",
        "\x1b[",
        "Process 1 has ",
    ],
)
@pytest.mark.timeout(60)
def test_a_megabyte_of_anything_ends_soon(piece: str) -> None:
    # GIVEN 1 MB of what begins like a message again and again: half a second's work, and hours for a reader that backtracks
    text = piece * (MIB // len(piece))

    # THEN
    assert len(read_out_of_memory(text)) <= 1


def test_what_a_cut_message_does_not_say_is_absent() -> None:
    # GIVEN a message cut behind its first number
    message = facts("CUDA out of memory. Tried to allocate 218.96 GiB")

    # THEN
    assert message == {
        "backend": "cuda",
        "tried": {"text": "218.96 GiB", "bytes": 235106509783, "tolerance": 5368710},
    }


def test_a_missing_head_and_a_missing_index_are_null() -> None:
    found = facts("GPU  has a total capacity of 8.00 GiB of which 0 bytes is free.")
    assert found["tried"] is None
    assert found["device"] is None
    assert found["free"] == {"text": "0 bytes", "bytes": 0, "tolerance": 0}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("RuntimeError: CUDA error: out of memory", {"backend": "cuda", "not_caching_allocator": True}),
        ("HIP error: out of memory", {"backend": "hip", "not_caching_allocator": True}),
        ("ncclUnhandledCudaError: Cuda failure 2 'out of memory'", {"backend": "cuda", "not_caching_allocator": True}),
        (
            "level_zero backend failed: UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY",
            {"backend": "xpu", "not_caching_allocator": True},
        ),
        ("cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/x.cu:25", {"backend": "cuda"}),
        ("CUDA driver error: out of memory", {"backend": "cuda"}),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB memory.", {"backend": "cuda"}),
        (
            "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
            {"backend": "cuda", "disguised_oom": True},
        ),
        (
            'NVML_SUCCESS == r INTERNAL ASSERT FAILED at "../c10/hip/HIPCachingAllocator.cpp":830',
            {"backend": "hip", "disguised_oom": True},
        ),
        ("OOM when allocating tensor with shape[512,3] on GPU:0", {"backend": "tensorflow", "foreign": True}),
    ],
)
def test_a_message_without_numbers_says_so(text: str, wanted: dict[str, Any]) -> None:
    assert facts(text) == {**wanted, "no_numbers": True}


@pytest.mark.parametrize(
    ("text", "backend", "tried"),
    [
        (
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4915200 bytes. Error code 12",
            "cpu",
            "4915200 bytes",
        ),
        ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes.", "jax", "8589934592 bytes"),
        ("Out of memory error on GPU 0. Cannot allocate 3.621826GB memory on GPU 0, ", "paddle", "3.621826 GB"),
    ],
)
def test_a_neighbours_message_is_read_as_foreign(text: str, backend: str, tried: str) -> None:
    found = facts(text)
    assert (found["backend"], found["foreign"], found["tried"]["text"]) == (backend, True, tried)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "loss 0.25, 12.5 GiB free of 24 GiB on the GPU",
        "java.lang.OutOfMemoryError: Java heap space",
        'x INTERNAL ASSERT FAILED at "../c10/cuda/CUDACachingAllocator.cpp":12, captures_underway.empty()',
        "Filesystem: 100 GB total; 50 GB free; 3 GB cached",
        "THCudaCheck FAIL file=THCGeneral.cpp line=405 error=11 : invalid argument",
    ],
)
def test_other_text_is_no_message(text: str) -> None:
    assert read_out_of_memory(text) == []


def test_a_number_that_the_words_do_not_name_is_left_alone() -> None:
    # GIVEN sizes beside a message, which lack the places that the message's own have
    text = "I have 24.00 GiB free. CUDA out of memory. Tried to allocate 2.00 GiB. Version 1.2.3 GiB free, 9.00 GiB reserved"
    assert set(sizes_read(text)) == {"tried"}


def test_the_same_message_again_and_again_is_one() -> None:
    text = FORMATS["2.1"][1](dict.fromkeys(FORMATS["2.1"][0], "2.00 GiB"))
    assert facts(f"{text}\n{text}\n{text}")["same_event_times"] == 3
    assert "same_event_times" not in facts(text)


def test_messages_of_two_backends_carry_each_its_own() -> None:
    found = facts("HIP out of memory. Tried to allocate 2.00 GiB. CUDA out of memory. Tried to allocate 3.00 GiB.")
    assert [event["backend"] for event in found["events"]] == ["hip", "cuda"]
    assert "backend" not in found


def test_the_name_of_the_exception_beside_its_message_is_not_a_second_one() -> None:
    found = read_out_of_memory(
        "raise torch.OutOfMemoryError\nCUDA out of memory. Tried to allocate 2.00 GiB.\nGot CUDA out of memory, retrying"
    )
    assert [message.sizes["tried"] for message in found] == [Size("2.00 GiB", 2 * GIB, 5368710)]


def test_a_request_too_large_for_a_number_is_a_message_beside_others() -> None:
    found = read_out_of_memory(
        "CUDA out of memory. Tried to allocate 2.00 GiB.\nCUDA out of memory. Tried to allocate more than 1EB memory."
    )
    assert [message.has_numbers for message in found] == [True, False]


def test_a_warning_before_a_retry_counts_only_where_no_error_followed() -> None:
    # GIVEN what 2.14 warns of at each failed cudaMalloc
    warning = (
        "[W1130 23:36:27.6 CUDACachingAllocator.cpp:3934] memory allocation failed with OOM on device 0 while trying to "
        "allocate 20971520 bytes (free: 8388608, total: 2147483648).\n"
    )

    error = "CUDA out of memory. Tried to allocate 20.00 MiB.\n"

    # THEN alone it is read to the byte, and beside the error it is left out
    alone = facts(warning * 2)
    assert (alone["retry"], alone["device"], alone["same_event_times"]) == (True, 0, 2)
    assert alone["tried"] == {"text": "20971520 bytes", "bytes": 20 * MIB, "tolerance": 0}
    assert "retry" not in facts(warning + error)
    assert facts((warning + error) * 3)["same_event_times"] == 3


@pytest.mark.parametrize(
    ("text", "backend"),
    [
        ("GPU 0 has a total capacity of 8.00 GiB. Try PYTORCH_HIP_ALLOC_CONF=expandable_segments:True", "hip"),
        ("GPU 0 has a total capacity of 8.00 GiB. Please use `empty_cache` to release", "xpu"),
        ("GPU 0 has a total capacity of 8.00 GiB. Try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "cuda"),
        ("Tried to allocate 2.00 GiB (NPU 0; 8.00 GiB total capacity", "npu"),
        ("Currently allocated : 1.00 GiB\nRequested : 2.00 GiB\nDevice limit : 2.00 GiB", "cuda-async"),
        ("(MPS allocated: 1.00 GB, other allocations: 2.00 GB", "mps"),
    ],
)
def test_the_words_tell_the_backend_where_the_head_is_cut(text: str, backend: str) -> None:
    assert facts(text)["backend"] == backend


def test_two_to_the_64_bytes_are_no_size() -> None:
    # GIVEN what is printed for a limit that was not set, and for a process that NVML could not see
    unlimited = {**dict.fromkeys(FORMATS["cuda-async"][0], "1.00 GiB"), "allowed": "17179869184.00 GiB"}
    unseen = message_2_1(in_use="17179869184.00 GiB") + " Process 7 has 17179869184.00 GiB memory in use."

    # THEN
    assert facts(FORMATS["cuda-async"][1](unlimited))["allowed"] is None
    assert facts(unseen)["in_use"] is None
    assert facts(unseen)["processes"] == [{"pid": 7, "in_use": None}]
    assert "in use by process 7                      –" in readings(unseen)


def readings(text: str) -> str:
    (message,) = read_out_of_memory(text)
    return "\n".join(describe(message))


def message_2_1(**sizes: str) -> str:
    """Return a message of 2.1 in which everything fits and nothing is held elsewhere, but for ``sizes``."""
    usual = {"tried": "2.00 GiB", "total": "24.00 GiB", "free": "1.00 GiB", "in_use": "22.50 GiB"}
    return FORMATS["2.1"][1]({**usual, "allocated": "22.00 GiB", "unallocated": "1.00 GiB", **sizes})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"tried": "30.00 GiB"}, "than the whole device has"),
        ({"unallocated": "512.00 MiB"}, "even packed without a gap"),
        ({"unallocated": "1.50 GiB"}, "holes in PyTorch's segments can be the cause"),
        ({"free": "3.00 GiB"}, "More was free than was asked for"),
        ({"allocated": "12.00 GiB"}, "At least 9.98 GiB are held outside PyTorch's allocator"),
        ({"free": "80.00 GiB"}, "More is free than the device has"),
        ({"allocated": "30.00 GiB"}, "More is allocated than the device has"),
        ({"in_use": "0 bytes"}, "The driver did not see this process"),
    ],
)
def test_a_reading_says_what_the_numbers_can_tell_and_nothing_else(changed: dict[str, str], said: str) -> None:
    # GIVEN free and idle memory that equal what was tried, so that rounding decides
    assert said not in readings(message_2_1())

    # THEN
    assert said in readings(message_2_1(**changed))


def test_a_reading_shows_what_is_missing_as_missing() -> None:
    lines = readings("[rank2]: CUDA out of memory. Tried to allocate 2.00 GiB").splitlines()
    assert lines[0] == "CUDA out of memory, rank 2"
    assert [line.split()[-1] for line in lines[1:5]] == ["GiB", "–", "–", "–"]


def test_a_reading_names_a_limit_and_calls_none_none() -> None:
    sizes = dict.fromkeys(FORMATS["2.6"][0], "2.00 GiB")
    assert "PyTorch was allowed 2.00 GiB only" in readings(FORMATS["2.6"][1](sizes))
    sizes = {**dict.fromkeys(FORMATS["cuda-async"][0], "2.00 GiB"), "allowed": "17179869184.00 GiB"}
    unlimited = readings(FORMATS["cuda-async"][1](sizes))
    assert "was allowed" not in unlimited
    assert "limit                       none" in unlimited


@pytest.mark.parametrize("kind", ["disguised_oom", "not_caching_allocator", "foreign", ""])
def test_a_reading_without_numbers_shows_none(kind: str) -> None:
    lines = describe(OutOfMemory(0, 1, backend="cuda", kind=kind))
    assert len(lines) == 2
    assert not any(character.isdigit() for character in "".join(lines))
