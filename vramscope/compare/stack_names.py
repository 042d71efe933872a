"""Names stacks by what their frames say, since the numbers of stacks and frames mean something in their own file only."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vramscope.snapshot.columns import I64, Snapshot

Frame = tuple[str, int, str]


class StackNames:
    """Gives stacks of several snapshots the same name where all their frames say the same.

    With ``ignore_lines`` the lines of frames mean nothing; ``shorten`` is applied to the names of their files.
    """

    def __init__(self, *, ignore_lines: bool = False, shorten: Callable[[str], str] = str) -> None:
        self._ignore_lines, self._shorten = ignore_lines, shorten
        self._code_of_frame: dict[Frame, int] = {}

    def names(self, snapshot: Snapshot, stacks: I64) -> list[bytes]:
        """Return the name of each of ``stacks`` of ``snapshot``."""
        table = snapshot.stacks
        first, frames = table.stack_first.astype(np.int64), table.stack_frame
        wanted = [frames[first[stack] : first[stack + 1]] for stack in stacks.tolist()]
        used = np.unique(np.concatenate(wanted)) if wanted else frames[:0]
        code = np.zeros(len(table.frame_file), np.uint32)
        for frame in used.tolist():
            text = self.frame_text(snapshot, frame)
            code[frame] = self._code_of_frame.setdefault(text, len(self._code_of_frame))
        return [code[own].tobytes() for own in wanted]

    def frame_text(self, snapshot: Snapshot, frame: int) -> Frame:
        """Return what ``frame`` says: its file, line (0 where lines are ignored) and function."""
        table, texts = snapshot.stacks, snapshot.texts
        line = 0 if self._ignore_lines else int(table.frame_line[frame])
        file = self._shorten(texts.get(int(table.frame_file[frame])))
        return file, line, texts.get(int(table.frame_name[frame]))
