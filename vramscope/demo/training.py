"""The scenario *training*: a GPT of over 1 B parameters, trained for as long as it is let."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from vramscope.demo.job import Job
from vramscope.demo.model import GPT, LARGE, SMALL, build

STEPS_PER_EPOCH = 50
BATCH = 8


def run(job: Job) -> None:
    model, optimizer = build(SMALL if job.small else LARGE)
    job.attach(model, optimizer)
    job.say(f"trains a GPT of {parameters(model)} parameters, batch {BATCH} × {model.config.context} tokens")
    for step in job.step_numbers():
        if step % STEPS_PER_EPOCH == 1:
            job.mark(f"epoch {step // STEPS_PER_EPOCH + 1}")
        train_step(model, optimizer)


def train_step(model: GPT, optimizer: torch.optim.Optimizer) -> Tensor:
    """Do one step on made-up tokens, and return the logits, which still hold their place in the loss's graph."""
    ids = random_tokens(model, BATCH, model.config.context)
    targets = random_tokens(model, BATCH, model.config.context)
    logits = model(ids)
    F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
    return logits


def random_tokens(model: GPT, batch: int, tokens: int) -> Tensor:
    return torch.randint(0, model.config.vocabulary, (batch, tokens))


def parameters(model: GPT) -> str:
    """Return "1.42 B" or "2.5 M"."""
    count = sum(parameter.numel() for parameter in model.parameters())
    return f"{count / 1e9:.2f} B" if count >= 1e9 / 2 else f"{count / 1e6:.1f} M"
