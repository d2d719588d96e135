"""How a collection is searched: what a user may set, checked against what the collection is."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from nearsure.engines.contract import Fingerprint
from nearsure.engines.milvus.layout import INDEX_TYPES, METRIC_TYPES, Layout
from nearsure.engines.milvus.limits import LARGEST_EF
from nearsure.errors import GalleryMismatchError, InvalidInputError

USUAL_NPROBE = 16

Consistency = Literal["Strong", "Session", "Bounded", "Eventually"]


@dataclass(frozen=True)
class Settings:
    """See `MilvusEngine`."""

    metric: str | None
    index: str | None
    ef: int
    nprobe: int | None
    refine: bool
    consistency: str

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("metric", self.metric, (None, *METRIC_TYPES)),
            ("index", self.index, (None, *INDEX_TYPES)),
            ("consistency", self.consistency, get_args(Consistency)),
        ):
            if value not in allowed:
                raise InvalidInputError(
                    f"{name} must be one of {', '.join(map(repr, allowed))}. Got {value!r} instead."
                )
        if not 1 <= self.ef <= LARGEST_EF:
            raise InvalidInputError(f"ef must lie in [1, {LARGEST_EF}]. Got {self.ef} instead.")
        if self.nprobe is not None and self.nprobe < 1:
            raise InvalidInputError(f"nprobe must be at least 1. Got {self.nprobe} instead.")

    def check_against(self, layout: Layout, collection: str) -> None:
        """An error if the collection is not what was asked for."""
        for name, asked, is_type, types in (
            ("metric", self.metric, layout.metric_type, METRIC_TYPES),
            ("index", self.index, layout.index_type, INDEX_TYPES),
        ):
            if asked is not None and types[asked] != is_type:
                raise GalleryMismatchError(
                    f"{name} must be that of the collection {collection!r}, whose index has the "
                    f"type {is_type}. Got {asked!r} ({types[asked]}) instead. Leave it out to take "
                    "the collection as it is."
                )
        n_lists = layout.built_with.get("nlist")
        if n_lists is not None and self.nprobe is not None and self.nprobe > n_lists:
            raise InvalidInputError(
                f"nprobe must be at most {n_lists}, the lists of the index. Got {self.nprobe} "
                "instead."
            )

    def search_params(
        self, layout: Layout, n_candidates: int, nprobe: int | None = None
    ) -> dict[str, Any]:
        """What a search is sent with. An `ef` below the candidates would be an error in Milvus."""
        params = {}
        if layout.index_type.startswith("HNSW"):
            params["ef"] = max(self.ef, n_candidates)
        elif layout.index_type.startswith("IVF"):
            params["nprobe"] = nprobe or self._lists_looked_through(layout)
        return {"metric_type": layout.metric_type, "params": params}

    def lists_left(self, layout: Layout) -> int | None:
        """How many lists there are, if a search does not look through them all."""
        n_lists = layout.built_with.get("nlist")
        if not layout.index_type.startswith("IVF") or n_lists is None:
            return None
        return n_lists if self._lists_looked_through(layout) < n_lists else None

    def fingerprint(self, layout: Layout) -> Fingerprint:
        """All that decides which neighbours are found."""
        graph, lists = (layout.index_type.startswith(name) for name in ("HNSW", "IVF"))
        return {
            "engine": "milvus",
            "index": layout.index_type,
            "metric": layout.metric_type,
            "dimension": layout.dimension,
            **{name: layout.built_with.get(name) for name in ("M", "efConstruction", "nlist")},
            "ef": self.ef if graph else None,
            "nprobe": self._lists_looked_through(layout) if lists else None,
            "refine": self.refine,
            "consistency": self.consistency,
        }

    def _lists_looked_through(self, layout: Layout) -> int:
        if self.nprobe is not None:
            return self.nprobe
        return min(USUAL_NPROBE, layout.built_with.get("nlist", USUAL_NPROBE))
