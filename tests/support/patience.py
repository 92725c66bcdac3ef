"""Waiting in tests: for a condition, with a limit that only a hang reaches."""

import asyncio
import time
from collections.abc import Callable

PATIENCE_S = 900
"""The limit of every wait. Far more than any needs on a machine that does ten times as much besides."""


def wait_until(condition: Callable[[], object]) -> None:
    """Return once `condition()` is true; fail if it never is."""
    give_up = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up, "waited in vain"
        time.sleep(0.005)


async def loop_until(condition: Callable[[], object]) -> None:
    """Let the event loop run until `condition()` is true; fail if it never is."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - nothing tells when it becomes true
            await asyncio.sleep(0)
