import pytest

from anychunk.errors import InternalError


@pytest.fixture(autouse=True)
def defects(request, monkeypatch):
    """Fail a test in which anychunk blames itself, even where an AnychunkError is expected."""
    found = []

    def record(self, *args):
        found.append(args)
        super(InternalError, self).__init__(*args)

    monkeypatch.setattr(InternalError, "__init__", record)
    yield
    if "defect" not in request.keywords:
        assert not found, found
