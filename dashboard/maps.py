"""The owners of a map's blocks, worked out once for each map and shared by the tabs and callbacks that show it."""

from __future__ import annotations

import weakref

from vramscope import owners
from vramscope.columns import DeviceMap

_assigned: weakref.WeakKeyDictionary[DeviceMap, owners.BlockOwners] = weakref.WeakKeyDictionary()


def owners_of(found: DeviceMap) -> owners.BlockOwners:
    """Return ``owners.assign(found)``; two threads that ask at once may both work it out, to the same result."""
    known = _assigned.get(found)
    if known is None:
        known = _assigned[found] = owners.assign(found)
    return known


def token(found: DeviceMap) -> str:
    """Return what tells this map from any other of the same device, also after the collector has started anew."""
    return f"{found.version}.{found.time_unix_us}"
