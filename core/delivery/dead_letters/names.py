"""The subject that a group's dead letters of a subject go to.

`errors.deadletterqueue.topic.name` of the group says it; {subject} and {group} in it stand for their
names. Without it: `{subject}.{group}.dlq`, one for each group and subject. A group may have any name, a
subject may not: characters that are not allowed become `_`. If one had to change, or the name is longer
than a subject's may be, it is cut, and `-` and eight digits of a hash of the whole follow, so that two
groups do not get one subject by accident.

Letters neither go to a subject of the broker's own, nor are they sent back to one: what lies there means
something to the broker, and anybody can write a header that names it.
"""

from __future__ import annotations

import re
from hashlib import sha256

MAX_NAME = 249
DEFAULT = "{subject}.{group}.dlq"
OWN = frozenset({"__consumer_offsets", "__kumquat_actions", "__kumquat_retry"})
OWN_PREFIX = "__kumquat_"
_ILLEGAL = re.compile(r"[^a-zA-Z0-9._-]", re.ASCII)
_HASH = 9


def letters_name(subject: str, group: str, configured: str = "") -> str:
    """`configured`: the group's config, empty where it has none."""
    pattern = configured or DEFAULT
    # One pass: a group may be named "{subject}".
    name = re.sub(
        r"\{(subject|group)\}", lambda m: subject if m[1] == "subject" else group, pattern
    )
    legal = _ILLEGAL.sub("_", name)
    return name if name == legal and len(name) <= MAX_NAME else marked(legal, name)


def is_own(name: str) -> bool:
    """Whether a subject is the broker's own, or may become one."""
    return name in OWN or name.startswith(OWN_PREFIX)


def marked(legal: str, name: str) -> str:
    """A name that no other has, made of one that cannot be used."""
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[: _HASH - 1]
    return f"{legal[: MAX_NAME - _HASH]}-{digest}"
