"""Runnable examples: `python -m foundry.recipes.NAME`."""
