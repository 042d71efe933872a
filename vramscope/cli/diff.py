"""``vramscope diff``: what differs between two snapshots, or two moments of one, as tables or as JSON."""

from __future__ import annotations

import argparse
import json

from vramscope.cli.opening import is_same_file, open_file
from vramscope.cli.printing import print_out
from vramscope.compare.difference import difference
from vramscope.compare.side import side_of
from vramscope.compare.words import as_json, text_lines
from vramscope.snapshot.opening import shown

TEXT_ROWS = 15


def run(arguments: argparse.Namespace) -> int:
    """Print what ``arguments`` ask for. Raises BadInputError with one line where a side cannot be read or is not there."""
    a_file, b_file = arguments.a, arguments.b
    of_a = open_file(a_file, arguments.state_dir)
    # Of one file, streams and addresses mean the same on both sides.
    of_b = of_a if is_same_file(a_file, b_file) else open_file(b_file, arguments.state_dir)
    a = side_of(of_a, name=shown(a_file), device=arguments.device_a, at=arguments.at_a)
    b = side_of(of_b, name=shown(b_file), device=arguments.device_b, at=arguments.at_b)
    found = difference(a, b, ignore_lines=arguments.ignore_lines)
    if arguments.json:
        text = json.dumps(as_json(found, top=arguments.top), indent=1)
    else:
        text = "\n".join(text_lines(found, top=arguments.top or TEXT_ROWS))
    print_out(text)
    return 0
