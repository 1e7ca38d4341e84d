"""Which subjects, or pairs of a group and a subject, have series of their own. Decisions only.

Prometheus keeps every series that it ever saw, so a broker with 100,000 subjects must not show all of
them, nor other ones in each scrape. There are `limit` places. The rule:

- If there are no more than that, all are shown.
- Else each has a *score*: its weight (for a subject messages per second since the last look, for a pair
  its lag, for delays how many are pending), or its score of before, halved every ten minutes, whichever
  is more. So what counts is the peak of the last minutes, and a pause does not cost a place.
- Who has a place keeps it, until it is gone or another one has more than twice its score. So two that are
  about as busy do not take turns.
- Free places go to those with the highest score, then to those with the highest `size` (after a start
  there are no scores yet), then to the oldest.

Looks that follow each other closely (two servers that scrape, or somebody with curl) change nothing: at
least CALM_SECONDS lie between two decisions.

What has no place is in the totals, and /metrics says how many there are (kumquat_metrics_…_left_out).
"""

from __future__ import annotations

import heapq
from math import inf
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

K = TypeVar("K")

HALF_LIFE_SECONDS = 600.0
CALM_SECONDS = 5.0
MORE = 2.0
_FORGOTTEN = 1e-6


class Selection(Generic[K]):
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.shown: dict[K, None] = {}
        self._scores: dict[K, float] = {}
        """Without those that are almost zero."""
        self._decided = -inf

    def is_due(self, now: float) -> bool:
        """Whether enough time has passed for another decision."""
        return now - self._decided >= CALM_SECONDS

    def choose(
        self, weights: Mapping[K, float], now: float, sizes: Mapping[K, int] | None = None
    ) -> list[K]:
        """Who is shown. `weights` has everybody; if no decision is due, only who there is matters."""
        if len(weights) <= self.limit:
            self.shown, self._scores = dict.fromkeys(weights), {}
            self._decided = -inf  # as soon as they become too many
            return list(self.shown)
        self.shown = {key: None for key in self.shown if key in weights}
        if self.is_due(now):
            self._score(weights, now)
            self._fill(weights, sizes or {})
            self._exchange()
            self._decided = now
        return list(self.shown)

    def _score(self, weights: Mapping[K, float], now: float) -> None:
        past = now - self._decided
        decay = 0.5 ** (past / HALF_LIFE_SECONDS)
        scores = {key: weight for key, weight in weights.items() if weight > _FORGOTTEN}
        for key, score in self._scores.items():
            score *= decay
            if score > scores.get(key, _FORGOTTEN) and key in weights:
                scores[key] = score
        self._scores = scores

    def _fill(self, weights: Mapping[K, float], sizes: Mapping[K, int]) -> None:
        free = self.limit - len(self.shown)
        scores = self._scores
        others = (key for key in weights if key not in self.shown)
        best = heapq.nlargest(free, others, key=lambda k: (scores.get(k, 0.0), sizes.get(k, 0)))
        self.shown.update(dict.fromkeys(best))

    def _exchange(self) -> None:
        """Those with far more take the places of those with least."""
        scores = self._scores
        others = [(score, key) for key, score in scores.items() if key not in self.shown]
        best = heapq.nlargest(self.limit, others, key=lambda pair: pair[0])
        least = heapq.nsmallest(len(best), self.shown, key=lambda key: scores.get(key, 0.0))
        for (score, key), place in zip(best, least, strict=True):
            if score <= MORE * scores.get(place, 0.0):
                break
            del self.shown[place]
            self.shown[key] = None


class Busiest(Selection[K]):
    """Weighs by how fast numbers grow, from look to look."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._seen: Mapping[K, int] = {}
        self._looked = -inf

    def choose_by_growth(self, counts: Mapping[K, int], now: float) -> list[K]:
        if len(counts) <= self.limit or not self.is_due(now):
            return self.choose(counts, now)
        seen, past = self._seen, max(now - self._looked, 1.0)
        self._seen, self._looked = counts, now
        rates = {key: (count - seen.get(key, count)) / past for key, count in counts.items()}
        return self.choose(rates, now, counts)
