"""Write many references to a repository as one commit, in bounded memory.

Icechunk keeps everything that a session wrote in memory until it is committed. A long save is
therefore committed piece by piece on a temporary branch; the target branch is moved once, when
everything is written.
"""

from typing import Any

TEMPORARY_BRANCH = "anychunk-saving"
PIECE = 120_000
"""How many references are kept in memory at once."""


class Transaction:
    """Writes to a branch, which does not change before `commit` is called."""

    def __init__(self, repository: Any, branch: str, references: int) -> None:
        """Start a transaction.

        Parameters:
            repository: An `icechunk.Repository`.
            branch: The branch to write to.
            references: About how many references will be written.
        """
        self._repository, self._branch = repository, branch
        self._start = repository.lookup_branch(branch)
        self._is_temporary = references > PIECE
        if self._is_temporary:
            if TEMPORARY_BRANCH in repository.list_branches():
                repository.delete_branch(TEMPORARY_BRANCH)  # left behind by a crash
            repository.create_branch(TEMPORARY_BRANCH, self._start)
        self._uncommitted = 0
        self._session = self._open()

    def _open(self) -> Any:
        branch = TEMPORARY_BRANCH if self._is_temporary else self._branch
        return self._repository.writable_session(branch)

    @property
    def store(self) -> Any:
        """The store to write to; may be replaced by `count_references`."""
        return self._session.store

    def count_references(self, count: int) -> None:
        """Report that `count` references were written; commit a piece if it is large enough."""
        self._uncommitted += count
        if self._is_temporary and self._uncommitted >= PIECE:
            self._session.commit(f"{self._uncommitted} references")
            self._session, self._uncommitted = self._open(), 0

    def commit(self, message: str, statistics: dict[str, Any]) -> str:
        """Commit everything to the branch; return the id of the snapshot.

        Parameters:
            message: The commit message.
            statistics: What the commit records besides its message.
        """
        snapshot = self._session.commit(message, metadata=statistics, allow_empty=True)
        if self._is_temporary:
            # fails if another writer has committed to the branch in the meantime
            self._repository.reset_branch(self._branch, snapshot, from_snapshot_id=self._start)
            self._repository.delete_branch(TEMPORARY_BRANCH)
        return str(snapshot)
