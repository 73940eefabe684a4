"""Shapes of a small made-up model, for what is computed from shapes alone."""

from paceline.plugins.contract import LayerCache
from paceline.toolchain.model_shape import Matrix, ModelShape
from paceline.toolchain.recipe import Recipe

__all__ = ["model_shape", "recipe_of"]


def model_shape(num_layers: int = 2, *, is_tied: bool = False) -> ModelShape:
    """Hidden size 100 (padded to 128 rows), 40 columns a layer (padded to 48), vocabulary 1600."""
    layers = range(num_layers)
    return ModelShape(
        tables=((1600, 100),),
        matrices=(
            *(Matrix(f"model.layers.{i}.mlp.down_proj", 100, 40) for i in layers),
            Matrix("lm_head", 100, 1600, is_shared=is_tied),
        ),
        vector_elements=100 * (num_layers + 1),
        input_elements=100 * (num_layers + 1),
        vocab_size=1600,
        hidden_size=100,
        max_positions=512,
        layers=tuple(LayerCache(2, 16) for _ in layers),
    )


def recipe_of(**parts: object) -> Recipe:
    """A recipe whose checkpoint nobody opens."""
    return Recipe.model_validate({"target": {"checkpoint": "nowhere"}, **parts})
