"""The one console command: reads arguments, starts what they name, and turns errors into one line and exit status 2."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any, TextIO

from vramscope._location import put_application_on_path
from vramscope.cli.arguments import build_parser
from vramscope.demo.settings import DemoSettings
from vramscope.errors import VramscopeError, with_place

# What each subcommand needs beyond the base install, which has no dependency; see pyproject.toml.
EXTRAS = {
    "serve": "serve",
    "open": "serve",
    "collect": "serve",
    "demo": "serve,demo",
    "info": "analysis",
    "diff": "analysis",
    "report": "analysis",
    "fit": "analysis",
    "replay": "analysis",
}
# The commands that are one module of vramscope.cli each.
PLAIN = ("oom", "info", "diff", "report", "fit", "replay")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv`` (default: sys.argv) and return the exit status."""
    # Where a stream was closed (">&-") Python has None in its place.
    sys.stdout, sys.stderr = sys.stdout or _nowhere(), sys.stderr or _nowhere()
    arguments = build_parser().parse_args(argv)
    try:
        put_application_on_path()
        if arguments.command in PLAIN:
            # As Ctrl-C does, so that the process that reads a file ends too.
            signal.signal(signal.SIGTERM, _end)
            return int(_late(f"vramscope.cli.{arguments.command}").run(arguments))
        return {"serve": serve, "open": serve, "collect": collect, "demo": demo}[arguments.command](arguments)
    except VramscopeError as error:
        return complain(str(error))
    except ModuleNotFoundError as error:
        # Of our own modules, only a damaged installation lacks one; of others, one without the extra.
        return complain(
            f"vramscope {arguments.command} needs the package {error.name}, which is not installed here; "
            f"run: {sys.executable} -m pip install 'vramscope[{EXTRAS[arguments.command]}]'"
        )
    except KeyboardInterrupt:
        return 130  # Ctrl-C before the command took its signals over
    except Exception as error:  # noqa: BLE001 - the top of the process: a fault of ours is a line to report, not a traceback
        complain(f"{arguments.command} ended because of an error that it did not expect: {with_place(error)}")
        return 1


def _nowhere() -> TextIO:
    return open(os.devnull, "w")


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def complain(line: str) -> int:
    """Print the one line that an error has for its user; return the exit status of bad input."""
    sys.stderr.write(f"vramscope: {line}\n")
    return 2


def collect(arguments: argparse.Namespace) -> int:
    """Run the collector until a signal."""
    return int(_late("collectors.service").run(_collector_settings(arguments)))


def serve(arguments: argparse.Namespace) -> int:
    """Serve the dashboard until a signal; ``open`` serves it with files, and leaves collectors as they are."""
    auth, app = _late("dashboard.auth"), _late("app")
    given = arguments.token or os.environ.get("VRAMSCOPE_TOKEN")
    return int(
        app.serve(
            app.ServeSettings(
                host=arguments.host,
                port=arguments.port,
                token=auth.check_token(given) if given else auth.make_token(),
                base_path=arguments.base_path,
                hosts=tuple(arguments.allow_host),
                collector=_collector_settings(arguments),
                start_collector=arguments.command == "serve" and not arguments.no_collector,
                files=tuple(arguments.files) if arguments.command == "open" else (),
            )
        )
    )


def demo(arguments: argparse.Namespace) -> int:
    """Run the demo's job; unless told not to, under a collector and a dashboard of its own."""
    if not arguments.no_serve:
        return int(_late("vramscope.cli.demo").run(arguments))
    settings = DemoSettings(
        scenario=arguments.scenario,
        ranks=arguments.ranks,
        steps=arguments.steps,
        capacity_bytes=arguments.capacity,
        alloc_conf=arguments.alloc_conf,
        small=arguments.small,
        history=not arguments.no_history,
        runtime_folder=arguments.runtime_dir,
    )
    return int(_late("vramscope.demo.main").run(settings))


def _late(module: str) -> Any:
    """Import a module where it is needed: each command loads its own packages and no other's."""
    return importlib.import_module(module)


def _collector_settings(arguments: argparse.Namespace) -> Any:
    settings = {"runtime_folder": arguments.runtime_dir, "state_folder": arguments.state_dir}
    if arguments.command == "collect":
        settings.update(
            map_interval_us=arguments.map_interval_ms * 1000,
            counters_hz=arguments.counters_hz,
            store_cap_bytes=arguments.store_cap_mib << 20,
            nvml=not arguments.no_nvml,
        )
    return _late("collectors.settings").CollectorSettings(**settings)


if __name__ == "__main__":
    sys.exit(main())
