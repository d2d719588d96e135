"""What errors and warnings say of Python, said of the command line."""

import re

OPTIONS = {
    "vectors_key": "--vectors-key",
    "labels_key": "--labels-key",
    "ids_key": "--ids-key",
    "pictures_key": "--pictures-key",
    "labels_path": "--labels",
    "unknown_share": "--unknown-share",
    "n_neighbors": "-k",
    "max_fit_samples": "--max-fit-samples",
    "class_counts": "--class-counts",
    "cors_origins": "--cors-origin",
}
PHRASES = {
    "--unknown-share must be None or a fraction": "--unknown-share must be a fraction",
    "ive the temperature": "ive nearsure fit a --temperature",
    "Pass groups= to leave duplicates out together, or remove them.": "Remove duplicates.",
    "If that is because of near-duplicates, pass groups= to leave them out together.": "If that is "
    "because of near-duplicates, remove them.",
    "SqliteEngine.create(path, dimension)": "nearsure fit FILE -o gallery.sqlite",
}
# Not a part of a path, nor the name of a column.
_NAMES = re.compile(rf"(?<![\w./'\"-])({'|'.join(OPTIONS)})(?![\w/'\"-]|\.\w)")


def as_typed(message: str) -> str:
    """A message with the names of options in place of those of parameters.

    Examples
    --------
    >>> as_typed("g.npz has no array 'ids_key' (vectors_key).")
    "g.npz has no array 'ids_key' (--vectors-key)."
    """
    message = _NAMES.sub(lambda found: OPTIONS[found[0]], message)
    for phrase, typed in PHRASES.items():
        message = message.replace(phrase, typed)
    return message
