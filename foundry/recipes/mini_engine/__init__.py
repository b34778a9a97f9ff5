"""A miniature LLM engine on the CUDA driver API: the stand-in for a real one where there is no GPU."""
