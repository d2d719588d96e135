"""`Scorer`: the body of every worker, whatever runs it: Dask, Ray, Spark or a loop."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.classifier import NEDClassifier, Prediction
from nearsure.embedding_files.parquet import arrow
from nearsure.engines.contract import Engine
from nearsure.errors import InvalidInputError, ModelFileError
from nearsure.extras import require
from nearsure.model_file import sha256_of
from nearsure.posterior import Posterior

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    import pyarrow as pa


LABEL, CONFIDENCE, P_KNOWN, VERDICT = "label", "confidence", "p_known", "verdict"
RANKED_LABELS, RANKED_PROBABILITIES = "ranked_labels", "ranked_probabilities"

Ranked = int | Literal["all"] | None


class Scorer:
    """Labels and confidence of a batch of vectors, the same in every process.

    It holds names and numbers alone, no model and no password, so that it can be sent anywhere.
    Each process opens the model file once, and the engine by the name of a function, which takes
    the address from that process's own environment.

    Parameters
    ----------
    model : path-like
        A model file that `NEDClassifier.save` wrote; workers must have it under the same path.
    engine : str, optional
        "module:function" that takes nothing and opens the engine that holds the gallery, if the
        model file does not.
    vector_column : str, default "embedding"
        Column of the embeddings in a batch.
    ranked : int or "all", optional
        How many classes of each query to list with their probabilities, best first.
    sha256 : str, optional
        Digest that the model file must have; by default that of the file as it is now.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> from sklearn.datasets import load_digits
    >>> Z, y = load_digits(return_X_y=True)
    >>> model = Path(mkdtemp(), "digits.nearsure")
    >>> NEDClassifier().fit(Z[:900], y[:900]).save(model)
    >>> scorer = Scorer(model)
    >>> answers = scorer({"scan": ["a", "b"], "embedding": Z[900:902]})
    >>> list(answers), answers["label"].tolist()
    (['scan', 'label', 'confidence'], [4, 9])
    """

    def __init__(
        self,
        model: str | PathLike[str],
        engine: str | None = None,
        *,
        vector_column: str = "embedding",
        ranked: Ranked = None,
        sha256: str | None = None,
    ) -> None:
        check_ranked(ranked)
        check_open_engine(engine)
        self.model = str(Path(model).absolute())
        self.engine, self.vector_column, self.ranked = engine, vector_column, ranked
        self.sha256 = file_sha256(self.model) if sha256 is None else sha256

    def __call__(self, batch: Mapping[str, ArrayLike]) -> dict[str, AnyArray]:
        """Score a batch.

        Parameters
        ----------
        batch : dict of str to array of n rows
            One column holds the embeddings, as an array of shape (n, n_features) or as n vectors.

        Returns
        -------
        dict of str to array of shape (n,)
            The other columns of the batch, then "label" and "confidence"; "p_known" and "verdict"
            if unknown queries are expected; "ranked_labels" and "ranked_probabilities" if asked
            for. A batch must have none of these itself.
        """
        if self.vector_column not in batch:
            raise InvalidInputError(
                f"A batch must have the column {self.vector_column!r} (vector_column). "
                f"Got {', '.join(map(repr, batch))} instead."
            )
        answers = self.answer(_stack(batch[self.vector_column], self.vector_column))
        others = [name for name in batch if name != self.vector_column]
        twice = [name for name in others if name in answers.column_names]
        if twice:
            raise InvalidInputError(
                "A batch must not have columns that answers have. Got "
                f"{', '.join(map(repr, twice))}: rename or leave them out."
            )
        return {
            **{name: np.asarray(batch[name]) for name in others},
            **{name: answers.column(name).to_numpy() for name in answers.column_names},
        }

    def map_frames(self, frames: Iterable["pd.DataFrame"]) -> Iterator["pd.DataFrame"]:
        """Score frames of pandas one by one, as Spark's `mapInPandas` hands them to a worker."""
        frame = require("pandas", extra="batch", purpose="Scoring data frames").DataFrame
        for given in frames:
            columns = {str(name): given[name].to_numpy() for name in given.columns}
            # Lists of one length would become an array of two dimensions.
            yield frame({name: list(column) for name, column in self(columns).items()})

    def answer(self, vectors: AnyArray) -> "pa.Table":
        """Answers to vectors of shape (n, n_features), as an Arrow table of n rows."""
        with self.classifier() as classifier:
            if not len(vectors):
                # What any query has, without it: the columns are those of every other batch.
                nothing = classifier.predict_with_confidence(
                    np.ones((1, classifier.n_features_in_))
                )
                return answer_table(nothing, classifier.classes_, self.ranked).slice(0, 0)
            prediction = classifier.predict_with_confidence(vectors)
            return answer_table(prediction, classifier.classes_, self.ranked)

    @contextmanager
    def classifier(self) -> Iterator[NEDClassifier]:
        """The classifier of this process, opened if it is not."""
        with borrow_classifier(self.model, self.sha256, self.engine) as classifier:
            yield classifier


def _stack(column: ArrayLike, name: str) -> AnyArray:
    vectors = np.asarray(column)
    if vectors.dtype == object and vectors.size:
        try:
            vectors = np.stack([np.asarray(vector, np.float64) for vector in vectors])
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"The column {name!r} must hold vectors of one length, without gaps: {error}."
            ) from error
    return vectors


# The classifier of a worker: opened once in each process, by names that mean the same in all.
#
# What is sent to a worker is the path of a model file and the name of a function, never an object:
# no pickle, and no secret, as an engine's address comes from the worker's own environment.


@dataclass
class _Opened:
    classifier: NEDClassifier
    engine: Engine | None
    n_users: int = 0


_lock = RLock()
_opened: dict[tuple[str, str, str | None], _Opened] = {}


@contextmanager
def borrow_classifier(path: str, sha256: str, open_engine: str | None) -> Iterator[NEDClassifier]:
    """The classifier in a model file; it stays open until another is asked for.

    Parameters
    ----------
    path : str
        The model file.
    sha256 : str
        Its digest, so that no worker scores with another model of the same name.
    open_engine : str or None
        "module:function", which takes nothing and opens the engine that holds the points; None if
        the model file holds them.
    """
    key = (path, sha256, open_engine)
    with _lock:
        if key not in _opened:
            close_classifiers()
            _opened[key] = _open(path, sha256, open_engine)
        entry = _opened[key]
        entry.n_users += 1
    try:
        yield entry.classifier
    finally:
        with _lock:
            entry.n_users -= 1


def close_classifiers() -> None:
    """Close the classifiers of this process that are not in use."""
    with _lock:
        for key, entry in list(_opened.items()):
            if not entry.n_users:
                del _opened[key]
                if entry.engine is not None:
                    entry.engine.close()


def file_sha256(path: str | PathLike[str]) -> str:
    """The digest of a file."""
    try:
        return sha256_of(Path(path))
    except FileNotFoundError:
        raise FileNotFoundError(f"There is no model file at {path}.") from None


def check_open_engine(open_engine: str | None) -> None:
    """Raise an error unless this could name a function; a worker checks that there is one."""
    if open_engine is not None and not all(
        part.strip() for part in open_engine.partition(":")[::2]
    ):
        raise InvalidInputError(
            "open_engine must name a function that workers can import, as "
            f"'package.module:function'. Got {open_engine!r} instead."
        )


def _open(path: str, sha256: str, open_engine: str | None) -> _Opened:
    if file_sha256(path) != sha256:
        raise ModelFileError(
            f"{path} is not the model that scoring was started with: it has changed, or this "
            "machine has another. Start again."
        )
    engine = None if open_engine is None else _open_engine(open_engine)
    try:
        return _Opened(NEDClassifier.load(path, engine), engine)
    except BaseException:
        if engine is not None:
            engine.close()
        raise


def _open_engine(open_engine: str) -> Engine:
    module, function = open_engine.partition(":")[::2]
    try:
        opening = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise InvalidInputError(
            "open_engine must name a function that workers can import. "
            f"{open_engine!r} cannot be: {error}."
        ) from error
    engine: Engine = opening()
    return engine


def answer_table(prediction: Prediction, classes: AnyArray, ranked: Ranked) -> "pa.Table":
    """One row for each query.

    Parameters
    ----------
    prediction : Prediction
        Of n queries.
    classes : array of shape (n_classes,)
        The labels that class codes index.
    ranked : int, "all" or None
        How many of each query's classes to list, best first, with their probabilities.
    """
    pa = arrow()
    columns = {
        LABEL: label_column(prediction.labels),
        CONFIDENCE: pa.array(prediction.confidence, pa.float64()),
    }
    if prediction.p_known is not None:
        columns[P_KNOWN] = pa.array(prediction.p_known, pa.float64())
    if prediction.verdicts is not None:
        columns[VERDICT] = pa.array(prediction.verdicts.tolist(), pa.string())
    if ranked is not None:
        offsets, codes, probabilities = _best(prediction.posterior, ranked)
        edges = pa.array(offsets, pa.int32())
        columns[RANKED_LABELS] = pa.ListArray.from_arrays(edges, label_column(classes[codes]))
        columns[RANKED_PROBABILITIES] = pa.ListArray.from_arrays(
            edges, pa.array(probabilities, pa.float64())
        )
    return pa.table(columns)


def label_column(labels: AnyArray) -> "pa.Array":
    """Labels as Parquet holds them: numbers as they are, everything else as text."""
    pa = arrow()
    if labels.dtype.kind in "biuf":
        return pa.array(labels)
    listed = labels.tolist()
    if not all(isinstance(label, str) for label in listed):
        raise InvalidInputError(
            "Labels must be numbers, or all of them text, to be written to Parquet. Got a mixture."
        )
    return pa.array(listed, pa.string())


def check_ranked(ranked: Ranked) -> None:
    """Raise an error unless this is a number of classes, "all" or None."""
    is_number = isinstance(ranked, int) and not isinstance(ranked, bool) and ranked >= 1
    if not (ranked is None or ranked == "all" or is_number):
        raise InvalidInputError(
            f"ranked must be 'all', None or an integer of at least 1. Got {ranked!r} instead."
        )


def _best(posterior: Posterior, ranked: int | str) -> tuple[IntArray, IntArray, FloatArray]:
    """Offsets, class codes and probabilities of the best classes of each query."""
    lengths = np.diff(posterior.indptr)
    if not isinstance(ranked, str):
        lengths = np.minimum(lengths, ranked)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    entries = np.repeat(posterior.indptr[:-1] - offsets[:-1], lengths) + np.arange(offsets[-1])
    return offsets, posterior.codes[entries], posterior.probabilities[entries]
