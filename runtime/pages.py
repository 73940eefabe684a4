"""The page pool: who may write where in the key/value cache. It hands out page ids and never touches the cache itself.

Every page is in exactly one state, and this file alone moves it:

    free    --allocate--> held      content is dead
    held    --release-->  free      the last holder left, nobody will want the content
    held    --release-->  cached    the last holder left, the content was marked by `keep`
    cached  --hold-->     held      a prefix hit
    cached  --allocate--> held      evicted, least recently released first

One pool serves target and draft engine: page p of either belongs to whoever holds p here. Eviction callbacks lost: the
prefix cache asks `is_kept` at look-up instead, so nothing has to be told.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from .errors import CapacityError

__all__ = ["PagePool", "num_pages_for"]


def num_pages_for(num_tokens: int, page_size: int) -> int:
    """Pages that `num_tokens` tokens need."""
    return -(-num_tokens // page_size)


class PagePool:
    """All pages of one engine pair; see the state table above. Not thread-safe: the loop's thread owns it."""

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self._free = list(range(num_pages - 1, -1, -1))
        self._references = [0] * num_pages
        self._cached: OrderedDict[int, None] = OrderedDict()  # least recently released first
        self._kept: set[int] = set()

    @property
    def num_available(self) -> int:
        """Pages that `allocate` could hand out now: free and cached."""
        return len(self._free) + len(self._cached)

    @property
    def num_cached(self) -> int:
        """Pages without a holder whose content is kept for prefix hits."""
        return len(self._cached)

    @property
    def num_held(self) -> int:
        """Pages with at least one holder."""
        return self.num_pages - self.num_available

    def num_references(self, page: int) -> int:
        """Holders of `page`."""
        return self._references[page]

    def is_kept(self, page: int) -> bool:
        """Whether the content of `page` still is what it was when `keep` marked it."""
        return page in self._kept

    def allocate(self, count: int) -> list[int]:
        """`count` pages with one reference each, all or nothing; evicts cached pages when free ones run out.

        Raises: CapacityError when fewer are available; then nothing has changed.
        """
        if count > self.num_available:
            raise CapacityError(
                f"{self.num_available} pages available",
                needed=f"{count} pages at once",
                do="wait until a request ends, or open the bundle with more pages",
            )
        pages = [self._free.pop() if self._free else self._evict() for _ in range(count)]
        for page in pages:
            self._references[page] = 1
        return pages

    def hold(self, pages: Iterable[int]) -> None:
        """Add one reference to each of `pages`, which must be held or cached."""
        for page in pages:
            assert self._references[page] > 0 or page in self._cached, f"page {page} is free"
            self._cached.pop(page, None)
            self._references[page] += 1

    def keep(self, page: int) -> None:
        """Mark the content of a held page: after its last release it stays cached until evicted."""
        assert self._references[page] > 0, f"page {page} is not held"
        self._kept.add(page)

    def release(self, pages: Sequence[int]) -> None:
        """Drop one reference to each of `pages`, last page first.

        A prefix is only of use with its beginning, so the end of it must be evicted before the beginning.
        """
        for page in reversed(pages):
            assert self._references[page] > 0, f"page {page} is not held"
            self._references[page] -= 1
            if self._references[page] == 0:
                self._retire(page)

    def drop_cached(self) -> None:
        """Turn every cached page free and forget what held pages contain."""
        self._kept.clear()
        self._free.extend(self._cached)
        self._cached.clear()

    def check(self) -> None:
        """Raise AssertionError unless free + cached + held == total and each page is in exactly one state."""
        free, cached = set(self._free), set(self._cached)
        held = {page for page, count in enumerate(self._references) if count > 0}
        assert len(free) == len(self._free), "a page is free twice"
        assert len(free) + len(cached) + len(held) == self.num_pages, "a page is lost or in two states"
        assert len(free | cached | held) == self.num_pages, "a page is in two states"
        assert min(self._references, default=0) >= 0, "a page was released too often"
        assert cached <= self._kept <= cached | held, "kept marks disagree with the states"

    def _retire(self, page: int) -> None:
        if page in self._kept:
            self._cached[page] = None
        else:
            self._free.append(page)

    def _evict(self) -> int:
        page, _ = self._cached.popitem(last=False)
        self._kept.discard(page)
        return page
