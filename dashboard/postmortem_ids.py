"""The ids of the *Post-mortem* page's elements beyond those it shares with *Live*: the theme's and the segment map's."""

from __future__ import annotations

# The header.
FILE = "file"
OPEN_ANOTHER = "open-another"
RANK_PICKER = "rank-picker"
RANK = "rank"
RANK_MENU = "rank-menu"
GPU_PICKER = "gpu-picker"
GPU = "gpu"
GPU_MENU = "gpu-menu"
SEARCH = "search"
SEARCH_HITS = "search-hits"
COPY_LINK = "copy-link"

# What is shown while no file is open.
OPENER = "opener"
DROP_ZONE = "drop-zone"
FILE_INPUT = "file-input"
FILE_LIST = "file-list"
OPENING = "opening"
OPENING_NAME = "opening-name"
OPENING_STAGE = "opening-stage"
OPENING_BAR = "opening-bar"
OPENING_CANCEL = "opening-cancel"
OPENING_ERROR = "opening-error"
PASTE = "paste"
PASTE_READ = "paste-read"
PASTE_FOUND = "paste-found"

# The open file.
PICTURE = "picture"
MESSAGES = "messages"
OOM = "oom"
OOM_PICKER = "oom-picker"
OOM_VERDICT = "oom-verdict"
OOM_FACTS = "oom-facts"
OOM_SHOW = "oom-show"

# The active memory timeline.
MEMORY = "memory"
MEMORY_CANVAS = "memory-canvas"
MEMORY_GRAPH = "memory-graph"
MEMORY_OVERVIEW = "memory-overview"
MEMORY_SUMMARY = "memory-summary"
MEMORY_LEGEND = "memory-legend"
MEMORY_ALOUD = "memory-aloud"
MEMORY_AXIS = "memory-axis"
MEMORY_COLOUR = "memory-colour"
MEMORY_EXPORT = "memory-export"
MEMORY_KEY = "memory-key"
MEMORY_NONE = "memory-none"
TO_PEAK = "to-peak"
TO_OOM = "to-oom"
SHOW_WHOLE = "show-whole"

# The moment.
STEP_BACK = "step-back"
STEP_ON = "step-on"
MOMENT_EVENT = "moment-event"
MOMENT_NOTE = "moment-note"

# The right column.
DETAILS_BADGE = "details-badge"
DETAILS = "details"
DETAILS_STACK = "details-stack"
TAB = "tab"
STACKS_PANEL = "stacks-panel"
STACKS_AT = "stacks-at"
STACKS_TEXT = "stacks-text"
STACKS_NOTE = "stacks-note"
STACKS_GRAPH = "stacks-graph"
ROWS_TEXT = "rows-text"
ROWS_NOTE = "rows-note"
SETTINGS = "settings"
TAB_NONE = "tab-none"
TABLES = ("allocations", "sites", "events", "segments")


def table_panel(table: str) -> str:
    return f"{table}-panel"


def table_grid(table: str) -> str:
    return f"{table}-grid"


FOOTER = "footer"
