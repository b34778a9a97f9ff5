"""What Foundry costs and saves: `python -m benchmarks --help` (needs a GPU), `benchmarks.counts` (does not)."""
