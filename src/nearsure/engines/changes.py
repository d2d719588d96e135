"""Changes of several requests: noticed when they are cut off, until they are repeated or undone."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from nearsure.arrays import AnyArray
from nearsure.errors import PartialGalleryError

ChangeName = Literal["add", "remove", "relabel"]


@dataclass
class Change:
    """A change of points; if it takes several requests, it may be cut off between two of them."""

    kind: ChangeName
    ids: frozenset[Any]
    takes_several: bool


class Changes:
    """The changes of one gallery in a store without transactions.

    Parameters
    ----------
    name : str
        What the gallery is called in messages.

    Examples
    --------
    >>> import numpy as np
    >>> changes = Changes("birds")
    >>> change, _ = changes.begin("add", np.array([7, 8]), takes_several=True)
    >>> try:
    ...     with changes.noting(change):
    ...         raise ConnectionError
    ... except ConnectionError:
    ...     changes.check_whole()
    Traceback (most recent call last):
    ...
    nearsure.errors.PartialGalleryError: add() of 2 points in 'birds' was cut off, so that the \
gallery is not whole. Repeat add() with the same points, or take it back with remove() of the same \
ids.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._cut_off: Change | None = None

    def check_whole(self) -> None:
        """An error while a change that was cut off is neither completed nor taken back."""
        change = self._cut_off
        if change is not None:
            remedy = f"Repeat {change.kind}() with the same points"
            if change.kind == "add":
                remedy += ", or take it back with remove() of the same ids"
            raise PartialGalleryError(
                f"{change.kind}() of {len(change.ids)} points in {self._name!r} was cut "
                f"off, so that the gallery is not whole. {remedy}."
            )

    def begin(self, kind: ChangeName, ids: AnyArray, *, takes_several: bool) -> tuple[Change, bool]:
        """A change, and whether it repeats or takes back the one that was cut off."""
        change = Change(kind, frozenset(ids.tolist()), takes_several)
        earlier = self._cut_off
        if earlier is None:
            return change, False
        if change.ids != earlier.ids or kind not in {earlier.kind, "remove"}:
            self.check_whole()
        return change, True

    @contextmanager
    def noting(self, change: Change) -> Iterator[None]:
        """Remember a change that is cut off, until it is completed or taken back."""
        try:
            yield
        except BaseException:
            if change.takes_several:
                self._cut_off = change
            raise
        self._cut_off = None
