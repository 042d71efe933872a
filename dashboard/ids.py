"""The ids of the page's elements; the scripts in ``assets/`` name the same ones (a test holds the two together)."""

from __future__ import annotations

# What drives the page.
URL = "url"
TICK = "tick"
SELECTION = "selection"
PAUSED = "paused"
CHARTS_DUE = "charts-due"
SELECTED_BLOCK = "selected-block"

# The header.
JOB = "job"
RANK_PICKER = "rank-picker"
RANK = "rank"
RANK_MENU = "rank-menu"
GPU_PICKER = "gpu-picker"
GPU = "gpu"
GPU_MENU = "gpu-menu"
SIMULATED = "simulated"
LIGHT = "light"
LIGHT_TEXT = "light-text"
LIGHT_RATE = "light-rate"
THEME = "theme"
PAUSE = "pause"
DUMP = "dump"
DUMPS = "dumps"

# Messages and states.
BANNERS = "banners"
SERVER_GONE = "server-gone"
EMPTY = "empty"
PICTURE = "picture"

# The whole GPU as one bar, and the six figures.
DEVICE_NAME = "device-name"
DEVICE_BAR = "device-bar"
DEVICE_PARTS = "device-parts"
CARD_ACTIVE = "card-active"
CARD_RESERVED = "card-reserved"
CARD_INACTIVE_SPLIT = "card-inactive-split"
CARD_LARGEST_FIT = "card-largest-fit"
CARD_RETRIES = "card-retries"
CARD_OTHERS = "card-others"
CARDS = (CARD_ACTIVE, CARD_RESERVED, CARD_INACTIVE_SPLIT, CARD_LARGEST_FIT, CARD_RETRIES, CARD_OTHERS)
FIT_SIZE = "fit-size"

# The segment map.
MAP = "map"
MAP_AXES = "map-axes"
MAP_GRAPH = "map-graph"
MAP_CANVAS = "map-canvas"
MAP_SUMMARY = "map-summary"
MAP_LINES = "map-lines"
MAP_ALOUD = "map-aloud"
MAP_LEGEND = "map-legend"
MAP_COLOUR = "map-colour"
MAP_SORT = "map-sort"
MAP_POOL = "map-pool"
MAP_VIEW = "map-view"
MAP_TABLE = "map-table"
MAP_EXPORT = "map-export"
MAP_TIP = "map-tip"

# The fragmentation timeline.
TIMELINE = "timeline"
TIMELINE_GRAPH = "timeline-graph"
TIMELINE_WINDOW = "timeline-window"
TIMELINE_NOTE = "timeline-note"
TIMELINE_NOW = "timeline-now"

# The right column.
BLOCK_BADGE = "block-badge"
BLOCK_FACTS = "block-facts"
BLOCK_STACK = "block-stack"
OWNER_BAR = "owner-bar"
OWNER_PARTS = "owner-parts"
OWNER_GRID = "owner-grid"
OWNER_NOTE = "owner-note"
OWNER_CSV = "owner-csv"

# Snapshots.
DUMP_PANEL = "dump-panel"
DUMP_MESSAGE = "dump-message"
DUMP_LIST = "dump-list"
DUMP_CLOSE = "dump-close"

FOOTER = "footer"
