"""Embeddings of damaged queries to evaluations by every protocol, cached."""

from collections.abc import Callable, Iterator
from functools import partial

from nearsure.arrays import AnyArray, IntArray
from nearsure.errors import InvalidInputError, NearsureError
from nearsure.lab.protocols import ProtocolName
from nearsure.lab.robust.model import RobustModel
from nearsure.lab.robust.robust_evaluation import RobustEvaluation, evaluate_variants
from nearsure.lab.robust.variants import Variant
from nearsure.lab.stages import Stage
from nearsure.neighbors import Neighbors

Damaged = Callable[[], Iterator[tuple[Variant, AnyArray]]]
# Raised when evaluations hold other numbers for the same embeddings.
EVALUATION_VERSION = 1


def score_damaged(
    model: RobustModel,
    stage: Stage,
    rows: IntArray,
    clean: AnyArray,
    damaged: Damaged,
    *,
    plan: list[str],
    seed: int,
    n_resamples: int,
) -> list[RobustEvaluation]:
    """Search the damaged queries in each clean gallery, and score them by all methods.

    Parameters
    ----------
    model : RobustModel
        With galleries, T and calibrators, which are not changed.
    stage : Stage
        What made the embeddings.
    rows : array of shape (n,)
        Which query images were damaged.
    clean : array of shape (n, d)
        Their unit vectors before.
    damaged : callable
        Gives variants with the unit vectors after, shape (n, d), one at a time.
    plan : list of str
        What `damaged` will give, for the cache.
    seed, n_resamples : int
        Of the intervals.
    """
    evaluations = []
    for protocol in model.supports:
        inputs = {
            "damaged": stage.key,
            "plan": plan,
            "protocol": protocol,
            "k": model.k,
            "gallery_seed": model.seed,
            "seed": seed,
            "n_resamples": n_resamples,
            "version": EVALUATION_VERSION,
        }
        cached = Stage(model.cache, "robust-evaluation", inputs)
        compute = partial(_evaluate, model, protocol, rows, clean, damaged)
        document = cached.document(
            "evaluation",
            lambda run=compute: run(seed, n_resamples).to_dict(),  # type: ignore[misc]
        )
        try:
            evaluations.append(RobustEvaluation.from_dict(document))
        except InvalidInputError as error:
            raise NearsureError(
                f"{cached.folder} was written by another version ({error}). Delete it and run "
                "again."
            ) from error
    return evaluations


def _evaluate(  # noqa: PLR0917
    model: RobustModel,
    protocol: ProtocolName,
    rows: IntArray,
    clean: AnyArray,
    damaged: Damaged,
    seed: int,
    n_resamples: int,
) -> RobustEvaluation:
    support, frozen = model.supports[protocol], model.frozen[protocol]
    asked = support.may_ask(rows)
    codes = support.query_codes[rows[asked]]

    def found(vectors: AnyArray) -> Neighbors:
        return support.neighbors(vectors[asked], rows[asked], frozen.k)

    return evaluate_variants(
        model.name,
        protocol,
        frozen,
        clean=(found(clean), codes),
        variants=((variant, found(vectors), codes) for variant, vectors in damaged()),
        seed=seed,
        n_resamples=n_resamples,
    )
