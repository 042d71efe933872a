"""Does a part of the work in a forked copy of this process, which has everything that was read so far."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from vramscope.errors import BadInputError

Result = TypeVar("Result")


def beside(work: Callable[[], Result]) -> Callable[[], Result]:
    """Start ``work`` in a copy of this process; return what waits for its result, or raises what ``work`` raised there."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(receiver, sender, work), daemon=True)
    process.start()
    sender.close()

    def result() -> Result:
        try:
            found, error = receiver.recv()
        except EOFError:
            raise BadInputError("reading it takes more time or memory than there is") from None
        finally:
            process.join()
        if error is not None:
            raise error
        returned: Result = found
        return returned

    return result


def _send(receiver: Connection[Any, Any], sender: Connection[Any, Any], work: Callable[[], Any]) -> None:
    # With an end of its own to read from it would wait for ever where the first process is gone.
    receiver.close()
    # Whoever waits for the end of the first process's output shall not wait for this one.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    try:
        sender.send((work(), None))
    except Exception as error:  # noqa: BLE001 - raised again in the process that waits
        sender.send((None, error))
