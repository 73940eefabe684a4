"""The prefix cache: only full, computed, equal pages in equal contexts are ever found."""

import pytest
from toy_requests import toy_request

from paceline.runtime.pages import PagePool
from paceline.runtime.prefix import PrefixCache

SIZE = 4


@pytest.fixture
def pool():
    return PagePool(16)


@pytest.fixture
def cache(pool):
    return PrefixCache(pool, SIZE)


def served(pool, cache, prompt, *, computed, draft_computed=0):
    """A running request that has computed so many tokens and told the cache."""
    request = toy_request(list(prompt))
    request.add_pages(pool.allocate(-(-len(prompt) // SIZE)))
    request.num_computed, request.num_draft_computed = computed, draft_computed
    cache.publish(request)
    return request


@pytest.mark.parametrize(("length", "hits"), [(1, 0), (4, 0), (5, 1), (8, 1), (9, 2), (12, 2), (13, 3)])
def test_at_least_one_token_is_left_to_compute(pool, cache, length, hits):
    served(pool, cache, range(12), computed=12)
    assert len(cache.match(toy_request(list(range(length)))).pages) == hits


@pytest.mark.parametrize(("computed", "hits"), [(0, 0), (3, 0), (4, 1), (7, 1), (8, 2), (11, 2), (12, 3)])
def test_only_full_and_computed_pages_are_found(pool, cache, computed, hits):
    owner = served(pool, cache, range(12), computed=computed)
    assert cache.match(toy_request(list(range(13)))).pages == owner.pages[:hits]


def test_equal_page_in_another_context_is_not_found(pool, cache):
    served(pool, cache, [1, 2, 3, 4, 5, 6, 7, 8], computed=8)
    assert cache.match(toy_request([9, 9, 9, 9, 5, 6, 7, 8, 1])).pages == []


def test_evicted_page_is_not_found_and_its_followers_neither(pool, cache):
    owner = served(pool, cache, range(12), computed=12)
    pages = owner.take_pages(0)
    pool.release([pages[1]])
    pool.allocate(pool.num_available)  # evicts the middle page, the only cached one
    assert cache.match(toy_request(list(range(13)))).pages == pages[:1]


def test_page_that_was_reused_is_found_under_its_new_tokens_only(pool, cache):
    first = served(pool, cache, [1, 2, 3, 4], computed=4)
    pool.release(first.take_pages(0))
    everything = pool.allocate(pool.num_pages)
    second = toy_request([5, 6, 7, 8])
    second.add_pages(everything)
    second.num_computed = 4
    cache.publish(second)
    assert cache.match(toy_request([1, 2, 3, 4, 5])).pages == []
    assert cache.match(toy_request([5, 6, 7, 8, 9])).pages == everything[:1]


def test_twin_page_stays_private(pool, cache):
    first = served(pool, cache, [1, 2, 3, 4], computed=4)
    second = served(pool, cache, [1, 2, 3, 4], computed=4)
    assert cache.match(toy_request([1, 2, 3, 4, 5])).pages == first.pages
    pool.release(second.take_pages(0))
    assert pool.num_cached == 0


def test_draft_counts_the_leading_pages_that_its_pool_holds(pool, cache):
    owner = served(pool, cache, range(12), computed=12, draft_computed=7)
    assert cache.match(toy_request(list(range(13)))).num_draft_pages == 1
    owner.num_draft_computed = 12
    cache.publish(owner)
    assert cache.match(toy_request(list(range(13)))).num_draft_pages == 3


def test_draft_mark_does_not_outlive_the_page(pool, cache):
    first = served(pool, cache, [1, 2, 3, 4], computed=4, draft_computed=4)
    pool.release(first.take_pages(0))
    second = toy_request([5, 6, 7, 8])
    second.add_pages(pool.allocate(pool.num_pages))
    second.num_computed = 4
    cache.publish(second)
    hit = cache.match(toy_request([5, 6, 7, 8, 9]))
    assert (len(hit.pages), hit.num_draft_pages) == (1, 0)


def test_dropped_cache_finds_nothing(pool, cache):
    served(pool, cache, range(12), computed=12)
    pool.drop_cached()
    assert cache.match(toy_request(list(range(13)))).pages == []
