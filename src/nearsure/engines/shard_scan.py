"""The scans of several shards as one, in the order of ids."""

from collections.abc import Iterator, Sequence

import numpy as np

from nearsure.engines.contract import Engine, Stored
from nearsure.engines.shard_placement import Placement
from nearsure.errors import GalleryMismatchError
from nearsure.index.stable_ids import a_few


def merged_scan(engines: Sequence[Engine], placement: Placement) -> Iterator[Stored]:
    """All ids and labels, ascending; one portion of each shard is in memory at a time.

    Parameters
    ----------
    engines : sequence of Engine
        Shards, each of which scans in the order of ids.
    placement : callable
        The shard that each id belongs to; an id in another one is an error.
    """
    scans = [_placed(engine, i, len(engines), placement) for i, engine in enumerate(engines)]
    heads = [next(scan, None) for scan in scans]
    while waiting := [head for head in heads if head is not None]:
        # Beyond the least of the last ids, a shard may have more that comes before.
        last = min(head.ids[-1] for head in waiting)
        ready = []
        for i, head in enumerate(heads):
            if head is None:
                continue
            n_ready = int(np.searchsorted(head.ids, last, side="right"))
            ready.append(_part(head, slice(0, n_ready)))
            all_ready = n_ready == len(head.ids)
            heads[i] = next(scans[i], None) if all_ready else _part(head, slice(n_ready, None))
        yield _in_order(ready)


def _placed(engine: Engine, shard: int, n_shards: int, placement: Placement) -> Iterator[Stored]:
    """A shard's portions that hold anything, after a look at where their ids belong."""
    for portion in engine.scan():
        if len(portion.ids):
            strangers = portion.ids[placement(portion.ids, n_shards) != shard]
            if len(strangers):
                raise GalleryMismatchError(
                    f"Shard {shard} of {n_shards} must hold only ids that belong to it. Got "
                    f"{a_few(strangers.tolist())}. Give the engines in the order in which they "
                    "were filled, with the placement that divided them."
                )
            yield portion


def _part(portion: Stored, rows: slice) -> Stored:
    return Stored(portion.ids[rows], None if portion.labels is None else portion.labels[rows])


def _in_order(portions: list[Stored]) -> Stored:
    ids = np.concatenate([portion.ids for portion in portions])
    labels = [portion.labels for portion in portions if portion.labels is not None]
    order = np.argsort(ids)
    return Stored(ids[order], np.concatenate(labels)[order] if labels else None)
