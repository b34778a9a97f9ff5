"""The releases of engines that the contract tests read: one table, pinned by the digest of each wheel's RECORD."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True)
class Release:
    """One wheel. `record`: SHA-256 of its RECORD, which has the SHA-256 of every other file."""

    version: str
    record: str


@dataclass(frozen=True)
class Engine:
    """What is read of a package: the `.py` files below `folders` of its wheels, whose names end with `tag`."""

    package: str
    tag: str
    folders: tuple[str, ...]
    releases: tuple[Release, ...]

    def wheel(self, release: Release) -> str:
        """The file name of a release's wheel."""
        return f"{self.package}-{release.version}-{self.tag}.whl"

    def record(self, release: Release) -> str:
        """The name of RECORD inside that wheel."""
        return f"{self.package}-{release.version}.dist-info/RECORD"

    def wants(self, name: str) -> bool:
        """Whether a file of a wheel is kept."""
        return name.endswith(".py") and name.startswith(self.folders)

    def archive(self, release: Release) -> str:
        """The file name of what is kept of it: another name where another part is kept."""
        key = hashlib.sha256(repr((self.tag, self.folders, release)).encode()).hexdigest()[:8]
        return f"{self.package}-{release.version}-{key}.zip"


VLLM = Engine(
    "vllm",
    "cp38-abi3-manylinux_2_28_x86_64",
    (
        "vllm/compilation/",
        "vllm/config/",
        "vllm/forward_context.py",
        "vllm/logger.py",
        "vllm/model_executor/warmup/",
        "vllm/platforms/",
        "vllm/plugins/",
        "vllm/v1/cudagraph_dispatcher.py",
        "vllm/v1/worker/",
    ),
    (
        Release("0.22.1", "330eb862a18485284901699c5561ca91e30573672dc313e8ee35c9050e006e8c"),
        Release("0.23.0", "f07a04d4cb4b4fa690925c65c8504136d79e0af2be436a411cccd46c8ac4b831"),
        Release("0.24.0", "faedfff053a871980816cea1bc6b20aea1108b8fb2e951047c196a6548e9e6c5"),
        Release("0.25.1", "e00862c005fbd5da372f3970fb0f5c6ca8f6ea1dd5c75ea205ce0f58ea74a1a5"),
        Release("0.26.0", "e550ed7cec142a9512ef43c8c9a0adedcddec5973b0b2e97a600bfdd2864a44e"),
        Release("0.27.1", "389a70dc3f95d2514f29065d97ff149f851f557f9e97d6c797323abdff6f8961"),
        Release("0.28.0", "91d2edd6f8af9544a8c1cd4b7a23ed700cc75f748e9abb7ffaec2dd9f56402d0"),
        Release("0.29.0", "368879410efb3da4db74f47ab1953ad674075c4a1d2e8d59c464d004681e4ee4"),
        Release("0.30.0", "98c60262010a2fe2759540bd49bd260712f1a2275eb5c4a55d67b2751abe5630"),
        Release("0.31.0", "42b2205c6fa3ede3ad329ec24a4f0ce5358534c47ffc73c0d67d7e844c929d2d"),
        Release("0.32.0", "7de1ca9fab186868f4794671b450d274a40739fd887f7e5a52bc5ca76aab0f85"),
        Release("0.33.0", "a860951d44545b1b68c2d1484b9a03bbde52f6eae34850a6c22741c60ac386c4"),
    ),
)

SGLANG = Engine(
    "sglang",
    "cp312-cp312-manylinux_2_34_x86_64",
    (
        "sglang/srt/layers/logits_processor.py",
        "sglang/srt/managers/",
        "sglang/srt/mem_cache/",
        "sglang/srt/model_executor/",
        "sglang/srt/plugins/",
    ),
    (
        Release("0.5.12", "23c953ac170397f93cbc19e98b5d3cac9f6fded71fdd55894e56c04c4f573965"),
        Release("0.5.13", "8f26f17f9ba6ba5b2da9a1e582823498ba478b00e4c1ce1e95671f2d23838302"),
        Release("0.5.14", "1c4a24458d10c37687ffd439f1f7b91532969e2f5996d8f60fd632121e4c8c52"),
        Release("0.5.16", "72c616c0ba76a42c3b749b7a4adfc947a55726b6a2f251237bcb786ba1d09f64"),
        Release("0.5.18", "5edbd39869b34ed870ac385446a49652d5c1de5ea79bb8d233fd20475456a4a6"),
        Release("0.5.20", "482d5eedfe608d4f6a809081334b944a7053b3c8e6bbd07f7aeace0d7e2b3503"),
        Release("0.5.23", "baf8559e7f00438df9094b15df58254429baf088f50634dd7358aaa6d1bd6d23"),
    ),
)

ENGINES = {engine.package: engine for engine in (VLLM, SGLANG)}
