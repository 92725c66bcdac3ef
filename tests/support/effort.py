"""How much work Python does, counted: the same on a busy machine and on an idle one."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

EVENTS = sys.monitoring.events
COUNTED = (EVENTS.PY_START, EVENTS.PY_RESUME, EVENTS.JUMP, EVENTS.CALL)


@contextmanager
def at_most(steps: int, *, cpu_s: float = 5.0) -> Iterator[None]:
    """Fail where the block takes more calls, resumed generators and loop iterations, on any thread.

    Compiled code takes no steps: processor time bounds it, which does not pass while others run.
    """
    count = 0
    start = time.process_time()

    def step(*_: object) -> None:
        nonlocal count
        count += 1

    tool = sys.monitoring.PROFILER_ID
    sys.monitoring.use_tool_id(tool, "anychunk's tests")
    for event in COUNTED:
        sys.monitoring.register_callback(tool, event, step)
    sys.monitoring.set_events(tool, sum(COUNTED))
    try:
        yield
    finally:
        sys.monitoring.set_events(tool, 0)
        sys.monitoring.free_tool_id(tool)
    spent = time.process_time() - start
    assert count <= steps, f"{count} steps, at most {steps} were expected"
    assert spent <= cpu_s, f"{spent:.1f} s of processor time, at most {cpu_s} were expected"
