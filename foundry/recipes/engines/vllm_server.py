"""One `vllm serve` from its start to a few answers over HTTP; what it did is written as JSON.

    foundry run --auto -- python -m foundry.recipes.engines.vllm_server --json out.json

Token ids go in and come out (--tokens-only), so no tokenizer is needed. The default model has the shape of Qwen3-0.6B; its
random weights are written to a checkpoint, which the server loads as any other.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foundry.recipes.engines import random_model
from foundry.recipes.engines.vllm_process import ENVIRONMENT, add_options, engine_arguments

READY_S, ANSWER_S, END_S = 300.0, 120.0, 30.0
# What Foundry's last word about its session begins with.
OUTCOMES = {"saved": "saved", "restored": "restored", "serving natively": "native", "graphs are captured": "native"}


class Server:
    """A process that serves; its output is handed on, and Foundry's lines of it are kept."""

    def __init__(self, command: Sequence[str]) -> None:
        self.said: list[str] = []
        self._begin = time.monotonic()
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            print(line, end="", flush=True)
            if "Foundry: " in line:
                self.said.append(line[line.index("Foundry: ") + len("Foundry: ") :].strip())

    def wait_ready(self, url: str) -> float:
        """Seconds from its start until it answers there. Raises RuntimeError if it ends, or takes READY_S."""
        while time.monotonic() - self._begin < READY_S:
            if self._process.poll() is not None:
                raise RuntimeError(f"the server ended with code {self._process.returncode}")
            try:
                with urllib.request.urlopen(url, timeout=5):
                    return time.monotonic() - self._begin
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
        raise RuntimeError(f"the server was not ready after {READY_S:.0f} s")

    def end(self) -> None:
        """As Ctrl-C ends it; a server that does not mind is killed."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(END_S)


def ask(address: str, prompt: list[int], tokens: int) -> list[int]:
    """Greedy tokens."""
    sampling = {"temperature": 0.0, "max_tokens": tokens, "ignore_eos": True, "detokenize": False}
    body = json.dumps({"token_ids": prompt, "sampling_params": sampling}).encode()
    request = urllib.request.Request(
        f"{address}/inference/v1/generate", data=body, headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
        found: list[int] = json.load(answer)["choices"][0]["token_ids"]
    return found


def flags(arguments: dict[str, Any]) -> list[str]:
    """Keyword arguments of vllm.LLM as those of `vllm serve`."""
    found: list[str] = []
    for name, value in arguments.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            found.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            found += [f"--{flag}", json.dumps(value) if isinstance(value, dict) else str(value)]
    return found


def outcome(said: Sequence[str]) -> tuple[str, int]:
    """What came of Foundry's session by its lines, and of how many graphs: ("restored", 67)."""
    for line in reversed(said):
        for beginning, name in OUTCOMES.items():
            if line.startswith(beginning):
                number = re.match(r"\w+ (\d+) ", line)
                return name, int(number[1]) if number else 0
    return "none", 0


def main(argv: Sequence[str] | None = None) -> int:
    """Starts the server, asks, ends it, writes the results; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m foundry.recipes.engines.vllm_server", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    add_options(parser)
    parser.add_argument("--json", required=True, metavar="FILE", help="where to write the results")
    options = parser.parse_args(argv)
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if options.runner != "auto":
        os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "1" if options.runner == "v2" else "0"
    if options.model is None:
        options.model = random_model.checkpoint(random_model.place(options.layers, "-weights"), options.layers)
    arguments = engine_arguments(options)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", arguments.pop("model"), *flags(arguments)]
    server = Server([*command, "--tokens-only", "--host", "127.0.0.1", "--port", str(port)])
    address = f"http://127.0.0.1:{port}"
    try:
        seconds = {"ready": server.wait_ready(f"{address}/health")}
        begin = time.monotonic()
        ask(address, random_model.prompts(1)[0], 1)
        seconds["first_token"] = time.monotonic() - begin
        tokens = {"alone": [ask(address, prompt, options.tokens) for prompt in random_model.prompts(8)]}
    finally:
        server.end()
    name, graphs = outcome(server.said)
    results = {
        "seconds": {key: round(value, 3) for key, value in seconds.items()},
        "tokens": tokens,
        "outcome": name,
        "graphs": graphs,
        "said": server.said,
    }
    Path(options.json).write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
