"""The page pool under random use: no page is ever lost, doubled or handed to two holders."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from paceline.runtime.errors import CapacityError
from paceline.runtime.pages import PagePool, num_pages_for

NUM_PAGES = 12


class PoolMachine(RuleBasedStateMachine):
    """Holders come, share, mark and go; `content` is the model: what lies in a page since its last allocation."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool(NUM_PAGES)
        self.holders: list[list[int]] = []
        self.content: dict[int, int] = {}
        self.kept: dict[int, int] = {}
        self.clock = 0

    @rule(count=st.integers(0, NUM_PAGES + 2))
    def allocate(self, count):
        available = self.pool.num_available
        if count > available:
            with pytest.raises(CapacityError, match="pages at once"):
                self.pool.allocate(count)
            assert self.pool.num_available == available
            return
        pages = self.pool.allocate(count)
        assert len(set(pages)) == count
        assert not set(pages) & {page for holder in self.holders for page in holder}
        for page in pages:
            self.clock += 1
            self.content[page] = self.clock
        self.holders.append(pages)

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def release(self, data):
        self.pool.release(self.holders.pop(data.draw(st.integers(0, len(self.holders) - 1))))

    @precondition(lambda self: any(self.holders))
    @rule(data=st.data())
    def keep(self, data):
        page = data.draw(st.sampled_from([page for holder in self.holders for page in holder]))
        self.pool.keep(page)
        self.kept[page] = self.content[page]

    @rule()
    def share_kept(self):
        pages = [page for page in self.kept if self.pool.is_kept(page)]
        self.pool.hold(pages)
        self.holders.append(pages)

    @rule()
    def drop_cached(self):
        self.pool.drop_cached()
        assert self.pool.num_cached == 0

    @invariant()
    def accounts_balance(self):
        self.pool.check()
        held = {page for holder in self.holders for page in holder}
        assert self.pool.num_held == len(held)
        for page in held:
            assert self.pool.num_references(page) == sum(holder.count(page) for holder in self.holders)

    @invariant()
    def kept_means_untouched(self):
        for page, content in self.kept.items():
            assert not self.pool.is_kept(page) or self.content[page] == content


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=60, stateful_step_count=40, derandomize=True, deadline=None)


def test_least_recently_released_page_is_evicted_first():
    pool = PagePool(3)
    pages = pool.allocate(3)
    for page in pages:
        pool.keep(page)
    for page in (pages[1], pages[2], pages[0]):
        pool.release([page])
    assert pool.allocate(2) == [pages[1], pages[2]]
    assert pool.is_kept(pages[0])


def test_end_of_a_prefix_is_evicted_before_its_beginning():
    pool = PagePool(3)
    pages = pool.allocate(3)
    for page in pages:
        pool.keep(page)
    pool.release(pages)
    assert pool.allocate(2) == [pages[2], pages[1]]


def test_free_pages_are_taken_before_cached_ones():
    pool = PagePool(2)
    (kept,) = pool.allocate(1)
    pool.keep(kept)
    pool.release([kept])
    assert pool.allocate(1) != [kept]
    assert pool.num_cached == 1


@pytest.mark.parametrize(
    "misuse", [lambda pool: pool.release([0]), lambda pool: pool.hold([0]), lambda pool: pool.keep(0)]
)
def test_misuse_is_a_bug_and_says_so(misuse):
    pool = PagePool(1)
    with pytest.raises(AssertionError, match="page 0"):
        misuse(pool)


@pytest.mark.parametrize(
    "damage",
    [
        lambda pool, page: pool._free.append(page),
        lambda pool, page: pool._free.pop(),
        lambda pool, page: pool._references.__setitem__(page, 0),
        lambda pool, page: pool._cached.__setitem__(page, None),
        lambda pool, page: pool._kept.add(pool._free[0]),
    ],
    ids=["free twice", "lost", "held by nobody", "held and cached", "dead but kept"],
)
def test_check_sees_damaged_accounts(damage):
    pool = PagePool(4)
    (page,) = pool.allocate(1)
    pool.check()
    damage(pool, page)
    with pytest.raises(AssertionError):
        pool.check()


@pytest.mark.parametrize(("tokens", "pages"), [(0, 0), (1, 1), (16, 1), (17, 2)])
def test_num_pages_for_rounds_up(tokens, pages):
    assert num_pages_for(tokens, 16) == pages
