from __future__ import annotations

import torch


class Workspace:
    """Scratch memory of forwards. It grows by being replaced, which graphs that use it do not survive."""

    def __init__(self) -> None:
        self.tokens, self.locked, self.in_graphs = 0, False, False

    def get(self, tokens: int) -> None:
        if tokens > self.tokens:
            assert not self.locked, "Workspace is locked"
            assert not self.in_graphs, "graphs use the workspace that is replaced"
            self.tokens = tokens
        if torch.framework.recording is not None:
            self.in_graphs = True


workspace = Workspace()
