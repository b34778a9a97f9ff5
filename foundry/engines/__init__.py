"""Plugins for serving engines as they are released: nothing of an engine is forked or copied."""
