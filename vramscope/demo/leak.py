"""The scenario *leak*: a training loop that keeps each step's logits in a list until memory runs out."""

from __future__ import annotations

import torch
from torch import Tensor

from vramscope.demo.job import Job
from vramscope.demo.model import LARGE, SMALL, build
from vramscope.demo.training import parameters, train_step
from vramscope.units import format_bytes


def run(job: Job) -> None:
    model, optimizer = build(SMALL if job.small else LARGE)
    job.attach(model, optimizer)
    job.say(f"trains a GPT of {parameters(model)} parameters and keeps each step's logits: memory will run out")
    predictions: list[Tensor] = []
    try:
        for _ in job.step_numbers():
            # The leak, as it is written every day: an epoch's accuracy is to be computed at its end, and the logits are
            # kept for it instead of the few bytes of logits.argmax(-1).
            predictions.append(train_step(model, optimizer))
    except torch.OutOfMemoryError:
        kept_bytes = sum(logits.untyped_storage().nbytes() for logits in predictions)
        job.say(f"after {len(predictions)} steps, the list of logits holds {format_bytes(kept_bytes)}")
        raise
