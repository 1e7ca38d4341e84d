"""Who may ask, and who may change something. Pure: no request objects, no clock.

A page of some other site, open in the operator's browser, must neither read the console nor make it do
something. Against reading: the admin endpoint answers only under names of its own (`check_host` in
gateway/admin/http.py, for every path), and no answer may be framed. Against doing, each of these is enough
alone:

- Origin: a browser says which page sends a POST. Only the console's own may.
- SameSite=Strict: other sites' requests come without the console's cookie.
- A token in each form, made of the cookie and a secret of this process. Without the cookie nobody can know
  it. After a restart of the broker, old tokens are void: the page has to be loaded again.

The Content-Security-Policy lets a page load from here alone, and has no inline script or style. So a
message's value that got into a page in spite of the templates' escaping would not run.
"""

from __future__ import annotations

import hmac
import secrets
from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

COOKIE = "kumquat_console"
COOKIE_ATTRIBUTES = "Path=/; HttpOnly; SameSite=Strict"
FIELD = "token"
"""The name of the token in a form."""

_POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "form-action": "'self'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
}
# With Referrer-Policy no-referrer browsers send the console's own forms with `Origin: null`.
HEADERS = {
    "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in _POLICY.items()),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
OWN = ("same-origin", "none")
"""Sec-Fetch-Site of the console's own pages, and of an address that was typed."""


class Forbidden(Exception):
    """A request is answered 403; the text says why, and what to do."""


def check_origin(headers: Mapping[str, str]) -> None:
    """For requests that change something; names of headers in lower case. Raises Forbidden."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is not None and _place(origin) != headers.get("host", "").lower():
        raise Forbidden(f"this form was sent by {origin!r}, not by the console")
    if site is not None and site not in OWN:
        raise Forbidden(f"this form was sent by another site ({site})")


class Tokens:
    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    @staticmethod
    def new_cookie() -> str:
        return secrets.token_urlsafe(24)

    def of(self, cookie: str) -> str:
        """The token for forms of the browser that has this cookie."""
        return hmac.new(self._secret, cookie.encode(), sha256).hexdigest()

    def check(self, cookie: str | None, token: str | None) -> None:
        """Raises Forbidden."""
        if not cookie or not token or not _same(self.of(cookie), token):
            raise Forbidden(
                "this form is older than the broker's last start, or was not made by the console: go "
                "back, load the page again and repeat what you did"
            )


def _place(origin: str) -> str | None:
    """Host and port; None: it is no address."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _same(known: str, given: str) -> bool:
    return hmac.compare_digest(known.encode(), given.encode())
