"""Recipes for serving engines: one process of an engine, and what starts and compares such processes."""
