"""Where a Milvus is: read once, so that what is shown of it holds no password."""

import base64
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit, urlunsplit

from nearsure.errors import InvalidInputError

SCHEMES = ("http", "https", "tcp", "unix")
FILE_ENDING = ".db"


@dataclass(frozen=True)
class Address:
    """A file, or a server.

    Parameters
    ----------
    shown : str
        A path, or a URI without user and password; pymilvus is given the same.
    token : str
        ``user:password`` or an API key; empty if there is none.
    is_file : bool
        Whether it is a file of milvus-lite.
    """

    shown: str
    token: str = field(repr=False)
    is_file: bool

    @property
    def secrets(self) -> tuple[str, ...]:
        """All that must not be shown: the token, its password, and how it travels."""
        if not self.token:
            return ()
        travelling = base64.b64encode(self.token.encode()).decode()
        return (self.token, travelling, self.token.partition(":")[2])


def address_of(uri: str, token: str | None = None) -> Address:
    """Read a URI or a path; an error that does not show it if that cannot be done for certain.

    Examples
    --------
    >>> address_of("https://ann:s3cret@db:19530/shop?token=abc").shown
    'https://db:19530/shop'
    >>> address_of("gallery.db").is_file
    True
    """
    if "://" not in uri:
        # Of "ann:s3cret@db" nobody can tell whether it is a path.
        if not uri.endswith(FILE_ENDING) or ("@" in uri and not uri.startswith(("/", "."))):
            raise _unreadable("It has no http://, and is no path that ends in .db")
        return Address(uri, token or "", is_file=True)
    parts = _split(uri)
    if parts.scheme not in SCHEMES:
        raise _unreadable(f"It must begin with one of {', '.join(f'{own}://' for own in SCHEMES)}")
    if "@" in parts.path + parts.query + parts.fragment:
        raise _unreadable("An @ stands behind the first /, ? or #")
    if parts.path.endswith(FILE_ENDING):
        raise _unreadable("A server's address ends in .db, as only a path may")
    user_info, _, host = parts.netloc.rpartition("@")
    shown = urlunsplit((parts.scheme, host, parts.path, "", ""))
    return Address(shown, token or user_info, is_file=False)


def _split(uri: str) -> SplitResult:
    try:
        parts = urlsplit(uri)
        is_whole = parts.scheme == "unix" or bool(parts.hostname)
        _ = parts.port
    except ValueError:  # which quotes the address
        is_whole = False
    if not is_whole:
        raise _unreadable("Its host or its port cannot be read")
    return parts


def _unreadable(why: str) -> InvalidInputError:
    return InvalidInputError(
        "uri must be http(s)://[user:password@]host:port[/database], or a path that ends in .db "
        f"(./ before it if it holds an @). {why}; it is not shown, as it may hold a password. "
        "Give a password with /, ? or # in it as token= or NEARSURE_MILVUS_TOKEN."
    )
