"""From a recipe to a forecast: what its build, its bundle and the running bundle will take, before any of it exists.

A recipe flows in; its checkpoints are opened and their shapes read, no weight is. A `Plan` flows out that answers for
this recipe and for any with other settings of the same models, which is how proposals are found. Scaling from a table
of known models was the alternative and lost: it knows neither the draft nor the settings.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from .build import check_longest, open_checkpoints
from .build_memory import file_sizes, forecast_build_peak
from .errors import RecipeError
from .model_shape import ModelShape, shape_of
from .plan_proposals import Proposal, propose
from .recipe import Recipe, with_overrides
from .run_memory import RunForecast, forecast_run
from .tokenizer_files import TOKENIZER

__all__ = ["Plan", "check_fits", "plan_recipe"]


@dataclass(frozen=True)
class Plan:
    """A recipe (with its longest sequence filled in) and what is known of its models."""

    recipe: Recipe
    shapes: Mapping[str, ModelShape]
    texts: Mapping[str, bytes]

    @property
    def build_peak_bytes(self) -> int:
        """Largest resident size of the build."""
        return forecast_build_peak(self.recipe, self.shapes, len(self.texts[TOKENIZER]))

    @property
    def files(self) -> dict[str, int]:
        """Bytes of each file of the bundle."""
        return file_sizes(self.recipe, self.shapes, self.texts)

    @property
    def run(self) -> RunForecast:
        """What the running bundle takes with the recipe as it is."""
        return self.run_with(self.recipe)

    def run_with(self, recipe: Recipe) -> RunForecast:
        """What the running bundle takes with other settings of the same models."""
        return forecast_run(recipe, self.shapes, len(self.texts[TOKENIZER]))

    def proposals(self, memory_bytes: int) -> tuple[Proposal, ...]:
        """What to change so that it fits; nothing where it does. Raises: RecipeError where nothing is enough."""
        return () if self.run.total_bytes <= memory_bytes else propose(self.recipe, memory_bytes, self.run_with)


def plan_recipe(recipe: Recipe) -> Plan:
    """The plan of a recipe.

    Raises: RecipeError, CheckpointError, ArchitectureError, as a build would, as far as that shows without exporting.
    """
    checkpoints = open_checkpoints(recipe)
    shapes = {role: shape_of(checkpoint) for role, checkpoint in checkpoints.items()}
    for role, shape in shapes.items():
        check_longest(recipe.runtime.max_seq_len, shape.max_positions, role)
    if recipe.runtime.max_seq_len is None:
        recipe = with_overrides(recipe, {"runtime.max_seq_len": shapes["target"].max_positions})
    return Plan(recipe, shapes, checkpoints["target"].tokenizer_files())


def check_fits(plan: Plan, memory_bytes: int, proposals: tuple[Proposal, ...]) -> None:
    """Raise RecipeError where the running bundle takes more than `memory_bytes`, naming the first of `proposals`."""
    if proposals:
        raise RecipeError(
            f"{plan.run.total_bytes / 2**20:.0f} MiB at run time",
            needed=f"at most {memory_bytes / 2**20:.0f} MiB, as --memory says",
            do=f"build with {' '.join(proposals[0].flags)}, or another of the proposals",
        )
