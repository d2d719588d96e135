"""Run tasks in threads, in processes or on a dask cluster, and merge their results.

What is sent is the name of a function, with strings and numbers; queries are the one exception.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol
from uuid import uuid4

from nearsure.arrays import AnyArray
from nearsure.engines.redaction import redacted
from nearsure.errors import InvalidInputError, NearsureError, PartitionsFailedError
from nearsure.extras import require

if TYPE_CHECKING:
    from dask.delayed import Delayed


class Cluster(Protocol):
    """What is needed of a distributed.Client."""

    def compute(self, collections: Any) -> Any:  # noqa: ANN401
        """Futures of delayed calls."""

    def scatter(self, data: Any, *, hash: bool) -> Any:  # noqa: A002, ANN401
        """A future of data that is sent to workers once."""

    def cancel(self, futures: Any) -> Any:  # noqa: ANN401
        """Give up calls."""


Scheduler = Literal["threads", "processes", "synchronous"] | Cluster
LOCAL = ("threads", "processes", "synchronous")
PURPOSE = "Work on partitions"

Job = dict[str, Any]


@dataclass(frozen=True)
class Failure:
    """What a partition's result is if there is none.

    Parameters
    ----------
    name : str
        The partition.
    reason : str
        What went wrong, without secrets.
    """

    name: str
    reason: str


def run_each(
    function: Callable[[Job], Any],
    jobs: Sequence[tuple[str, Job]],
    scheduler: Scheduler,
    description: str,
) -> list[Any]:
    """The result of each job, in their order; a `Failure` for one that went wrong.

    Parameters
    ----------
    function : callable
        A function of a module, which is given a job.
    jobs : sequence of (str, dict)
        Name of the partition, and the job in JSON's types.
    scheduler : {"threads", "processes", "synchronous"} or distributed.Client
        What runs them.
    description : str
        Stands before the progress bar, which is shown on a terminal alone.
    """
    attempt = _delayed(_attempt)
    calls = [attempt(function, name, (job,)) for name, job in jobs]
    return _run(calls, scheduler, description, len(calls), [name for name, _ in jobs])


def run_merged(
    function: Callable[[Job, AnyArray], Any],
    jobs: Sequence[tuple[str, Job]],
    queries: AnyArray,
    *,
    merge: Callable[[Any, Any], Any],
    scheduler: Scheduler,
    description: str,
) -> Any:  # noqa: ANN401
    """All results merged in pairs as soon as they are there, so that few are held at a time.

    Parameters
    ----------
    function : callable
        A function of a module, which is given a job and the queries.
    jobs : sequence of (str, dict)
        As of `run_each`, at least one.
    queries : array of shape (n, dimension)
        What all jobs are about.
    merge : callable
        A function of a module: two results become one.
    scheduler, description
        As of `run_each`.

    Raises
    ------
    PartitionsFailedError
        If a job went wrong, as all of them are needed.
    """
    attempt, join = _delayed(_attempt), _delayed(_merged)
    shared = _shared(queries, scheduler)
    level = [attempt(function, name, (job, shared)) for name, job in jobs]
    n_calls = 2 * len(level) - 1
    while len(level) > 1:
        pairs = [join(merge, *level[i : i + 2]) for i in range(0, len(level) - 1, 2)]
        level = pairs + level[2 * len(pairs) :]
    result = _run(level, scheduler, description, n_calls, ["the search"])[0]
    if failures := _failures_in(result):
        raise failed(failures, len(jobs))
    return result


def failed(failures: Sequence[Failure], n_partitions: int) -> PartitionsFailedError:
    """The error that lists partitions that went wrong."""
    reasons = {failure.name: failure.reason for failure in failures}
    listed = "\n".join(f"  {name}: {reason}" for name, reason in reasons.items())
    return PartitionsFailedError(
        f"{len(reasons)} of {n_partitions} partitions failed: mend what is wrong and start again."
        f"\n{listed}",
        reasons,
    )


def check_scheduler(scheduler: Scheduler) -> None:
    """Raise an error unless this can run anything."""
    known = scheduler in LOCAL if isinstance(scheduler, str) else hasattr(scheduler, "compute")
    if not known:
        raise InvalidInputError(
            f"scheduler must be one of {', '.join(map(repr, LOCAL))} or a distributed.Client. "
            f"Got {scheduler!r} instead."
        )


def _attempt(function: Callable[..., Any], name: str, arguments: tuple[Any, ...]) -> Any:  # noqa: ANN401
    try:
        return function(*arguments)
    except Exception as error:  # noqa: BLE001 - whatever it is, the other partitions go on
        return Failure(name, _reason(error))


def _merged(merge: Callable[[Any, Any], Any], one: Any, other: Any) -> Any:  # noqa: ANN401
    if failures := _failures_in(one) + _failures_in(other):
        return failures
    return _attempt(merge, "the merge of results", (one, other))


def _failures_in(result: Any) -> list[Failure]:  # noqa: ANN401
    """All that went wrong on the way to a result: none, one, or a list of them."""
    if isinstance(result, Failure):
        return [result]
    return result if isinstance(result, list) else []


def _reason(error: BaseException) -> str:
    own = isinstance(error, NearsureError)
    return redacted(str(error) if own else f"{type(error).__name__}: {error}")


def _delayed(function: Callable[..., Any]) -> Callable[..., "Delayed"]:
    delayed = require("dask.delayed", extra="batch", purpose=PURPOSE).delayed
    # Not pure: a call of the same arguments later on may find other files.
    call: Callable[..., Delayed] = delayed(function, pure=False)
    return call


def _shared(queries: AnyArray, scheduler: Scheduler) -> Any:  # noqa: ANN401
    if isinstance(scheduler, str):
        delayed = require("dask.delayed", extra="batch", purpose=PURPOSE).delayed
        return delayed(queries, name=f"queries-{uuid4().hex}")
    return scheduler.scatter(queries, hash=False)


def _run(
    calls: Sequence["Delayed"],
    scheduler: Scheduler,
    description: str,
    n_calls: int,
    names: Sequence[str],
) -> list[Any]:
    if isinstance(scheduler, str):
        return _run_here(calls, scheduler, description, n_calls)
    return _run_on_cluster(calls, scheduler, description, names)


def _run_here(
    calls: Sequence["Delayed"], scheduler: str, description: str, n_calls: int
) -> list[Any]:
    dask = require("dask", extra="batch", purpose=PURPOSE)
    callbacks = require("dask.callbacks", extra="batch", purpose=PURPOSE)
    with _bar(n_calls, description) as bar:

        def count(*_: object) -> None:
            bar.update()

        try:
            with callbacks.Callback(posttask=count):
                return list(dask.compute(*calls, scheduler=scheduler))
        except BrokenExecutor as error:
            raise NearsureError(
                "A worker process died: it was killed, or memory was short. What is finished is "
                "kept; start again, with fewer workers or smaller batches."
            ) from error


def _run_on_cluster(
    calls: Sequence["Delayed"], client: Cluster, description: str, names: Sequence[str]
) -> list[Any]:
    distributed = require("distributed", extra="batch", purpose=PURPOSE)
    futures = client.compute(list(calls))
    try:
        with _bar(len(calls), description) as bar:
            for _ in distributed.as_completed(futures):
                bar.update()
        return [
            future.result() if future.status == "finished" else Failure(name, _lost(future))
            for name, future in zip(names, futures, strict=True)
        ]
    except BaseException:
        # An interrupt ends the work on the cluster, too.
        client.cancel(futures)
        raise


def _lost(future: Any) -> str:  # noqa: ANN401
    """Why the cluster has no result, although functions themselves never raise an error."""
    error = future.exception() if future.status == "error" else None
    return f"The cluster lost it ({future.status})." if error is None else _reason(error)


@contextmanager
def _bar(total: int, description: str) -> Iterator[Any]:
    tqdm = require("tqdm", extra="batch", purpose=PURPOSE)
    with tqdm.tqdm(total=total, desc=description, disable=None) as bar:
        yield bar
