"""For tests of the compiled module, which is optional."""

import pytest

from anychunk.native import loops

WHY = "the compiled module is not here: install a C compiler, then make setup"
needs_compiled = pytest.mark.skipif(loops is None, reason=WHY)
