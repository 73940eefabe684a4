"""run_memory: every term by hand, on a model whose sizes are round numbers."""

from dataclasses import replace

from model_shapes import model_shape, recipe_of

from paceline.toolchain.run_memory import PROCESS_BYTES, forecast_run

DRAFT = {"checkpoint": "target", "layers": "0"}


def test_weights_are_tables_matrices_and_vectors() -> None:
    run = forecast_run(recipe_of(quantization={"weights": "bf16"}), {"target": model_shape()}, 0)
    matrices = 2 * 128 * 48 * 2 + 128 * 1600 * 2
    assert run.weights_bytes == {"target": 1600 * 100 * 2 + matrices + 300 * 4}


def test_a_head_and_a_layer_can_have_formats_of_their_own() -> None:
    options = {"weights": "int8", "head": "bf16", "keep": {"*.1.mlp.down_proj": "fp32"}, "embedding": "fp32"}
    run = forecast_run(recipe_of(quantization=options), {"target": model_shape()}, 0)
    first, kept = 128 * 48 + 40 * 4, 128 * 48 * 4
    head = 128 * 1600 * 2
    assert run.weights_bytes["target"] == 1600 * 100 * 4 + first + kept + head + 300 * 4


def test_pages_are_what_the_pools_of_all_engines_hold() -> None:
    page = 2 * (2 * 2 * 16) * 16 * 2  # layers, keys and values of two heads of 16, tokens, bf16
    recipe = recipe_of(draft=DRAFT, speculation={"method": "ngram"}, runtime={"kv_cache_memory": "1MiB"})
    shapes = {"target": model_shape(2), "draft": model_shape(1)}
    alone = forecast_run(recipe, shapes, 0)
    assert (alone.bytes_a_page, alone.num_pages, list(alone.weights_bytes)) == (page, (1 << 20) // page, ["target"])
    recipe = recipe.model_copy(update={"speculation": recipe.speculation.model_copy(update={"method": "auto"})})
    both = forecast_run(recipe, shapes, 0)
    assert both.page_bytes == {"target": page, "draft": page // 2}
    assert both.num_pages == (1 << 20) // (page + page // 2)
    assert both.cache_bytes == both.num_pages * (page + page // 2)


def test_requests_take_whole_pages() -> None:
    run = forecast_run(recipe_of(runtime={"kv_cache_memory": "1MiB"}), {"target": model_shape()}, 0)
    run = replace(run, num_pages=10)
    assert [run.num_requests(tokens) for tokens in (16, 17, 160, 161)] == [10, 5, 1, 0]
    assert run.longest_tokens == 512
    assert run.pages_of_longest == 32


def test_logits_are_bounded_by_the_step() -> None:
    shapes = {"target": model_shape(), "draft": model_shape(1)}
    row = 1600 * 4
    runtime = {"max_num_seqs": 4, "max_num_batched_tokens": 100}
    speculation = {"method": "ngram", "num_speculative_tokens": 3}
    assert forecast_run(recipe_of(runtime=runtime, speculation=speculation), shapes, 0).logits_bytes == 4 * 4 * row
    plain = recipe_of(runtime=runtime, speculation={**speculation, "method": "none"})
    assert forecast_run(plain, shapes, 0).logits_bytes == 4 * row
    small = recipe_of(runtime={**runtime, "max_num_batched_tokens": 9}, speculation=speculation)
    assert forecast_run(small, shapes, 0).logits_bytes == 9 * row
    drafted = recipe_of(runtime=runtime, speculation={**speculation, "method": "draft"}, draft=DRAFT)
    assert forecast_run(drafted, shapes, 0).logits_bytes == 4 * 4 * row + 4 * row


def test_the_rest_and_the_sum() -> None:
    run = forecast_run(
        recipe_of(runtime={"max_num_batched_tokens": 50, "max_num_seqs": 2}), {"target": model_shape()}, 7
    )
    assert run.arena_bytes == 2 * 50 * (4 * 100 + 2 * 100) * 4
    assert run.process_bytes == PROCESS_BYTES + 30 * 7
    parts = (run.weights_bytes["target"], run.cache_bytes, run.logits_bytes, run.arena_bytes, run.process_bytes)
    assert run.total_bytes == sum(parts)
