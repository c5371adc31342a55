"""From a recipe to an encoder: recipes, runs, stages, objectives, the loop."""
