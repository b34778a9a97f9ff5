"""What the plugins of all engines share: seams, a session that spans an engine's start, tensors found by walking."""
