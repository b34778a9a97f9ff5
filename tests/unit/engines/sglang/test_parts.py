"""Fingerprint, refusals, outputs, and what installing the plugin does."""

from __future__ import annotations

import enum
import importlib.metadata
from typing import Any

import mini_sglang
import pytest

import foundry
from foundry.engines.common import seams as common
from foundry.engines.sglang import features, fingerprint, outputs, plugin, register, seams
from foundry.engines.sglang.adapter import holds_state


def test_fingerprint_is_of_what_matters_to_graphs() -> None:
    here, there = mini_sglang.ModelRunner(), mini_sglang.ModelRunner()
    there.server_args.port, there.server_args.random_seed, there.server_args.model_path = 1, 2, "elsewhere"
    there.model_config.hf_config.fields["_name_or_path"] = "elsewhere"
    assert fingerprint.fields(here) == fingerprint.fields(there)
    for change in (
        lambda runner: setattr(runner.server_args, "page_size", 64),
        lambda runner: setattr(runner.server_args, "cuda_graph_bs", [1]),
        lambda runner: setattr(runner.model_config, "context_len", 4096),
        lambda runner: runner.model_config.hf_config.fields.update(hidden_size=128),
    ):
        other = mini_sglang.ModelRunner()
        change(other)  # type: ignore[no-untyped-call]
        assert fingerprint.fields(here) != fingerprint.fields(other)


def test_fingerprint_names_what_differs() -> None:
    runner = mini_sglang.ModelRunner()
    runner.server_args.page_size = 64
    fields = fingerprint.fields(runner)
    assert fields["option.page_size"] == "64"
    assert fields["option.cuda_graph_bs"] == '["1", "2", "4"]'
    assert "option.tp_size" not in fields  # its default


def test_fingerprint_has_the_engines_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_TRITON_DECODE_ATTN_STATIC_KV_SPLITS", "1")
    for name in ("SGLANG_RUN_ID", "SGLANG_CACHE_DIR", "SGLANG_HOST_IP", "SGLANG_PLUGINS", "SGLANG_DP_RANK"):
        monkeypatch.setenv(name, "x")
    found = [name for name in fingerprint.fields(mini_sglang.ModelRunner()) if name.startswith("env.")]
    assert found == ["env.SGLANG_TRITON_DECODE_ATTN_STATIC_KV_SPLITS"]


def test_values_of_the_fingerprint_have_no_addresses() -> None:
    class Kind(enum.Enum):
        FULL = 1

    assert fingerprint._text(Kind.FULL) == "FULL"
    assert fingerprint._text({3, 1}) == '["1", "3"]'
    assert fingerprint._text(object()) == "object"
    assert fingerprint._text({"b": [Kind.FULL], "a": None}) == fingerprint._text({"a": None, "b": [Kind.FULL]})


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("tp_size", 2, "--tp-size is used"),
        ("speculative_algorithm", "EAGLE", "--speculative-algorithm is used"),
        ("enable_lora", True, "--enable-lora is used"),
        ("moe_a2a_backend", "deepep", "--moe-a2a-backend is used"),
        ("disable_cuda_graph", True, "CUDA graphs are disabled"),
    ],
)
def test_refusals(name: str, value: Any, sentence: str) -> None:
    runner = mini_sglang.ModelRunner()
    assert features.obstacle(runner) == ""
    setattr(runner.server_args, name, value)
    assert sentence in features.obstacle(runner)


def test_breakable_graphs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_USE_BREAKABLE_CUDA_GRAPH", "1")
    assert "breakable" in features.obstacle(mini_sglang.ModelRunner())


def test_every_refused_option_has_a_reason() -> None:
    for option, _, reason in features._REFUSED:
        assert option.startswith("--") and reason


def test_outputs_there_and_back(engine: Any) -> None:
    from fake_start import FakeStart

    engine("classic", FakeStart("load"))
    original = mini_sglang.LogitsProcessorOutput("logits", "hidden")
    assert outputs.plain(original) == {"next_token_logits": "logits", "hidden_states": "hidden"}
    assert outputs.engines_own(outputs.plain(original)) == original
    with pytest.raises(foundry.FoundryError, match="returns a dict") as caught:
        outputs.plain({})
    assert caught.value.kind == "unsupported"
    with pytest.raises(foundry.FoundryError, match="no LogitsProcessorOutput") as caught:
        outputs.engines_own({"unheard_of": 1})
    assert caught.value.kind == "corrupt"


def test_modules_that_hold_state() -> None:
    assert holds_state("sglang.srt.layers.attention.triton_backend")
    assert holds_state("torch.nn.modules.container")
    assert not holds_state("sglang.srt.model_executor.model_runner")
    assert not holds_state("sglang.srt.managers.scheduler")


def test_inert_without_a_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "install", lambda: pytest.fail("installed"))
    register()
    monkeypatch.setenv("FOUNDRY_MODE", "off")
    register()


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr(plugin, "_installed", False)
    monkeypatch.setattr(plugin, "say", said.append)
    monkeypatch.setattr(plugin, "adapter_name", lambda: "classic")
    return said


def test_without_sglang(fresh: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    plugin.install()
    assert fresh == ["serving natively: SGLang is not installed as a package"]


def test_a_release_that_does_not_fit(fresh: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "9.9")
    monkeypatch.setattr(common, "problems", lambda found: ["x has no y"])
    plugin.install()
    assert fresh == ["serving natively: SGLang 9.9 is not one that the plugin knows: x has no y"]


def test_a_release_that_was_never_run(fresh: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "9.9")
    monkeypatch.setattr(common, "problems", lambda found: [])
    plugin.install()
    assert "set FOUNDRY_SGLANG_UNTRIED=1 to try" in fresh[0]


def test_a_user_who_wants_an_error(fresh: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang swallows exceptions of plugins, but not this one."""
    monkeypatch.setenv("FOUNDRY_ON_MISMATCH", "fail")
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "9.9")
    monkeypatch.setattr(common, "problems", lambda found: ["x has no y"])
    with pytest.raises(SystemExit, match="x has no y"):
        plugin.install()


def test_every_hook_is_a_seam(engine: Any) -> None:
    """What is put around SGLang is what the contract test checks."""
    from fake_start import FakeStart

    known = {f"{seam.module}.{seam.name}" for seam in seams.ALL}
    for generation in ("classic", "backends"):
        adapter, _, _ = engine(generation, FakeStart("save"))
        for target, _ in adapter.hooks():
            assert target in known or target.removesuffix(".__init__") in known
