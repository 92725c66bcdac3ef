"""Responses: statuses of errors, byte ranges, ETags, JSON, and the budget of memory."""

import asyncio
import json
import logging

import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

from anychunk.errors import (
    ChunkDecodeError,
    FormatError,
    InternalError,
    LimitError,
    MissingDependencyError,
    SourceChangedError,
    SourceError,
    TruncatedError,
    UnsupportedError,
)
from anychunk_serve import responses as module
from anychunk_serve.catalog import Entry
from anychunk_serve.response_bodies import BytesBody
from anychunk_serve.responses import (
    PIECE,
    BusyError,
    PiecewiseResponse,
    SendBudget,
    as_json,
    byte_range,
    exception_response,
    matches,
    status_of,
)
from tests.support.patience import PATIENCE_S, loop_until


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("bytes=0-0", (0, 1)),
        ("bytes=2-5", (2, 6)),
        ("bytes=2-", (2, 10)),
        ("bytes=-3", (7, 10)),
        ("bytes=-99", (0, 10)),
        ("bytes=5-99999999999999999999", (5, 10)),
        ("bytes=10-", "unsatisfiable"),
        ("bytes=-0", "unsatisfiable"),
        ("bytes=5-2", None),
        ("bytes=a-b", None),
        ("bytes=-", None),
        ("bytes=0-1,3-4", None),
        ("items=0-1", None),
        ("bytes=" + "9" * 300 + "-", None),
        ("", None),
    ],
)
def test_range_header(header, found):
    assert byte_range(header, 10) == found


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UnsupportedError("x"), 415),
        (FormatError("x"), 415),
        (LimitError("x"), 415),
        (MissingDependencyError("x"), 415),
        (SourceError("x"), 502),
        (TruncatedError("x"), 502),
        (ChunkDecodeError("x"), 502),
        (FileNotFoundError("x"), 502),
        (SourceChangedError("x"), 409),
        (BusyError("x"), 503),
        (InternalError("x"), 500),
        (ValueError("x"), 500),
        (MemoryError(), 500),
    ],
)
def test_status_of_errors(error, status):
    assert status_of(error) == status


def test_numbers_that_json_lacks():
    text = as_json({"a": [float("nan"), float("inf"), -float("inf"), 1.5], "b": (2,)})
    assert json.loads(text) == {"a": ["NaN", "Infinity", "-Infinity", 1.5], "b": [2]}


def test_tags_match_weakly():
    assert matches('W/"a"', '"a"')
    assert matches("*", '"a"')
    assert not matches('"b"', '"a"')
    assert not matches(None, '"a"')


@pytest.mark.parametrize("error", [InternalError("/secret/a.tif: lost"), KeyError("secret")])
def test_a_defect_is_logged_and_names_no_internals(error, caplog):
    def handle(request):
        request.state.entry = Entry("a.tif", "/secret/a.tif")
        try:
            raise error
        except type(error) as e:
            return exception_response(e, request.scope)

    client = TestClient(Starlette(routes=[Route("/", handle)]))
    with caplog.at_level(logging.ERROR, "anychunk.serve"):
        answer = client.get("/")
    assert answer.status_code == 500
    (line,) = answer.json()["error"].splitlines()
    assert "secret" not in line
    assert type(error).__name__ not in line
    (record,) = caplog.records
    assert record.exc_info[1] is error
    assert "Traceback" in caplog.text


def test_an_error_does_not_name_the_folder():
    scope = {"state": {"entry": Entry("a.tif", "/data/scans/a.tif")}}
    answer = exception_response(FormatError("/data/scans/a.tif @8: bad\nIFD"), scope)
    assert answer.status_code == 415
    assert json.loads(answer._body.data) == {"error": "a.tif @8: bad IFD"}


class Failing:
    """A body that fails when it is read from `start` on."""

    etag, is_in_memory = '"x"', False

    def __init__(self, start, error):
        self._start, self._error = start, error

    def __len__(self):
        return 3 * PIECE

    def read(self, start, stop):
        if stop > self._start:
            raise self._error
        return bytes(stop - start)


def send(response):
    """Return the messages that a response sends, and the exception that it raises."""
    messages = []

    async def collect(message):
        messages.append(message)

    async def run():
        await response({"type": "http", "method": "GET", "state": {}}, None, collect)

    try:
        asyncio.run(run())
    except Exception as e:
        return messages, e
    return messages, None


@pytest.mark.parametrize(("error", "status"), [(SourceError("gone"), 502), (KeyError("x"), 500)])
def test_a_failure_before_the_first_byte_changes_the_status(error, status):
    budget = SendBudget(1 << 20)
    messages, raised = send(PiecewiseResponse(Failing(0, error), 200, {}, budget=budget))
    assert raised is None
    assert messages[0]["status"] == status
    assert budget.taken == 0


def test_a_failure_after_the_first_byte_ends_the_response():
    budget, error = SendBudget(1 << 20), SourceError("gone")
    messages, raised = send(PiecewiseResponse(Failing(2 * PIECE, error), 200, {}, budget=budget))
    assert raised is error
    assert [m["type"] for m in messages] == ["http.response.start"] + ["http.response.body"] * 2
    assert messages[-1]["more_body"]
    assert budget.taken == 0


def test_a_body_is_sent_in_pieces():
    data = bytes(range(256)) * (3 * PIECE // 256)
    response = PiecewiseResponse(
        BytesBody.of(data), 206, {}, part=(5, 2 * PIECE + 9), budget=SendBudget(1 << 20)
    )
    messages, raised = send(response)
    assert raised is None
    bodies = [bytes(m["body"]) for m in messages[1:]]
    assert [len(body) for body in bodies] == [PIECE, PIECE, 4]
    assert b"".join(bodies) == data[5 : 2 * PIECE + 9]


async def test_the_budget_bounds_large_responses(monkeypatch):
    monkeypatch.setattr(module, "WAIT_S", 0.05)
    budget = SendBudget(1 << 20)
    large, small, other = (BytesBody.of(bytes([n])) for n in range(3))
    await budget.acquire(large, 2 << 20)  # larger than the bound, but alone
    await budget.acquire(small, 100)  # small ones never wait
    with pytest.raises(BusyError, match=str((2 << 20) + 100)):
        await budget.acquire(other, 1 << 17)
    monkeypatch.setattr(module, "WAIT_S", PATIENCE_S)
    waiting = asyncio.ensure_future(budget.acquire(other, 1 << 17))
    await loop_until(lambda: budget._freed._waiters)
    await budget.release(large, 2 << 20)
    await waiting
    assert budget.taken == 100 + (1 << 17)


def test_an_error_of_too_much_work_names_when_to_retry():
    answer = exception_response(BusyError("x"), {})
    assert (b"retry-after", b"1") in answer.raw_headers


async def test_a_body_sent_to_many_clients_is_counted_once(monkeypatch):
    monkeypatch.setattr(module, "WAIT_S", 0.05)
    budget, body = SendBudget(1 << 20), BytesBody.of(b"kept chunk")
    for _ in range(128):
        await budget.acquire(body, 1 << 19)
    assert budget.taken == 1 << 19
    for _ in range(128):
        await budget.release(body, 1 << 19)
    assert budget.taken == 0
    assert not budget._shared
