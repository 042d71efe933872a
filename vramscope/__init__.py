"""See what lies in GPU memory while a PyTorch job runs: ``import vramscope; vramscope.attach(model, optimizer)``."""

from __future__ import annotations

# A type checker takes this name for true. Importing typing for it costs 10 ms, the rest of this package 2 ms.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from vramscope.agent.agent import Agent as Agent
    from vramscope.agent.attach import attach as attach
    from vramscope.agent.attach import detach as detach
    from vramscope.agent.attach import mark as mark

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    # Importing vramscope must cost a training job nothing, so the agent is loaded when it is first asked for.
    if name == "Agent":
        from vramscope.agent import agent

        return agent.Agent
    if name in ("attach", "detach", "mark"):
        # `vramscope.agent.attach` is a module: only this spelling gives the function.
        from vramscope.agent import attach

        return getattr(attach, name)
    raise AttributeError(f"module 'vramscope' has no attribute {name!r}")
