"""The two ways in which programs use vLLM: its class for offline work, and the one behind its server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
Prompts = Sequence[list[int]]


class Engine:
    """What both have: an adapter that answers are asked with."""

    _lora: Any = None

    def use_adapter(self, folder: str | None) -> None:
        """From now on requests ask for the LoRA adapter in that folder, or for none."""
        if folder is None:
            self._lora = None
            return
        from vllm.lora.request import LoRARequest

        self._lora = LoRARequest("adapter", 1, folder)


class Offline(Engine):
    """vllm.LLM: the engine in this process or, with VLLM_ENABLE_V1_MULTIPROCESSING=1, in one of its own."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        from vllm import LLM

        self._llm = LLM(**arguments)
        self.config = self._llm.llm_engine.vllm_config

    def answer(self, prompts: Prompts, tokens: int) -> tuple[list[list[int]], float]:
        """Greedy tokens for each prompt, and the seconds that took."""
        asked = [{"prompt_token_ids": prompt} for prompt in prompts]
        begin = time.perf_counter()
        outputs = self._llm.generate(asked, _greedy(tokens), use_tqdm=False, lora_request=self._lora)
        return [list(output.outputs[0].token_ids) for output in outputs], time.perf_counter() - begin

    def in_workers(self, method: Any, *arguments: Any) -> list[Any]:
        """What a function of the worker, or its method of that name, returns there."""
        _check(method, *arguments)
        found: list[Any] = self._llm.collective_rpc(method, args=arguments)
        return found


class Asynchronous(Engine):
    """vllm.v1.engine.async_llm.AsyncLLM, as `vllm serve` uses it: engines in processes of their own, one per replica."""

    def __init__(self, arguments: dict[str, Any], replicas: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._asked = 0
        self._engine = self._run(self._make({**arguments, "data_parallel_size": replicas}))
        self.config = self._engine.vllm_config

    @staticmethod
    async def _make(arguments: dict[str, Any]) -> Any:
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    def answer(self, prompts: Prompts, tokens: int, replica: int | None = None) -> tuple[list[list[int]], float]:
        """As Offline's, all at once; `replica`: which one is asked."""

        async def one(prompt: list[int], name: str) -> list[int]:
            found: list[int] = []
            asked = {"prompt_token_ids": prompt}
            answers = self._engine.generate(
                asked, _greedy(tokens), name, lora_request=self._lora, data_parallel_rank=replica
            )
            async for output in answers:
                found = list(output.outputs[0].token_ids)
            return found

        async def every() -> list[list[int]]:
            return list(await asyncio.gather(*(one(p, f"{self._asked}-{i}") for i, p in enumerate(prompts))))

        self._asked += 1
        begin = time.perf_counter()
        return self._run(every()), time.perf_counter() - begin

    def in_workers(self, method: Any, *arguments: Any) -> list[Any]:
        """One result per replica. (vLLM's own call returns the first one's alone.)"""
        _check(method, *arguments)
        client = self._engine.engine_core

        async def every() -> list[Any]:
            calls = (
                client._call_utility_async("collective_rpc", method, None, arguments, None, engine=engine)
                for engine in client.core_engines
            )
            return [found[0] for found in await asyncio.gather(*calls)]

        return self._run(every())

    def close(self) -> None:
        """Ends the engines' processes."""
        self._engine.shutdown()


def _check(*sent: Any) -> None:
    """Raises ValueError for a function that a worker two processes away could not be told of."""
    for value in sent:
        if getattr(value, "__module__", "") == "__main__":
            raise ValueError(f"{value.__qualname__} belongs to the program; workers need it from a module")


def _greedy(tokens: int) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=0.0,
        max_tokens=tokens,
        ignore_eos=True,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )
