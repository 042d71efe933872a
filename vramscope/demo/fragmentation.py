"""The scenario *fragmentation*: small long-lived tensors pin every segment, then a request of 2 GiB finds no hole.

A round of reinforcement learning. The attention scores of a prompt's prefill take 512 MiB and go at once. Its keys and
values (48 MiB) are kept for the next round, and the cache of its answers (456 MiB) lives until the last word: both
settle in the place that the scores left. When the answers are done, their caches go too, and many GiB are free, in
holes of 464 MiB, each in a segment that a prompt's 48 MiB keep from going back to the driver. Then the answers are
scored, and that asks for logits of 2 GiB in one piece. With expandable segments the same round runs through.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from vramscope.demo.job import Job
from vramscope.demo.model import GPT, GPTConfig, build
from vramscope.demo.training import parameters, random_tokens
from vramscope.units import GIB

POLICY = GPTConfig(layers=12, width=1024, heads=16, kv_heads=4, vocabulary=32_768, context=4096)
ANSWERS = 8
ANSWER_TOKENS = 768
UPDATE_TOKENS = 256
SCORES_BYTES = POLICY.heads * POLICY.context**2 * 2
# What a round needs beside its prompts: the policy and its optimizer, the scores and weights of one prefill, the context.
BESIDE_PROMPTS_BYTES = 13 * GIB // 4
# In all, the state is reached within a minute.
PREFILL_PAUSE_S, ANSWER_PAUSE_S, RETRY_S = 0.4, 0.2, 5.0


def run(job: Job) -> None:
    policy, optimizer = build(POLICY)
    job.attach(policy, optimizer)
    prompts = max(1, (job.capacity_bytes - BESIDE_PROMPTS_BYTES) // SCORES_BYTES)
    job.say(f"trains a policy of {parameters(policy)} parameters on {ANSWERS} answers to each of {prompts} prompts")
    update(policy, optimizer)
    prefixes: dict[int, Tensor] = {}
    for number in job.step_numbers():
        job.mark(f"round {number}")
        with torch.no_grad():
            roll_out(job, policy, prompts, prefixes)
            score_until_it_fits(job, policy, number)
        update(policy, optimizer)
        job.say(f"round {number} is done, with {len(prefixes)} prompts kept for the next")


def roll_out(job: Job, policy: GPT, prompts: int, prefixes: dict[int, Tensor]) -> None:
    """Answer every prompt. Its keys and values replace those of the last round; nothing else is held afterwards."""
    caches = []
    for prompt in range(prompts):
        prefix = policy.prefill(random_tokens(policy, 1, POLICY.context))
        parts, layers, _, kv_heads, tokens, head_width = prefix.shape
        cache = prefix.new_empty((parts, layers, ANSWERS, kv_heads, tokens + ANSWER_TOKENS, head_width))
        # Each answer begins with the prompt's keys and values; those of its words would be written in place behind them.
        cache[..., :tokens, :] = prefix
        prefixes[prompt] = prefix
        caches.append(cache)
        job.pace.wait(PREFILL_PAUSE_S)
    while caches:
        caches.pop(0)
        job.pace.wait(ANSWER_PAUSE_S)


def score_until_it_fits(job: Job, policy: GPT, number: int) -> None:
    """Score a round's answers; where memory does not suffice, say so once and try again, in the same state, for ever."""
    reported = False
    # The refusal is a text: the error itself would keep the tensors of the failed attempt alive during the wait.
    while (refusal := refusal_to_score(policy)) is not None:
        if not reported:
            job.mark(f"out of memory in round {number}: 2 GiB of logits")
            job.say(f"out of memory in round {number}; tries again every {RETRY_S:.0f} s\n{refusal}")
            reported = True
        job.pace.wait(RETRY_S)


def refusal_to_score(policy: GPT) -> str | None:
    """Score the answers; return the error's text where memory did not suffice."""
    try:
        score(policy)
    except torch.OutOfMemoryError as error:
        return str(error)
    return None


def score(policy: GPT) -> list[Tensor]:
    """Return the log-probabilities of one prompt's answers. Asks for the logits, 2 GiB, in one piece."""
    answers = random_tokens(policy, ANSWERS, POLICY.context)
    logits = policy(answers)
    return [-F.cross_entropy(one, words, reduction="none") for one, words in zip(logits, answers, strict=True)]


def update(policy: GPT, optimizer: torch.optim.Optimizer) -> None:
    """Take one step of the optimizer on a few words, small beside the rest; its gradients stay until the next."""
    words = random_tokens(policy, 1, UPDATE_TOKENS)
    optimizer.zero_grad()
    F.cross_entropy(policy(words).flatten(0, 1).float(), words.flatten()).backward()
    optimizer.step()
