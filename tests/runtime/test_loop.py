"""The loop's life around the tokens: cancel, deadlines, the bounded queue, counters, engine pairs."""

from dataclasses import replace

import pytest
from toy_engine import ToyEngine
from toy_requests import run_to_end, toy_loop
from toy_sampler import sample_chains
from toy_scenario import alone

from paceline.runtime.errors import BundleError, CapacityError
from paceline.runtime.loop import Loop
from paceline.runtime.request import DraftMethod, FinishReason, Phase, RequestOptions
from paceline.runtime.sampling_params import SamplingParams
from paceline.runtime.step_stats import STAGES

LONG = SamplingParams(max_tokens=50, ignore_eos=True)


class Clock:
    """Time that moves when told."""

    now_s = 100.0

    def __call__(self):
        return self.now_s


def test_empty_loop_has_nothing_to_do():
    loop = toy_loop()
    assert not loop.has_work
    assert loop.step() == []


def test_tokens_come_out_step_by_step_and_end_with_a_reason():
    loop = toy_loop()
    request = loop.submit([1, 2, 3], SamplingParams(max_tokens=4, ignore_eos=True))
    emissions = run_to_end(loop)
    assert [[t.token_id for t in e.tokens] for e in emissions] == [[t] for t in request.output_ids]
    assert [e.finish_reason for e in emissions] == [None, None, None, FinishReason.LENGTH]
    assert request.output_ids == alone((1, 2, 3), replace(LONG, max_tokens=4, seed=0))


def test_cancel_in_the_inbox():
    loop = toy_loop()
    loop.cancel(loop.submit([1, 2, 3], LONG))
    (emission,) = loop.step()
    assert (emission.tokens, emission.finish_reason) == ((), FinishReason.CANCELLED)
    assert not loop.has_work


def test_cancel_in_the_waiting_line():
    loop = toy_loop(max_num_seqs=1)
    loop.submit([1, 2, 3], LONG)
    waiting = loop.submit([1, 2, 3], LONG)
    loop.step()
    loop.cancel(waiting)
    assert [e.finish_reason for e in loop.step() if e.request is waiting] == [FinishReason.CANCELLED]


def test_cancel_in_the_middle_of_the_prompt_gives_the_pages_back():
    loop = toy_loop(max_chunk_tokens=4)
    request = loop.submit(list(range(1, 30)), LONG)
    loop.step()
    assert loop.pool.num_held > 0
    loop.cancel(request)
    run_to_end(loop)
    assert (request.phase, loop.pool.num_held) == (Phase.FINISHED, 0)


def test_cancel_after_preemption():
    loop = toy_loop(num_pages=14, max_num_seqs=2)
    first, second = loop.submit([1, 2, 3], LONG), loop.submit([4, 5, 6], LONG)
    while not second.num_preemptions:
        loop.step()
    loop.cancel(second)
    run_to_end(loop)
    assert (first.finish_reason, second.finish_reason) == (FinishReason.LENGTH, FinishReason.CANCELLED)
    assert len(second.output_ids) > 0


def test_cancel_after_the_end_is_harmless():
    loop = toy_loop()
    request = loop.submit([1, 2, 3], SamplingParams(max_tokens=2, ignore_eos=True))
    run_to_end(loop)
    loop.cancel(request)
    assert loop.step() == []
    assert request.finish_reason is FinishReason.LENGTH


def test_deadline_ends_a_running_request_and_keeps_its_tokens():
    clock = Clock()
    loop = toy_loop(clock=clock)
    request = loop.submit([1, 2, 3], LONG, RequestOptions(deadline_s=5.0))
    loop.step()
    clock.now_s += 5.0
    (emission,) = loop.step()
    assert emission.finish_reason is FinishReason.TIMEOUT
    assert len(request.output_ids) == 1
    assert loop.pool.num_held == 0


def test_queue_timeout_ends_who_never_got_a_seat():
    clock = Clock()
    loop = toy_loop(clock=clock, max_num_seqs=1)
    options = RequestOptions(queue_timeout_s=5.0)
    running, waiting = loop.submit([1, 2, 3], LONG, options), loop.submit([1, 2, 3], LONG, options)
    loop.step()
    clock.now_s += 6.0
    run_to_end(loop)
    assert (running.finish_reason, waiting.finish_reason) == (FinishReason.LENGTH, FinishReason.TIMEOUT)


def test_full_queue_is_refused_and_later_takes_again():
    loop = toy_loop(max_queue=2, max_num_seqs=1)
    for _ in range(2):
        loop.submit([1, 2, 3], LONG)
    with pytest.raises(CapacityError, match="2 requests waiting"):
        loop.submit([1, 2, 3], LONG)
    loop.step()
    loop.submit([1, 2, 3], LONG)


def test_higher_priority_overtakes_and_nobody_loses_tokens():
    loop = toy_loop(num_pages=14, max_num_seqs=2)
    low = [loop.submit([i, 2, 3], LONG) for i in (1, 2)]
    loop.step()
    high = loop.submit([9, 2, 3], LONG, RequestOptions(priority=1))
    ended = [e.request for e in run_to_end(loop) if e.finish_reason]
    assert ended[0] is high
    assert loop.counters.preemptions > 0
    for request in (*low, high):
        assert request.output_ids == alone(tuple(request.token_ids[:3]), replace(LONG, seed=0))


def test_counters_tell_what_drafting_did():
    loop = toy_loop(draft=ToyEngine(64, agreement=0.6))
    loop.submit([1, 2, 3], LONG, RequestOptions(drafting=DraftMethod.DRAFT, num_draft_tokens=3))
    run_to_end(loop)
    counters = loop.counters
    assert counters.output_tokens == 50
    assert counters.drafts + counters.accepted_tokens <= 50
    assert sum(counters.accepted_at) == counters.accepted_tokens < counters.draft_tokens == sum(counters.drafted_at)
    assert counters.accepted_at == sorted(counters.accepted_at, reverse=True)


def test_last_step_tells_host_time_from_engine_time():
    loop = toy_loop(draft=ToyEngine(64))
    loop.submit([1, 2, 3], LONG, RequestOptions(drafting=DraftMethod.DRAFT))
    loop.step()
    stats = loop.last_step
    assert len(stats.stage_s) == len(STAGES)
    assert stats.engine_s > 0
    assert stats.draft_engine_s > 0
    assert 0 < stats.host_s < sum(stats.stage_s)
    assert (stats.num_requests, stats.num_rows) == (1, 3 + 4)


def test_prefix_hits_span_requests_that_have_ended():
    loop = toy_loop()
    prompt = list(range(1, 20))
    for _ in range(2):
        loop.submit(prompt, SamplingParams(max_tokens=2, ignore_eos=True))
        run_to_end(loop)
    assert loop.counters.prefix_hit_tokens == 16


@pytest.mark.parametrize(("num_pages", "page_size"), [(32, 4), (64, 8)])
def test_engines_that_cannot_share_pages_are_refused(num_pages, page_size):
    with pytest.raises(BundleError, match="since both share page ids"):
        Loop(ToyEngine(64, 4), sample_chains, draft=ToyEngine(num_pages, page_size))
