"""How much work Python does, counted: the same on a busy machine and on an idle one."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

EVENTS = sys.monitoring.events
COUNTED = (EVENTS.PY_START, EVENTS.PY_RESUME, EVENTS.JUMP, EVENTS.CALL)


@contextmanager
def at_most(steps: int) -> Iterator[None]:
    """Fail where the block takes more calls, resumed generators and loop iterations, on any thread.

    What compiled code does within one call is not counted.
    """
    count = 0

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
    assert count <= steps, f"{count} steps, at most {steps} were expected"
