"""The prefix cache: which full pages of known content exist, found by a hash chain over their tokens.

The digest of a page covers its own tokens and the digest of the page before it, so equal digests mean equal tokens from
position 0 on, and with batch-invariant kernels equal cache bits. Only pages that are full *and* computed are published;
a radix tree over single tokens lost because pages are what the kernels can share. One hit serves target and draft
alike: for every published page it is known whether the draft's pool holds it too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from .pages import PagePool
from .request import Request

__all__ = ["PrefixCache", "PrefixHit", "num_full_pages"]

DIGEST_BYTES = 16  # 2^64 pages before a collision is likely


def num_full_pages(num_tokens: int, page_size: int) -> int:
    """Pages that `num_tokens` tokens fill to the last position."""
    return num_tokens // page_size


@dataclass(frozen=True, slots=True)
class PrefixHit:
    """Pages with a request's first tokens, in order; the draft's pool holds the first `num_draft_pages` of them."""

    pages: Sequence[int]
    num_draft_pages: int


class PrefixCache:
    """Index of published pages on top of one `PagePool`; entries die by themselves when the pool evicts a page.

    Holds no references: `match` names pages, the caller takes hold of them before anything else is allocated.
    """

    def __init__(self, pool: PagePool, page_size: int) -> None:
        self._pool = pool
        self._page_size = page_size
        self._page_of: dict[bytes, int] = {}
        self._digest_of: dict[int, bytes] = {}
        self._in_draft: set[int] = set()

    def match(self, request: Request) -> PrefixHit:
        """The longest run of published pages that `request` can start from.

        At least one known token stays uncomputed, since its logits row is wanted.
        """
        limit = (request.num_known - 1) // self._page_size
        self._extend_digests(request, limit)
        pages: list[int] = []
        for digest in request.digests[:limit]:
            page = self._page_of.get(digest)
            if page is None or not self._pool.is_kept(page):
                break
            pages.append(page)
        return PrefixHit(pages, self._num_leading_in_draft(pages))

    def publish(self, request: Request) -> None:
        """Offer the pages of `request` that have become full and computed since the last call."""
        full = num_full_pages(request.num_computed, self._page_size)
        if full > request.num_published:
            self._extend_digests(request, full)
            for i in range(request.num_published, full):
                self._publish_page(request.pages[i], request.digests[i])
            request.num_published = full
        in_draft = min(num_full_pages(request.num_draft_computed, self._page_size), full)
        if in_draft > request.num_draft_published:
            self._in_draft.update(filter(self._pool.is_kept, request.pages[request.num_draft_published : in_draft]))
            request.num_draft_published = in_draft

    def _publish_page(self, page: int, digest: bytes) -> None:
        twin = self._page_of.get(digest)
        if twin is not None and self._pool.is_kept(twin):
            return  # someone computed the same tokens first; this page stays private
        stale = self._digest_of.get(page)
        if stale is not None and self._page_of.get(stale) == page:
            del self._page_of[stale]
        self._page_of[digest] = page
        self._digest_of[page] = digest
        self._in_draft.discard(page)
        self._pool.keep(page)

    def _extend_digests(self, request: Request, count: int) -> None:
        digests, size = request.digests, self._page_size
        for i in range(len(digests), count):
            parent = digests[i - 1] if i else b""
            tokens = request.token_ids[i * size : (i + 1) * size].tobytes()
            digests.append(blake2b(parent + tokens, digest_size=DIGEST_BYTES).digest())

    def _num_leading_in_draft(self, pages: Sequence[int]) -> int:
        for i, page in enumerate(pages):
            if page not in self._in_draft:
                return i
        return len(pages)
