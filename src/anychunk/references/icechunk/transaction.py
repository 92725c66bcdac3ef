"""Many references into an Icechunk repository as one step, in bounded memory.

Icechunk keeps all that a session wrote in memory until it is committed. So what is long is
committed piece by piece on a branch aside, and the branch itself moves once, when all is there.
"""

from typing import Any

from anychunk.io import buffers

ASIDE = "anychunk-saving"
PIECE = 120_000
"""References that are held in memory at once."""


class Transaction:
    """Writes to a branch, which changes when `commit` is called, and not before."""

    def __init__(self, repository: Any, branch: str, references: int) -> None:
        self._repository, self._branch = repository, branch
        self._begin = repository.lookup_branch(branch)
        self._is_aside = references > PIECE
        if self._is_aside:
            if ASIDE in repository.list_branches():
                repository.delete_branch(ASIDE)  # what a crash left
            repository.create_branch(ASIDE, self._begin)
        self._held = 0
        self._session = self._open()

    def _open(self) -> Any:
        return self._repository.writable_session(ASIDE if self._is_aside else self._branch)

    @property
    def store(self) -> Any:
        return self._session.store

    def took(self, references: int) -> None:
        """Note that so many references were written since."""
        self._held += references
        if self._is_aside and self._held >= PIECE:
            self._session.commit(f"{self._held} references")
            buffers.give_back()
            self._session, self._held = self._open(), 0

    def commit(self, message: str) -> str:
        snapshot = self._session.commit(message, allow_empty=True)
        if self._is_aside:
            self._repository.reset_branch(self._branch, snapshot, from_snapshot_id=self._begin)
            self._repository.delete_branch(ASIDE)
            buffers.give_back()
        return str(snapshot)
