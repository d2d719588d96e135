"""Which classes are taken for which: a matrix of those alone that are confused."""

from collections.abc import Callable, Sequence
from itertools import zip_longest

import numpy as np

from nearsure.arrays import IntArray
from nearsure.report.answers import Answered
from nearsure.report.document import Confusion, ConfusionCell, Example, plain_label
from nearsure.report.thumbnails import Picture, Thumbnails

MOST_CLASSES = 20
# Of each cell; and pictures of all together, most of them some kilobytes.
MOST_EXAMPLES = 8
MOST_PICTURES = 150
MOST_TEXTS = 2000
LETTERS_SHOWN = 300


class Examples:
    """Shows answers with pictures or texts, as long as there are not too many in all.

    Parameters
    ----------
    answered : Answered
        The queries.
    thumbnails : Thumbnails
        Makes the pictures.
    picture_of_row, texts_of_rows : callable
        From the row of a query to its picture, and from rows to texts.
    """

    def __init__(
        self,
        answered: Answered,
        thumbnails: Thumbnails,
        picture_of_row: Callable[[int], Picture | None],
        texts_of_rows: Callable[[IntArray], Sequence[str | None]],
    ) -> None:
        self._answered, self._thumbnails = answered, thumbnails
        self._picture_of_row, self._n_pictures = picture_of_row, 0
        self._texts_of_rows, self._n_texts = texts_of_rows, 0

    def of(self, rows: IntArray) -> tuple[Example, ...]:
        """Some of the queries."""
        texts = self._texts_of_rows(rows) if self._n_texts < MOST_TEXTS else ()
        self._n_texts += len(texts)
        return tuple(self._show(row, text) for row, text in zip_longest(rows.tolist(), texts))

    def _show(self, row: int, text: str | None) -> Example:
        picture = None
        if self._n_pictures < MOST_PICTURES:
            picture = self._thumbnails.of(self._picture_of_row(row))
        self._n_pictures += picture is not None
        answered = self._answered
        return Example(
            plain_label(answered.ids[row]),
            float(answered.confidence[row]),
            picture,
            None if text is None else text[:LETTERS_SHOWN],
        )


def choose_confused(truth: IntArray, answers: IntArray, most: int = MOST_CLASSES) -> IntArray:
    """The classes that are most confused, pair by pair, so that each is confused with another.

    Parameters
    ----------
    truth, answers : array of shape (n,)
        Class codes of wrong answers.
    most : int
        Classes at most.

    Returns
    -------
    array of shape (n_classes,)
        Codes; classes that are confused with each other stand side by side.

    Examples
    --------
    >>> choose_confused(np.array([0, 1, 5, 3]), np.array([1, 0, 3, 4]), most=4)
    array([0, 1, 3, 4])
    >>> choose_confused(np.array([0, 1, 5, 3]), np.array([1, 0, 3, 4]))
    array([0, 1, 3, 4, 5])
    """
    either = np.sort(np.column_stack([truth, answers]), axis=1)
    pairs, counts = np.unique(either, axis=0, return_counts=True)
    chosen: dict[int, None] = {}
    # From the commonest on; a pair for which there is no room is left out.
    for place in np.argsort(-counts, kind="stable"):
        new = [code for code in pairs[place].tolist() if code not in chosen]
        if len(chosen) + len(new) <= most:
            chosen |= dict.fromkeys(new)
    return np.array(list(chosen), np.int64)


def confusion_of(answered: Answered, examples: Examples) -> Confusion | None:
    """The confusion matrix of answers; None if no class was taken for another.

    Queries of classes that the gallery lacks, and queries without an answer, take no part.

    Parameters
    ----------
    answered : Answered
        The queries.
    examples : Examples
        Shows some of them.
    """
    truth, answers = answered.codes, answered.answers
    counted = answered.known & (answers >= 0)
    wrong = np.flatnonzero(counted & (truth != answers))
    if not wrong.size:
        return None
    codes = choose_confused(truth[wrong], answers[wrong])
    place_of = np.full(len(answered.classes), -1)
    place_of[codes] = np.arange(len(codes))
    rows = np.flatnonzero(counted)
    rows = rows[(place_of[truth[rows]] >= 0) & (place_of[answers[rows]] >= 0)]
    rows = rows[np.argsort(-answered.confidence[rows], kind="stable")]
    cell_of = place_of[truth[rows]] * len(codes) + place_of[answers[rows]]
    cells = []
    for cell, count in zip(*np.unique(cell_of, return_counts=True), strict=True):
        of, taken_for = divmod(int(cell), len(codes))
        behind = rows[cell_of == cell][: MOST_EXAMPLES if of != taken_for else 0]
        cells.append(ConfusionCell(of, taken_for, int(count), examples.of(behind)))
    return Confusion(
        labels=tuple(answered.label_of(code) for code in codes.tolist()),
        cells=tuple(cells),
        n_confused=len(np.unique(np.concatenate([truth[wrong], answers[wrong]]))),
        n_wrong=len(wrong),
        n_shown=sum(cell.count for cell in cells if cell.truth != cell.answer),
    )
