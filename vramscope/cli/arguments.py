"""The arguments of ``vramscope`` and its subcommands; values are checked here, so that what follows can trust them."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import vramscope
from vramscope.agent import paths
from vramscope.demo.settings import LEAST_GPU_BYTES, SCENARIOS, DemoSettings
from vramscope.errors import BadInputError
from vramscope.units import format_bytes, parse_bytes

EPILOG = "In the job: import vramscope; vramscope.attach(model, optimizer)"
SNAPSHOT_HELP = "what torch.cuda.memory._dump_snapshot wrote; also JSON, HTML, gzip, zstd"
DEVICE_HELP = "the number of its GPU (the first in use; with oom the first that ran out)"
MOST_GPU_BYTES = 1 << 45
MOMENT_HELP = "end, peak, oom (the last out-of-memory) or the number of an event"


def build_parser() -> argparse.ArgumentParser:
    """Return the parser; the chosen subcommand's name is in ``command``."""
    parser = argparse.ArgumentParser(
        prog="vramscope",
        description="See what lies in GPU memory while a PyTorch job runs, in a browser.",
        epilog=EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"vramscope {vramscope.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_serve(commands.add_parser("serve", help="show the dashboard in a browser", epilog=EPILOG))
    _add_collect(commands.add_parser("collect", help="collect from jobs and GPUs without a dashboard", epilog=EPILOG))
    _add_demo(commands.add_parser("demo", help="show the dashboard over a training job on a simulated GPU"))
    _add_oom(commands.add_parser("oom", help="read pasted out-of-memory messages and memory_summary() tables"))
    _add_info(commands.add_parser("info", help="print the figures of a memory snapshot's file"))
    _add_open(commands.add_parser("open", help="show memory snapshots in a browser"))
    _add_diff(commands.add_parser("diff", help="print what differs between two snapshots, or two moments of one"))
    _add_report(commands.add_parser("report", help="write a snapshot as one HTML file, for a ticket or a chat"))
    _add_fit(commands.add_parser("fit", help="say whether a request would have been served at a moment of a snapshot"))
    _add_replay(commands.add_parser("replay", help="say what a snapshot's allocations would take under other settings"))
    return parser


def _add_folders(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--runtime-dir",
        type=_absolute,
        default=paths.runtime_folder().absolute(),
        help="the folder of the collector's socket (VRAMSCOPE_RUNTIME_DIR; now %(default)s)",
    )
    _add_state_folder(parser)


def _add_state_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state-dir",
        type=_absolute,
        default=paths.state_folder().absolute(),
        help="the folder of the history and the snapshots (VRAMSCOPE_STATE_DIR; now %(default)s)",
    )


def _add_address(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (%(default)s)")
    parser.add_argument("--port", type=_port, default=8050, help="the port to listen on, 0 for any (%(default)s)")
    parser.add_argument(
        "--token", help="the token of the URL; VRAMSCOPE_TOKEN hides it from ps; else a new one each start"
    )


def _add_serve(parser: argparse.ArgumentParser) -> None:
    _add_server(parser)
    parser.add_argument("--no-collector", action="store_true", help="do not start a collector where none runs")


def _add_open(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", type=_absolute, nargs="+", metavar="FILE", help=SNAPSHOT_HELP)
    _add_server(parser)


def _add_server(parser: argparse.ArgumentParser) -> None:
    _add_address(parser)
    parser.add_argument(
        "--base-path",
        type=_base_path,
        default="/",
        help="the path under which a proxy serves this (%(default)s)",
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="another host name by which a browser asks; a proxy in front must pass the Host header on",
    )
    _add_folders(parser)


def _add_collect(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--map-interval-ms", type=_positive, default=2000, help="a map is kept this often (%(default)s)"
    )
    parser.add_argument("--counters-hz", type=_rate, default=10.0, help="counters a second asked of jobs (%(default)s)")
    parser.add_argument("--store-cap-mib", type=_positive, default=1024, help="the history's size limit (%(default)s)")
    parser.add_argument("--no-nvml", action="store_true", help="do not ask the NVIDIA driver")
    _add_folders(parser)


def _add_demo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scenario", choices=SCENARIOS, default=DemoSettings.scenario, help="(%(default)s)")
    parser.add_argument(
        "--ranks",
        type=_positive,
        default=DemoSettings.ranks,
        help="training processes, each with a GPU of its own (%(default)s)",
    )
    parser.add_argument("--steps", type=_positive, help="end after so many steps (endless)")
    parser.add_argument("--capacity", type=_capacity, help="each simulated GPU's memory, as 24GiB (the scenario's own)")
    parser.add_argument("--alloc-conf", default="", help="allocator settings, as in PYTORCH_ALLOC_CONF")
    parser.add_argument("--small", action="store_true", help="train a tiny model")
    parser.add_argument("--no-history", action="store_true", help="record no stacks")
    parser.add_argument("--no-serve", action="store_true", help="run the job only, for a collector that runs already")
    _add_address(parser)
    _add_folders(parser)


def _add_oom(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", default="-", metavar="FILE", help="a text file, or - for the standard input")
    parser.add_argument("--json", action="store_true", help="print the facts as JSON, in bytes with their tolerance")


def _absolute(text: str) -> Path:
    # Absolute, since other processes are started in other folders and told of it.
    return Path(text).absolute()


def _whole(text: str) -> int:
    if not text.removeprefix("-").isdecimal() or len(text) > 12:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number")
    return int(text)


def _add_info(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help=SNAPSHOT_HELP)
    parser.add_argument("--json", action="store_true", help="print JSON, in bytes")
    _add_state_folder(parser)


def _add_diff(parser: argparse.ArgumentParser) -> None:
    for side in ("a", "b"):
        parser.add_argument(side, type=Path, metavar=side.upper(), help=SNAPSHOT_HELP)
    for side in ("a", "b"):
        parser.add_argument(f"--device-{side}", type=_whole, metavar="N", help=DEVICE_HELP)
        parser.add_argument(f"--at-{side}", default="end", metavar="MOMENT", help=f"{MOMENT_HELP} (%(default)s)")
    parser.add_argument(
        "--ignore-lines",
        action="store_true",
        help="take frames of one file and function as the same, whatever their line",
    )
    parser.add_argument("--top", type=_positive, metavar="N", help="rows of each table (15; with --json all)")
    parser.add_argument("--json", action="store_true", help="print JSON, in bytes")
    _add_state_folder(parser)


def _add_report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help=SNAPSHOT_HELP)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="the HTML file to write")
    parser.add_argument(
        "--device", type=_whole, metavar="N", help="(one that ran out of memory, else the first in use)"
    )
    parser.add_argument(
        "--at", metavar="MOMENT", help=f"{MOMENT_HELP} (the last out-of-memory, else the peak, else the end)"
    )
    parser.add_argument("--shorten-paths", action="store_true", help="leave folders of this machine out of file names")
    parser.add_argument("--force", action="store_true", help="replace a file that is no report of vramscope, too")
    _add_state_folder(parser)


def _add_fit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help=SNAPSHOT_HELP)
    parser.add_argument("size", type=_request, metavar="SIZE", help="what is asked for, as 512MiB or a number of bytes")
    parser.add_argument("--device", type=_whole, metavar="N", help=DEVICE_HELP)
    parser.add_argument("--at", default="end", metavar="MOMENT", help=f"{MOMENT_HELP} (%(default)s)")
    parser.add_argument(
        "--stream",
        type=_stream,
        metavar="N",
        help="the stream of the request (0; with --at oom that of the failed one)",
    )
    parser.add_argument(
        "--free", type=_bytes, metavar="BYTES", help="what the driver has free, as 3GiB (by an out-of-memory, if any)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, in bytes")
    _add_state_folder(parser)


def _add_replay(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help=SNAPSHOT_HELP)
    parser.add_argument(
        "--alloc-conf",
        action="append",
        default=[],
        metavar="CONF",
        help="allocator settings to try, as in PYTORCH_ALLOC_CONF; may be given several times",
    )
    parser.add_argument("--device", type=_whole, metavar="N", help="the number of its GPU (the first in use)")
    parser.add_argument(
        "--capacity", type=_capacity, help="what the process may reserve, as 80GiB (by an out-of-memory, else no limit)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, in bytes")
    _add_state_folder(parser)


def _positive(text: str) -> int:
    value = _whole(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return value


def _rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number") from None
    if not 0.01 <= value <= 100:
        raise argparse.ArgumentTypeError(f"{text} is not from 0.01 to 100 a second")
    return value


def _port(text: str) -> int:
    value = _whole(text)
    if not 0 <= value <= 65535:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 to 65535")
    return value


def _base_path(text: str) -> str:
    path = f"/{text.strip('/')}/" if text.strip("/") else "/"
    if not re.fullmatch(r"[A-Za-z0-9._~/-]+", path) or "//" in path or "/../" in path:
        raise argparse.ArgumentTypeError(f"{text!r} is not a path as /tools/vramscope/")
    return path


def _stream(text: str) -> int:
    # A stream other than the default one is a pointer.
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and int(text) < 1 << 64):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not the number of a stream")
    return int(text)


def _bytes(text: str) -> int:
    try:
        size_bytes = parse_bytes(text)
    except BadInputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if size_bytes > MOST_GPU_BYTES:
        raise argparse.ArgumentTypeError(f"{text} is more than any GPU has")
    return size_bytes


def _request(text: str) -> int:
    size_bytes = _bytes(text)
    if not size_bytes:
        raise argparse.ArgumentTypeError("a request of 0 bytes always fits")
    return size_bytes


def _capacity(text: str) -> int:
    size_bytes = _bytes(text)
    if size_bytes < LEAST_GPU_BYTES:
        raise argparse.ArgumentTypeError(f"{text} is not at least {format_bytes(LEAST_GPU_BYTES)}")
    return size_bytes
