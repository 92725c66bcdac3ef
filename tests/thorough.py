"""How much of the long tests runs: a sample of their examples, or everything with `make test SLOW=1`.

Without it, tests marked `slow` do not run: others test the same with fewer examples, or another command of CI does.
"""

import os
from collections.abc import Sequence

IS_THOROUGH = bool(os.environ.get("ANYCHUNK_SLOW"))


def examples(count: int) -> int:
    """Return how many examples Hypothesis makes."""
    return count if IS_THOROUGH else count // 4


def sample[T](cases: Sequence[T], *, of: int, start: int = 0) -> Sequence[T]:
    """Return one of every `of` cases, or all."""
    return cases if IS_THOROUGH else cases[start % of :: of]
