"""Items in the order of their ids, some at a time."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.engines.contract import Engine, Stored
from nearsure.service.gallery.item_names import ids_of, labels_of, names_shown

LARGEST_PAGE = 1000


@runtime_checkable
class PagingEngine(Protocol):
    """An engine that finds a page itself, without a pass over all before it."""

    def page(self, after: Any, limit: int, label: Any) -> Stored:  # noqa: ANN401
        """Some ids and labels."""

    def count(self, label: Any) -> int:  # noqa: ANN401
        """How many points have a label, or all."""


def page_of_items(
    engine: Engine,
    labels_beside: Callable[[AnyArray], AnyArray],
    *,
    after: str | None,
    limit: int,
    label: str | None,
) -> dict[str, Any]:
    """Some items, as `ItemPage` has them.

    Parameters
    ----------
    engine : Engine
        Where they are.
    labels_beside : callable
        From ids to labels, for an engine that holds none.
    after : str or None
        Only those whose id comes later.
    limit : int
        At most so many.
    label : str or None
        Only those of this label; the total then is of these.
    """
    start = None if after is None else ids_of([after], engine)[0]
    wanted = None if label is None else labels_of([label], engine)[0]
    # One more than is shown, to see whether there are more.
    if isinstance(engine, PagingEngine):
        own = None if start is None else start.item()
        name = None if wanted is None else wanted.item()
        found, total = engine.page(own, limit + 1, name), engine.count(name)
    else:
        found, total = _scanned(engine, labels_beside, start, limit + 1, wanted)
    ids, labels = names_shown(found.ids), names_shown(np.asarray(found.labels))
    items = [
        {"id": own, "label": name, "vector": None}
        for own, name in zip(ids[:limit], labels[:limit], strict=True)
    ]
    return {
        "items": items,
        "next": str(ids[limit - 1]) if len(ids) > limit else None,
        "total": total,
    }


def _scanned(
    engine: Engine,
    labels_beside: Callable[[AnyArray], AnyArray],
    start: Any,  # noqa: ANN401
    limit: int,
    wanted: Any,  # noqa: ANN401
) -> tuple[Stored, int]:
    """The same in one pass over all."""
    ids, labels = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    n_left, total = limit, 0
    for part in engine.scan():
        own = part.ids
        names = labels_beside(own) if part.labels is None else part.labels
        if wanted is not None:
            own, names = own[names == wanted], names[names == wanted]
        total += len(own)
        first = 0 if start is None else int(np.searchsorted(own, start, side="right"))
        rest = slice(first, first + n_left)
        n_left -= len(own[rest])
        ids.append(own[rest])
        labels.append(names[rest])
    # Without the empty ones, whose kind would be mixed in.
    return Stored(np.concatenate(ids[1:] or ids), np.concatenate(labels[1:] or labels)), total
