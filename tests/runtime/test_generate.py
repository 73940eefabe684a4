"""The front door: many prompts at once, streams, cancellation, and errors that reach whoever waits."""

import asyncio
import threading
import time

import pytest
from toy_engine import ToyEngine
from toy_requests import toy_loop
from toy_sampler import sample_chains
from toy_scenario import alone

from paceline.runtime.drive import Driver
from paceline.runtime.errors import CapacityError, RequestError
from paceline.runtime.generate import Runtime
from paceline.runtime.request import DraftMethod, FinishReason, RequestOptions
from paceline.runtime.sampling_params import SamplingParams

PARAMS = SamplingParams(max_tokens=12, temperature=0.7, seed=3, ignore_eos=True)


class LetterCodec:
    """Letter k of the alphabet is token k."""

    def encode(self, text):
        return [ord(letter) - 96 for letter in text]

    def writer(self, params):
        return LetterWriter()


class LetterWriter:
    stopped = False

    def push(self, token_id):
        return chr(96 + token_id)

    def flush(self):
        return ""


@pytest.fixture
def runtime():
    with Runtime(toy_loop(draft=ToyEngine(64), max_num_seqs=3), LetterCodec()) as runtime:
        yield runtime


def test_completions_come_in_the_order_of_the_prompts(runtime):
    prompts = ["abc", [4, 5, 6], "gh", "ab", "x"]
    completions = runtime.generate(prompts, PARAMS, RequestOptions(drafting=DraftMethod.AUTO))
    for prompt, completion in zip(prompts, completions, strict=True):
        ids = tuple(LetterCodec().encode(prompt) if isinstance(prompt, str) else prompt)
        assert completion.prompt_ids == ids
        assert list(completion.token_ids) == alone(ids, PARAMS)
        assert completion.text == "".join(chr(96 + i) for i in completion.token_ids)
        assert completion.finish_reason is FinishReason.LENGTH
        assert list(completion.emitted_s) == sorted(completion.emitted_s)
        assert len(completion.emitted_s) == 12


def test_params_may_differ_by_prompt(runtime):
    each = [SamplingParams(max_tokens=n, ignore_eos=True) for n in (1, 5)]
    assert [len(c.token_ids) for c in runtime.generate(["a", "b"], each)] == [1, 5]
    with pytest.raises(RequestError, match="2 settings for 3 prompts"):
        runtime.generate(["a", "b", "c"], each)


def test_more_prompts_than_the_queue_takes_are_handed_in_as_others_end():
    with Runtime(toy_loop(max_num_seqs=1, max_queue=2), LetterCodec()) as runtime:
        assert len(runtime.generate(["ab"] * 9, PARAMS)) == 9


def test_bad_prompt_raises_and_leaves_nothing_behind(runtime):
    with pytest.raises(RequestError, match="empty prompt"):
        runtime.generate(["abc", ""], PARAMS)
    assert len(runtime.generate(["abc"], PARAMS)) == 1
    assert runtime.loop.pool.num_held == 0


def test_callers_in_several_threads_share_the_loop(runtime):
    results = {}

    def call(name):
        results[name] = runtime.generate([name], PARAMS)[0]

    threads = [threading.Thread(target=call, args=(name,)) for name in ("abc", "def", "ghi", "jkl")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, completion in results.items():
        assert list(completion.token_ids) == alone(tuple(LetterCodec().encode(name)), PARAMS)


def test_streams_run_side_by_side(runtime):
    async def collect(prompt):
        emissions = [emission async for emission in runtime.stream(prompt, PARAMS)]
        assert [e.finish_reason for e in emissions[:-1]] == [None] * (len(emissions) - 1)
        assert emissions[-1].finish_reason is FinishReason.LENGTH
        return [token.token_id for emission in emissions for token in emission.tokens]

    async def both():
        return await asyncio.gather(collect("abc"), collect("xy"))

    assert asyncio.run(both()) == [alone((1, 2, 3), PARAMS), alone((24, 25), PARAMS)]


def test_leaving_a_stream_cancels_its_request():
    def unhurried(logits, chains):
        time.sleep(0.001)
        return sample_chains(logits, chains)

    async def leave(runtime):
        stream = runtime.stream("abc", SamplingParams(max_tokens=150, ignore_eos=True))
        async for emission in stream:
            await stream.aclose()
            return emission.request

    with Runtime(toy_loop(sample=unhurried), LetterCodec()) as runtime:
        request = asyncio.run(leave(runtime))
        runtime.generate(["a"], PARAMS)  # the loop has taken more steps when this returns
        assert request.finish_reason is FinishReason.CANCELLED


def test_failing_engine_reaches_everybody_and_ends_the_runtime():
    def broken(logits, chains):
        raise ZeroDivisionError("no logits today")

    with Runtime(toy_loop(sample=broken), LetterCodec()) as runtime:
        for _ in range(2):
            with pytest.raises(ZeroDivisionError, match="no logits today"):
                runtime.generate(["abc", "def"], PARAMS)


def test_closing_delivers_the_end_of_everything_in_flight():
    gate = threading.Event()

    def slow(logits, chains):
        gate.wait(5)
        return sample_chains(logits, chains)

    driver, got = Driver(toy_loop(sample=slow)), []
    driver.submit([1, 2, 3], SamplingParams(max_tokens=100, ignore_eos=True), None, None, got.append)
    threading.Timer(0.05, gate.set).start()
    driver.close()
    assert got[-1].finish_reason is FinishReason.CANCELLED
    with pytest.raises(CapacityError, match="closed"):
        driver.submit([1, 2, 3], PARAMS, None, None, got.append)
