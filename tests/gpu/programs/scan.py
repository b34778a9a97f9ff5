"""The device's kernels against the host's version, over memory of many kinds; under the hook, which carries them."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from foundry import _core

BLOCK = 65536
WINDOW, WINDOW_END = 0x1137_0000_0000, 0x1137_0040_0001
BYTES = 40 * 1024 * 1024 + 4321


def memory() -> torch.Tensor:
    """Random bytes with blocks of zeros, equal blocks, and addresses at many places, aligned and not."""
    generator = torch.Generator().manual_seed(11)
    data = torch.randint(0, 256, (BYTES,), dtype=torch.uint8, generator=generator)
    words = data[: BYTES // 8 * 8].view(torch.int64)
    places = torch.randint(0, words.numel(), (5000,), generator=generator)
    words[places] = WINDOW + torch.randint(0, WINDOW_END - WINDOW, (5000,), generator=generator)
    words[0], words[1], words[2], words[3] = WINDOW, WINDOW_END - 1, WINDOW_END, WINDOW - 1
    words[-1] = WINDOW + 8
    data[8 * 999 + 3 : 8 * 1000 + 3] = torch.tensor([WINDOW]).view(torch.uint8)  # not aligned
    data[3 * BLOCK : 7 * BLOCK] = 0
    data[6 * BLOCK - 1] = 1
    data[100 * BLOCK : 101 * BLOCK] = data[:BLOCK]
    return data


def compare(device: _core.MemoryScanner, host: _core.MemoryScanner) -> dict[str, Any]:
    """What differs, and what was there to differ."""
    content = memory()
    tensor = content.cuda()
    torch.cuda.synchronize()
    base = tensor.data_ptr()
    windows = [(0x10, 0x20), (WINDOW, WINDOW_END), (0x7F00_0000_0000, 0x7F00_0000_1000)]
    found: dict[str, Any] = {"differences": []}
    for skip in (0, 16, 4096, 65520):
        if device.summaries(base + skip, BYTES - skip) != host.summaries(base + skip, BYTES - skip):
            found["differences"].append(f"summaries from {skip} on")
    for nbytes in (0, 1, 7, 15, 65535, 65537):
        if device.summaries(base, nbytes) != host.summaries(base, nbytes):
            found["differences"].append(f"summaries of {nbytes} bytes")
    blocks = device.summaries(base, BYTES)
    found["zero"] = [i for i, block in enumerate(blocks) if block[2]]
    found["expected_zero"] = [i for i in range(len(blocks)) if not content[i * BLOCK : (i + 1) * BLOCK].any()]
    found["equal"] = blocks[100] == blocks[0] and len({block[:2] for block in blocks}) == len(blocks) - 1 - 2
    for skip in (0, 1, 4, 8, 4095):
        hits = device.pointers(base + skip, BYTES - skip - 3, windows)
        if hits != host.pointers(base + skip, BYTES - skip - 3, windows):
            found["differences"].append(f"pointers from {skip} on")
        found.setdefault("hits", len(hits))
    many = torch.full((1 << 20,), WINDOW, dtype=torch.int64, device="cuda")  # more than the kernel has room for
    torch.cuda.synchronize()
    hits = device.pointers(many.data_ptr(), many.nbytes, windows)
    found["many"] = len(hits) == 1 << 20 and hits[-1] == (many.data_ptr() + many.nbytes - 8, WINDOW)
    return found


def timed(scanner: _core.MemoryScanner, tensor: torch.Tensor) -> dict[str, float]:
    """Milliseconds for a tensor, the better of three."""
    best: dict[str, float] = {}
    for _ in range(3):
        for name, call in (
            ("summaries", lambda: scanner.summaries(tensor.data_ptr(), tensor.nbytes)),
            ("pointers", lambda: scanner.pointers(tensor.data_ptr(), tensor.nbytes, [(WINDOW, WINDOW_END)])),
        ):
            begin = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin[0].record()
            call()
            begin[1].record()
            begin[1].synchronize()
            best[name] = min(best.get(name, 1e9), begin[0].elapsed_time(begin[1]))
    return best


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--save", action="store_true", help="the process has the hook")
    parser.add_argument("--archive")
    parser.add_argument("--json", required=True)
    options = parser.parse_args()
    torch.cuda.init()
    device, host = _core.MemoryScanner(0), _core.MemoryScanner(0, host=True)
    found = {"on_device": [device.on_device, host.on_device], "note": device.note, **compare(device, host)}
    large = torch.zeros(256 << 20, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    found["ms for 256 MiB"] = {"device": timed(device, large), "host": timed(host, large)}
    Path(options.json).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
