"""Where the simulated driver and its code images are, and the environment in which programs use them.

As a program it prints the driver's folder: export LD_LIBRARY_PATH=$(python -m foundry.recipes.simulated)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

FOLDER_VARIABLE = "FOUNDRY_SIM"
DRIVER = "libcuda.so.1"
IMAGES = ("decode.fatbin", "assorted.fatbin")
DEVICES = ("h100", "h200", "a100-40gb", "a100-80gb")  # the presets of csrc/sim


def folder() -> Path:
    """The folder with driver and images: FOUNDRY_SIM, else the package's own.

    Raises FileNotFoundError that names what is missing.
    """
    place = Path(os.environ.get(FOLDER_VARIABLE) or Path(__file__).absolute().parent.parent / "sim")
    missing = [name for name in (DRIVER, *IMAGES) if not (place / name).is_file()]
    if missing:
        raise FileNotFoundError(f"{place} lacks {', '.join(missing)}: this installation has no simulated driver")
    return place.absolute()


def environment(env: Mapping[str, str], device: str | None = None) -> dict[str, str]:
    """`env` with the simulated driver in place of any real one. `device`: "h100", "a100-40gb", ..."""
    libraries = [str(folder()), *filter(None, env.get("LD_LIBRARY_PATH", "").split(":"))]
    made = {**env, "LD_LIBRARY_PATH": ":".join(libraries)}
    if device is not None:
        made["FOUNDRY_SIM_DEVICE"] = device
    return made


if __name__ == "__main__":
    print(folder())
