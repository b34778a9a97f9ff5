"""What must not be served from the archive: refused by name, nothing is mapped, and native capture serves instead."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.integration.story import engines
from tests.integration.story.support import DEVICES, GRAPHS, Done, Place, native, nothing_mapped, restored, same

Saved = tuple[Place, Done]
OTHER_SMS = 100


@pytest.fixture(scope="module", params=DEVICES)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    place = Place(tmp_path_factory.mktemp("plain"), request.param)
    return place, place.save()


def test_mutable_buffer_elsewhere_falls_back(saved: Saved) -> None:
    place, save = saved
    done = place.run("load", kinds=(engines.MutableElsewhere,))
    native(done, save)
    assert set(done.report["fell_back"]) == set(GRAPHS)
    differences = done.report["differences"]
    assert len(differences) == 5
    for name in ("ids", "positions", "slots", "lengths", "block_table"):
        assert any(f"'inputs.{name}' is mutable" in sentence for sentence in differences), differences
    after = done.results["footprint"]["after"]["zones"]
    assert after.get("graphs", 0) == 0 and after.get("ambient", 0) == 0


def test_mutable_buffer_elsewhere_fails_on_demand(saved: Saved) -> None:
    place, save = saved
    done = place.run("load", "--on-mismatch=fail", kinds=(engines.MutableElsewhere,))
    assert done.code == 0, done.output
    assert done.results["error"]["kind"] == "mismatch" and "'inputs.ids' is mutable" in done.error
    assert done.report["outcome"] == "failed"
    same(done, save)  # the process went on without Foundry


def test_weight_whose_place_is_taken_is_refused(saved: Saved) -> None:
    """Re-seating would overwrite a tensor that nobody registered."""
    place, save = saved
    done = place.run("load", kinds=(engines.KeptBeforeWeights,))
    native(done, save)
    (sentence,) = done.report["differences"]
    assert "'embed.tokens'" in sentence and "is taken by a live tensor" in sentence


def test_weights_whose_addresses_are_stored_are_not_overwritten(tmp_path: Path) -> None:
    """Two weights in each other's place, and a table that says where they are."""
    place = Place(tmp_path, "a100-40gb")
    save = place.save(kinds=(engines.KeepsAddresses,))
    restored(place.run("load", kinds=(engines.KeepsAddresses,)), save)
    done = place.run("load", kinds=(engines.KeepsAddresses, engines.SwappedWeights))
    native(done, save)
    sentences = done.report["differences"]
    assert len(sentences) == 2 and all("tensor 'table' holds its address" in sentence for sentence in sentences)
    assert all(any(f"tensor '{name}' must leave" in sentence for sentence in sentences) for name in engines.SWAPPED)


def test_another_sm_count_falls_back(saved: Saved) -> None:
    place, _ = saved
    done = place.run("load", FOUNDRY_SIM_SMS=str(OTHER_SMS))
    native(done, None)
    nothing_mapped(done)
    (mismatch,) = done.report["mismatches"]
    sms = {"a100-40gb": 108, "h100": 132}[place.device]
    assert mismatch == {"field": "sm_count", "archive": sms, "here": OTHER_SMS, "rule": "exact"}
    row = next(line for line in done.results["text"].splitlines() if line.strip().startswith("sm_count"))
    assert row.split()[:3] == ["sm_count", str(sms), str(OTHER_SMS)]


def test_another_sm_count_fails_on_demand(saved: Saved) -> None:
    place, _ = saved
    done = place.run("load", "--on-mismatch=fail", FOUNDRY_SIM_SMS=str(OTHER_SMS))
    assert done.code == 0 and done.results["error"]["kind"] == "mismatch"
    assert "sm_count" in done.error and str(OTHER_SMS) in done.error
    nothing_mapped(done)


def test_another_gpu_falls_back(saved: Saved) -> None:
    place, _ = saved
    other = next(name for name in DEVICES if name != place.device)
    done = place.run("load", device=other)
    native(done, None)
    nothing_mapped(done)
    fields = {mismatch["field"] for mismatch in done.report["mismatches"]}
    assert {"gpu_name", "compute_capability", "sm_count"} <= fields


def test_another_maximum_length_falls_back(saved: Saved) -> None:
    place, _ = saved
    done = place.run("load", "--max-length=128")
    native(done, None)
    nothing_mapped(done)
    found = {m["field"]: (m["archive"], m["here"]) for m in done.report["mismatches"]}
    assert found["max_length"] == (256, 128)


@pytest.fixture(scope="module", params=DEVICES)
def grown(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    place = Place(tmp_path_factory.mktemp("grown"), request.param)
    return place, place.run("save", kinds=(engines.GrownWorkspace,))


def test_freed_workspace_leaves_its_graphs_out(grown: Saved) -> None:
    """Graphs captured before the workspace grew point to freed memory; the others are published."""
    _, save = grown
    assert save.code == 0 and "error" not in save.results, save.output
    before, after = GRAPHS[:5], GRAPHS[5:]
    assert save.report["outcome"] == "saved" and save.report["saved"] == after
    assert set(save.report["left_out"]) == set(before)
    for name, sentences in save.report["left_out"].items():
        sentence, proof = sentences
        assert "a replay writes to that memory" in proof
        assert sentence.startswith(f"graph {name}, node ")
        assert "mini::add(" in sentence and "offset 0 of argument 0" in sentence, sentence
        assert hex(save.results["notes"]["workspace"]) in sentence and "which was freed" in sentence
        assert "4.00 MiB" in sentence


def test_sentences_name_who_allocated_the_workspace(saved: Saved, tmp_path_factory: pytest.TempPathFactory) -> None:
    """With stacks in the journal; ctypes lets go of the interpreter lock, so there are no frames of Python."""
    place = Place(tmp_path_factory.mktemp("stacks"), saved[0].device)
    save = place.run("save", kinds=(engines.GrownWorkspace,), FOUNDRY_JOURNAL="stacks,python")
    assert set(save.report["left_out"]) == set(GRAPHS[:5]), save.output
    for sentence, _ in save.report["left_out"].values():
        found = re.search(r"\(4\.00 MiB at 0x\w+ in zone ambient, made by (.*?)\), which was freed", sentence)
        assert found, sentence
        assert re.fullmatch(r"[^ ]+\+0x[0-9a-f]+( < [^ ]+\+0x[0-9a-f]+){3}", found[1]), found[1]
        assert "libcuda_hook" not in found[1] and "_ctypes" in found[1]


def test_freed_block_of_a_cached_segment_leaves_its_graphs_out(
    saved: Saved, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The segment lives on; the block that the graphs point to does not."""
    place = Place(tmp_path_factory.mktemp("cached"), saved[0].device)
    save = place.run("save", kinds=(engines.GrownCachedWorkspace,))
    assert save.code == 0 and "error" not in save.results, save.output
    assert save.report["saved"] == GRAPHS[5:] and set(save.report["left_out"]) == set(GRAPHS[:5])
    for sentences in save.report["left_out"].values():
        assert "mini::add(" in sentences[0] and hex(save.results["notes"]["workspace"]) in sentences[0]
        assert "which was freed" in sentences[0]
    same(save, saved[1])


def test_load_restores_the_others(grown: Saved) -> None:
    place, save = grown
    done = place.run("load", kinds=(engines.GrownWorkspace,))
    assert done.code == 0, done.output
    assert done.report["outcome"] == "restored" and done.report["restored"] == GRAPHS[5:]
    assert set(done.report["fell_back"]) == set(GRAPHS[:5])
    same(done, save)


def test_memory_of_a_phase_that_nobody_registered_leaves_its_graphs_out(
    saved: Saved, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """LOAD could not tell whether its code put the same there again. All graphs: nothing is published."""
    place = Place(tmp_path_factory.mktemp("phase"), saved[0].device)
    done = place.run("save", kinds=(engines.GeneratorInPhase,), FOUNDRY_JOURNAL="stacks,python")
    assert done.code == 0, done.output
    assert done.report["saved"] == [] and set(done.report["left_out"]) == set(GRAPHS)
    for name, sentences in done.report["left_out"].items():
        assert all(sentence.startswith(f"graph {name}, node ") for sentence in sentences)
        assert "mini::sample(" in sentences[0] and "no registered tensor covers" in sentences[0]
        assert "in zone weights, made by malloc (runtime.py:" in sentences[0]
    assert done.results["error"]["kind"] == "unsupported" and done.report["outcome"] == "failed"
    assert done.error.startswith("none of 9 graphs can be restored, so no archive is published; the first: graph ")
    assert [path.name for path in place.folder.iterdir()] == ["save.json"]
    same(done, saved[1])


def test_strict_fails_save(saved: Saved, tmp_path_factory: pytest.TempPathFactory) -> None:
    place = Place(tmp_path_factory.mktemp("strict"), saved[0].device)
    done = place.run("save", "--strict", kinds=(engines.GrownWorkspace,))
    assert done.code == 0, done.output
    assert done.error.startswith("graph decode/48, node ")  # the first that was captured
    assert "mini::add(" in done.error and "which was freed" in done.error
    assert done.report["outcome"] == "failed"
    assert [path.name for path in place.folder.iterdir()] == ["save.json"]
    same(done, saved[1])


def test_load_still_works_after_all_refusals(saved: Saved) -> None:
    place, save = saved
    restored(place.run("load"), save)
