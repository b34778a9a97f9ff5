"""Makes vLLM use Foundry's worker. Cheap: no CUDA, nothing of the engine but its platform is imported."""

from __future__ import annotations

from functools import wraps
from typing import Any

from foundry.engines.common import seams as common
from foundry.engines.common.starting import refuse
from foundry.engines.vllm.seams import LAUNCH

STOCK_WORKER = "vllm.v1.worker.gpu_worker.Worker"
WORKER = "foundry.engines.vllm.worker.Worker"


def say(line: str) -> None:
    """One line in vLLM's own log."""
    from vllm.logger import init_logger

    init_logger("vllm.foundry").info("Foundry: %s", line.removeprefix("Foundry: "))


def install() -> None:
    """Lets the platform choose Foundry's worker where it would choose vLLM's; later calls do nothing."""
    found = common.problems(LAUNCH)
    if found:
        refuse(f"this vLLM is not one that the plugin knows: {'; '.join(found)}", say)
        return
    from vllm.platforms import current_platform

    platform: Any = type(current_platform)
    if not current_platform.is_cuda():
        refuse(f"the platform is {platform.__name__}, Foundry needs CUDA", say)
        return
    if "foundry_installed" in platform.__dict__:
        return
    original = platform.check_and_update_config

    @classmethod  # type: ignore[misc]
    @wraps(original.__func__)
    def check_and_update_config(cls: Any, vllm_config: Any) -> None:
        original.__func__(cls, vllm_config)
        parallel = vllm_config.parallel_config
        # Not in `additional_config`: that would change vLLM's key for its compile cache; worker_cls does not.
        if parallel.worker_cls == STOCK_WORKER:
            parallel.worker_cls = WORKER
        elif parallel.worker_cls != WORKER:
            refuse(f"the worker is {parallel.worker_cls}, not vLLM's own", say)

    platform.check_and_update_config = check_and_update_config
    platform.foundry_installed = True
