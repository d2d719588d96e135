"""Which of a file's arrays is which: by key, by usual names, or because no other would do."""

from collections.abc import Iterable, Mapping

from nearsure.embedding_files.sources import Source
from nearsure.embedding_files.stored_arrays import StoredArray
from nearsure.errors import EmbeddingsFileError

# Names that say what an array is, where a file holds several that would do.
VECTOR_NAMES = ("embeddings", "embedding", "vectors", "vector", "x", "features")
LABEL_NAMES = ("labels", "label", "y")
ID_NAMES = ("ids", "id")
PICTURE_NAMES = ("images", "image", "pictures", "picture")

Arrays = Mapping[str, StoredArray]


def vectors_name(source: Source, stored: Arrays, key: str | None) -> str:
    """The array of vectors."""
    if key is not None:
        return _existing(source, stored, key, "vectors_key")
    for kinds in ("f", "iu"):
        candidates = [
            name
            for name, array in stored.items()
            if len(array.shape) == 2 and array.kind in kinds  # noqa: PLR2004
        ]
        if candidates:
            return _only(source, stored, candidates, VECTOR_NAMES, ("vectors", "vectors_key"))
    raise EmbeddingsFileError(
        f"{source} must hold an array of vectors, of shape (n, d) and of float32, float16 or "
        f"float64. It holds {listing(stored)}."
    )


def labels_name(
    source: Source, stored: Arrays, vectors: str, key: str | None, others: Iterable[str | None]
) -> str:
    """The array of labels, which must be there; `others` are ids and pictures."""
    if key is not None:
        return _existing(source, stored, key, "labels_key")
    n = stored[vectors].shape[0]
    fitting = [
        name
        for name, array in stored.items()
        if name not in (vectors, *others) and array.shape == (n,)
    ]
    named = [name for name in fitting if name.lower() in LABEL_NAMES]
    # Floats are hardly labels, unless they are called so.
    candidates = named or [name for name in fitting if stored[name].kind in "biuUSO"]
    if not candidates:
        raise EmbeddingsFileError(
            f"{source} must hold one label for each of its {n} vectors, or be given a file of "
            f"them (labels_path). It holds {listing(stored)}."
        )
    return _only(source, stored, candidates, LABEL_NAMES, ("labels", "labels_key"))


def named_array(
    source: Source,
    stored: Arrays,
    vectors: str,
    key: str | None,
    role: tuple[str, str, tuple[str, ...], str],
) -> str | None:
    """An array that may be absent: only its key or a usual name makes it what it is.

    `role` is what it is called in messages, the option of its key, its usual names and its kinds.
    """
    what, option, usual_names, kinds = role
    if key is not None:
        return _existing(source, stored, key, option)
    n = stored[vectors].shape[0]
    candidates = [
        name
        for name, array in stored.items()
        if name != vectors
        and name.lower() in usual_names
        and array.shape == (n,)
        and array.kind in kinds
    ]
    return _only(source, stored, candidates, usual_names, (what, option)) if candidates else None


def _existing(source: Source, stored: Arrays, key: str, option: str) -> str:
    if key not in stored:
        raise EmbeddingsFileError(
            f"{source} has no array {key!r} ({option}). It holds {listing(stored)}."
        )
    return key


def _only(
    source: Source,
    stored: Arrays,
    candidates: list[str],
    usual_names: tuple[str, ...],
    role_and_option: tuple[str, str],
) -> str:
    named = [name for name in candidates if name.lower() in usual_names] or candidates
    if len(named) > 1:
        role, option = role_and_option
        raise EmbeddingsFileError(
            f"{', '.join(map(repr, named))} could each be the {role} of {source}: say which "
            f"({option}). It holds {listing(stored)}."
        )
    return named[0]


def listing(stored: Arrays) -> str:
    """What a file holds, for messages."""
    return ", ".join(f"{name!r} {array}" for name, array in stored.items()) or "no array"
