"""Unknown queries: how well p(known) tells them from known ones, and whether confidence holds.

Every task is measured twice: with NED and the functions of `nearsure.unknowns`, and with the
classifier and its default rule. Labels of unknown queries only measure. Needs the reference
embeddings, which are not part of the project: NEARSURE_DATA says where.
"""

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.report import finish, say
from nearsure import NEDClassifier, Neighbors, fit_temperature, score
from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.index import ExactIndex
from nearsure.loo import search_leaving_one_out
from nearsure.metrics import error_detection_auroc, expected_calibration_error
from nearsure.unknowns import (
    KnownModel,
    ShareEstimate,
    collect_evidence,
    estimate_unknown_share,
    fit_shift,
    judge,
    rehearse,
    search_leaving_class_out,
)

FOLDER = Path(os.environ.get("NEARSURE_DATA", Path(__file__).parents[1] / ".." / "shared" / "data"))
K, SEEDS, SHARE = 50, 5, 1000 / 5500
WIDTHS = (12, 12, 12, 12)
HEADER = (
    f"{'':22}{'AUROC (FPR at 95% TPR, %)':^60}{'ECE of the confidence, %':^48}share of unknowns\n"
    f"{'':22}{'confidence':>15}{'nearest':>15}{'mass':>15}{'ours':>15}"
    f"{'p(c|known)':>12}{'gallery':>12}{'given':>12}{'estimated':>12}"
    "    true, estimated with interval"
)


@dataclass(frozen=True, eq=False)
class Task:
    """A gallery, and queries of which the last belong to no class of it (code -1)."""

    name: str
    gallery: AnyArray
    codes: IntArray
    queries: AnyArray
    query_codes: IntArray


@dataclass(frozen=True)
class Outcome:
    """The figures that have a bound."""

    auroc: float
    fpr: float
    nearest_fpr: float
    given_ece: float
    estimated_ece: float
    share_error: float


def main() -> None:
    if not FOLDER.exists():
        print("      unknowns: skipped, NEARSURE_DATA names no folder with the embeddings")
        return
    print(HEADER)
    tasks = [bird_halves(seed) for seed in range(SEEDS)]
    for rule, measure in (("NED", measure_functions), ("default", measure_classifier)):
        check(rule, measure(sentences()), [measure(task) for task in tasks])
    finish()


def check(rule: str, intents: Outcome, birds: list[Outcome]) -> None:
    say(f"{rule}: CLINC150, AUROC of p(known)", intents.auroc, 0.965, at_least=True, unit="")
    for name, outcomes in (("CLINC150", [intents]), ("CUB, mean of seeds", birds)):
        ratio = sum(o.fpr for o in outcomes) / sum(o.nearest_fpr for o in outcomes)
        say(f"{rule}: {name}, FPR at 95% TPR to that of the nearest distance", ratio, 1.0)
    given, estimated = 100 * intents.given_ece, 100 * intents.estimated_ece
    say(f"{rule}: CLINC150, ECE with the given share", given, 3.0, unit="%")
    say(f"{rule}: CLINC150, ECE with the estimated share", estimated, 3.0, unit="%")
    off = [100 * o.share_error for o in (intents, *birds)]
    say(f"{rule}: CLINC150, error of the share", off[0], 4.0, unit=" points")
    say(
        f"{rule}: CUB by class halves, largest error of the share",
        max(off[1:]),
        10.0,
        unit=" points",
    )


def sentences() -> Task:
    file = np.load(FOLDER / "clinc150_minilm.npz")
    classes, codes = np.unique(file["train_y"], return_inverse=True)
    queries = np.concatenate([file["test_x"], file["oos_test_x"]]).astype(np.float32)
    unknown = np.full(len(file["oos_test_x"]), -1)
    query_codes = np.concatenate([np.searchsorted(classes, file["test_y"]), unknown])
    return Task("CLINC150", file["train_x"].astype(np.float32), codes, queries, query_codes)


def bird_halves(seed: int) -> Task:
    """Half of the species make gallery and known queries; the others are unknown."""
    file = np.load(FOLDER / "cub200_unseen_embeddings.npz")
    vectors, labels = file["embeddings"], np.unique(file["labels"], return_inverse=True)[1]
    rng = np.random.default_rng(seed)
    species = rng.permutation(labels.max() + 1)[: (labels.max() + 1) // 2]
    is_known = np.isin(labels, species)
    known = rng.permutation(np.flatnonzero(is_known))
    gallery, queries = np.array_split(known, 2)
    n_unknown = round(len(queries) * SHARE / (1 - SHARE))
    unknown = rng.permutation(np.flatnonzero(~is_known))[:n_unknown]
    classes, codes = np.unique(labels[gallery], return_inverse=True)
    return Task(
        f"CUB, seed {seed}",
        vectors[gallery],
        codes,
        vectors[np.concatenate([queries, unknown])],
        np.concatenate([np.searchsorted(classes, labels[queries]), np.full(n_unknown, -1)]),
    )


def measure_functions(task: Task) -> Outcome:
    index, rows = ExactIndex(task.gallery), np.arange(len(task.codes))
    own = search_leaving_one_out(index, task.gallery, rows, task.codes, k=K)
    without_class = search_leaving_class_out(index, task.gallery, rows, task.codes, k=K)
    temperature = fit_temperature(own, task.codes).temperature
    to_posterior = partial(score, temperature=temperature)
    rehearsal = rehearse(
        own,
        without_class,
        rows,
        task.codes,
        temperature=temperature,
        to_posterior=to_posterior,
    )
    model = KnownModel.fit(rehearsal.known, rehearsal.unknown)

    sq_distances, ids = index.search(task.queries, K)
    neighbors = Neighbors(sq_distances, task.codes[ids], ids)
    posterior = to_posterior(neighbors)
    evidence = collect_evidence(neighbors, posterior, rehearsal.density)
    known, right = task.query_codes >= 0, posterior.labels == task.query_codes

    def error(fitted: KnownModel, unknown_share: float) -> float:
        verdicts = judge(fitted.p_known(evidence, unknown_share), posterior)
        return expected_calibration_error(verdicts.confidence, right)

    share = float((~known).mean())
    estimate = estimate_unknown_share(model, evidence, seed=0)
    shifted = model.with_shift(novelty=estimate.novelty, drift=estimate.drift)
    errors = (
        expected_calibration_error(posterior.confidence, right),
        error(model, share),
        error(fit_shift(model, evidence, share), share),
        error(shifted, estimate.share),
    )
    columns = {
        "confidence": posterior.confidence,
        "nearest": -sq_distances[:, 0],
        "mass": evidence.log_mass,
        "ours": model.log_odds(evidence),
    }
    return tell(f"{task.name}, NED", columns, known, errors, estimate)


def measure_classifier(task: Task) -> Outcome:
    known = task.query_codes >= 0
    share = float((~known).mean())
    classifier = NEDClassifier(unknown_share=share).fit(task.gallery, task.codes)

    def error() -> float:
        answer = classifier.predict_with_confidence(task.queries)
        return expected_calibration_error(answer.confidence, answer.labels == task.query_codes)

    prediction = classifier.predict_with_confidence(task.queries)
    p_known = np.asarray(prediction.p_known)
    within = np.divide(prediction.confidence, p_known, out=np.ones(len(known)), where=p_known > 0)
    within = within.clip(0.0, 1.0)
    plain = expected_calibration_error(within, prediction.labels == task.query_codes)
    from_gallery = error()
    classifier.adapt_to_queries(task.queries, share)
    given = error()
    estimate = classifier.adapt_to_queries(task.queries)
    if estimate is None:
        raise AssertionError("A share that was not given is estimated.")
    columns = {
        "confidence": within,
        "nearest": -prediction.neighbors.sq_distances[:, 0],
        "ours": p_known,
    }
    errors = (plain, from_gallery, given, error())
    return tell(f"{task.name}, default", columns, known, errors, estimate)


def tell(
    name: str,
    columns: dict[str, FloatArray],
    known: BoolArray,
    errors: tuple[float, ...],
    estimate: ShareEstimate,
) -> Outcome:
    """Print a row. Columns are what is to tell known from unknown; larger means known."""
    share = float((~known).mean())
    areas = {kind: auroc(values, known) for kind, values in columns.items()}
    rates = {kind: fpr(values, known) for kind, values in columns.items()}
    print(
        f"{name:22}"
        + "".join(
            f"{areas[kind]:8.4f} ({100 * rates[kind]:4.1f})" if kind in columns else f"{'':15}"
            for kind in ("confidence", "nearest", "mass", "ours")
        )
        + "".join(f"{100 * value:{width}.2f}" for value, width in zip(errors, WIDTHS, strict=True))
        + f"    {share:.3f}, {estimate.share:.3f} +- {estimate.standard_error:.3f}"
        f" [{estimate.low:.3f}, {estimate.high:.3f}]"
    )
    return Outcome(
        auroc=areas["ours"],
        fpr=rates["ours"],
        nearest_fpr=rates["nearest"],
        given_ece=errors[2],
        estimated_ece=errors[3],
        share_error=abs(estimate.share - share),
    )


def auroc(values: FloatArray, known: BoolArray) -> float:
    # Ranks are in [0, 1], as the metric demands, and have the same order.
    ranks = np.searchsorted(np.sort(values), values) / len(values)
    return error_detection_auroc(ranks, known)


def fpr(values: FloatArray, known: BoolArray) -> float:
    """Share of unknowns above the value that 95% of the known reach."""
    return float((values[~known] >= np.quantile(values[known], 0.05)).mean())


if __name__ == "__main__":
    main()
