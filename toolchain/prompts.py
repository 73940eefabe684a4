"""Prompts of the demo and of `paceline bench`: three kinds of text that speculation meets in very different moods.

Chat seldom repeats itself, code often does, and a copying task repeats its own prompt.
"""

__all__ = ["PROMPTS"]

PASSAGE = (
    "A paceline is a single file of riders. The first one breaks the wind, the others follow in the slipstream and "
    "save about a third of their effort. After a minute the leader swings off, drifts to the back and rests, and "
    "the second rider becomes the first. Nobody accelerates when taking the lead; the speed stays the same."
)
FUNCTION = """def mean(values):
    total = 0.0
    for value in values:
        total += value
    return total / len(values)


def variance(values):
    center = mean(values)
    total = 0.0
    for value in values:
        total += (value - center) ** 2
    return total / len(values)
"""

PROMPTS: dict[str, tuple[str, ...]] = {
    "chat": (
        "Why is the sky blue during the day and red in the evening?",
        "I slept badly and have a long meeting today. What can I do to stay awake?",
        "Explain to a child what a shadow is.",
        "Give me three ideas for a rainy Sunday with two small children.",
    ),
    "code": (
        "Write a Python class Stack with the methods push, pop, peek, is_empty and size.",
        "Write a Python function for each of these: add, subtract, multiply, divide. Check every argument.",
        "Write an HTML page with a table of five planets and their moons.",
        f"Add a function standard_deviation to this module and return the whole module:\n\n{FUNCTION}",
    ),
    "copying": (
        f"Repeat this text word for word:\n\n{PASSAGE}",
        f"Copy this code exactly as it is:\n\n{FUNCTION}",
        f"Correct spelling mistakes, if there are any, and return the whole text:\n\n{PASSAGE}",
        f"Replace the word 'total' by 'sum' in this code and return all of it:\n\n{FUNCTION}",
    ),
}
