"""A request that is refused while its body is read.

Whatever reads the body may make an answer of its own out of the error (a web framework takes it for
malformed input); the client must get the true reason.
"""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nearsure.service.problems import ProblemError


class RefusableCall:
    """One call of an application, of which a refusal replaces the answer."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._started = False
        self._refusal: ProblemError | None = None

    def refuse(self, problem: ProblemError) -> ProblemError:
        """Note why the request is refused; the caller raises what this returns."""
        self._refusal = problem
        return problem

    async def run(self, app: ASGIApp, scope: Scope, receive: Receive) -> None:
        """Call the application; if it was refused before it answered, answer for it."""
        try:
            await app(scope, receive, self._pass_on)
        except Exception:
            if self._refusal is None or self._started:
                raise
        if self._refusal is not None and not self._started:
            await self._refusal.answer(self._send)

    async def _pass_on(self, message: Message) -> None:
        if self._refusal is not None and not self._started:
            return
        self._started = True
        await self._send(message)
