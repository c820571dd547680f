"""Names of data outside of the cluster: URLs such as ``s3://orders/raw``, without what may be secret, and the ids that they become.

Whoever states a dependency writes a list of URLs; a URL names one data asset, wherever it is written. Of a URL only scheme, host, port and
path are kept: user and password, query and fragment are cut off before anything else looks at it (docs/decisions/0033-external-data.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

SYNTAX = "scheme://host[:port]/path, such as s3://orders/raw or postgres://db.payments/orders"
"""How a URL of data is written, for messages."""
NO_URL = "?"
"""What stands for an entry that is no URL of data in a list that has been cleaned."""
MOST = 64
"""URLs of one list; further ones are left out."""
_LONGEST = 512
_SCHEME = r"[a-z][a-z0-9+.-]*"
_BEGINS = re.compile(rf"{_SCHEME}://", re.IGNORECASE)
_SEPARATOR = re.compile(r"[,\s]+")
_URL = re.compile(
    rf"(?P<scheme>{_SCHEME})://(?:(?P<user>[^/?#]*)@)?(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?P<port>:[0-9]{{1,5}})?"
    r"(?P<path>/[A-Za-z0-9._%+=*/-]*)?(?:[?#][^@]*)?",
    re.IGNORECASE,
)
_ALIASES = {
    "postgresql": "postgres", "mongodb+srv": "mongodb", "rediss": "redis", "s3a": "s3", "s3n": "s3", "abfss": "abfs", "wasbs": "wasb",
    "amqps": "amqp", "mqtts": "mqtt", "nats+tls": "nats", "pulsar+ssl": "pulsar",
}  # fmt: skip
_AZURE = frozenset({"abfs", "wasb"})  # what stands before the @ is the container, and no user
_KINDS = {
    **dict.fromkeys(("s3", "gs", "abfs", "wasb", "az", "oss", "cos", "swift"), "objectstore"),
    **dict.fromkeys(("postgres", "mysql", "mariadb", "mongodb", "redis", "cassandra", "clickhouse", "oracle", "sqlserver", "mssql",
                     "influxdb", "neo4j", "elasticsearch", "opensearch", "etcd", "sqlite"), "database"),
    **dict.fromkeys(("kafka", "amqp", "nats", "mqtt", "pulsar", "sqs", "rabbitmq", "pubsub"), "queue"),
    **dict.fromkeys(("nfs", "smb", "hdfs", "cephfs", "file"), "filesystem"),
}  # fmt: skip


def cleaned(text: str) -> str:
    """Return the URLs of a list (separated by commas, blanks or line ends) in their canonical form, with a blank between them.

    An entry that is no URL of data is ``NO_URL``. Nothing of it remains, nor of users, passwords, queries and fragments; where a password
    has a separator in it, its parts are not taken for entries.
    """
    return " ".join(each or NO_URL for each in _entries(text))


def _entries(text: str) -> Iterator[str | None]:
    for number, written in enumerate(filter(None, _pieces(text))):
        if number > MOST:
            return
        yield canonical(written) if number < MOST else None


def _pieces(text: str) -> Iterator[str]:
    """Yield the entries: up to its last @ one is cut only where a URL begins, as a password may have any separator in it."""
    entry: list[str] = []
    for word in _SEPARATOR.split(text):
        if _BEGINS.match(word):
            yield from _cut(entry)
            entry = []
        entry.append(word)
    yield from _cut(entry)


def _cut(words: Sequence[str]) -> Iterator[str]:
    whole = 1 + max((place for place, word in enumerate(words) if "@" in word), default=0)
    yield ",".join(words[:whole])
    yield from words[whole:]


def canonical(url: str) -> str | None:
    """Return a URL without what may be secret, in the one form that all its spellings have; None for what is no URL of data."""
    match = _URL.fullmatch(url) if len(url) <= _LONGEST else None
    if match is None:
        return None
    scheme, path = match["scheme"].lower(), (match["path"] or "").rstrip("/")
    scheme = _ALIASES.get(scheme, scheme)
    if scheme in _AZURE and match["user"]:
        if not re.fullmatch(r"[A-Za-z0-9._$-]+", match["user"]):
            return None
        path = f"/{match['user']}{path}"
    if any(segment in ("", ".", "..") for segment in path.split("/")[1:]):
        return None
    return f"{scheme}://{match['host'].lower()}{match['port'] or ''}{path}"


def id_of(url: str) -> str:
    """Return the id of a canonical URL: scheme, host and segments of the path with ``~`` between them, as proxies undo escaped slashes."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}~{rest.replace('/', '~')}"


def url_of(id: str) -> str | None:
    """Return the canonical URL that an id was made of; None when it was made of none."""
    scheme, _, rest = id.partition("~")
    url = f"{scheme}://{rest.replace('~', '/')}"
    return url if canonical(url) == url else None


def kind_of(url: str) -> str:
    """Return what sort of data a canonical URL leads to: objectstore, database, queue, filesystem, or else its scheme."""
    scheme = url.partition("://")[0]
    return _KINDS.get(scheme, scheme)
