"""How many connections the system lets this process have."""

import resource

MOST_CONNECTIONS = 10_000
# For the gallery, the engine's connections, the listener, the log.
OTHER_FILES = 200


def connections_that_fit() -> int:
    """Raise the number of files that may be open as far as it is needed and allowed.

    Returns
    -------
    int
        Connections for which there is room. Without room even a refusal could not be sent: the
        client would wait until another leaves.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_CONNECTIONS + OTHER_FILES
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        soft = allowed
    if soft == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    # A process with very few files gets along with fewer others.
    return min(MOST_CONNECTIONS, max(soft - OTHER_FILES, soft // 2))
