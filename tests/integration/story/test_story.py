"""The story that started this: warm-up on SAVE only, a generator that registers late, split-KV scratch that grows in the
capture loop, one SAVE pass; and LOADs that allocate differently. Right, or repaired and named."""

from __future__ import annotations

import pytest

from tests.integration.story import engines
from tests.integration.story.support import DEVICES, GRAPHS, Done, Place, restored

Saved = tuple[Place, Done]


@pytest.fixture(scope="module", params=DEVICES)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("plain"), request.param)


@pytest.fixture(scope="module")
def saved(place: Place) -> Saved:
    return place, place.save()


def names(done: Done) -> set[str]:
    """The tensors that were re-seated."""
    return {moved["name"] for moved in done.report["reseated"]}


def test_the_story_is_told(saved: Saved) -> None:
    """SAVE really warms up with captures, and scratch really grows in the middle of the capture loop."""
    place, save = saved
    notes = save.results["notes"]
    assert not notes["generator_before"] and not notes["generator_after"]
    assert notes["warm_up_captures"] == 2 and notes["forwards"] > 2 * len(GRAPHS)
    grown = {int(batch): nbytes for batch, nbytes in notes["grown"].items()}
    first_split = {"a100-40gb": 21, "h100": 24}[place.device]
    assert grown[first_split] == 20 << 20
    assert all(grown[batch] == 0 for batch in grown if batch not in (48, first_split))


def test_load_is_equal(saved: Saved) -> None:
    place, save = saved
    done = place.run("load")
    restored(done, save)
    assert done.report["reseated"] == [] and done.report["anchors_in_place"] == 29


@pytest.mark.parametrize(
    "kinds",
    [
        (engines.ExtraOutside,),
        (engines.ExtraBeforeWeights,),
        (engines.ExtraBeforeBuffers,),
        (engines.EarlyGenerator,),
        (engines.ExtraOutside, engines.ExtraBeforeWeights, engines.ExtraBeforeBuffers, engines.EarlyGenerator),
    ],
    ids=lambda kinds: "+".join(kind.__name__ for kind in kinds),
)
def test_more_on_load_moves_nothing(saved: Saved, kinds: tuple[type, ...]) -> None:
    place, save = saved
    done = place.run("load", kinds=kinds)
    restored(done, save)
    assert names(done) == set()


def test_swapped_weights_are_re_seated_and_both_named(saved: Saved) -> None:
    place, save = saved
    plain = place.run("load").results["footprint"]["after"]
    done = place.run("load", kinds=(engines.SwappedWeights,))
    restored(done, save)
    # What held one of them meanwhile was given back.
    assert {**done.results["footprint"]["after"], "zones": None} == {**plain, "zones": None}
    assert done.results["footprint"]["after"]["zones"]["graphs"] == plain["zones"]["graphs"]
    assert names(done) == set(engines.SWAPPED)
    first, second = done.report["reseated"]
    assert first["landed"] == second["recorded"] and second["landed"] == first["recorded"]
    assert all(name in done.results["text"] for name in engines.SWAPPED)


def test_weights_that_a_temporary_moved_are_re_seated(saved: Saved) -> None:
    place, save = saved
    done = place.run("load", kinds=(engines.TemporaryBeforeWeights,))
    restored(done, save)
    assert "embed.tokens" in names(done) and not any(name.startswith("inputs.") for name in names(done))
    assert all(moved["landed"] - moved["recorded"] == 512 for moved in done.report["reseated"])


def test_threads_on_load(saved: Saved) -> None:
    """Four threads load weights in no particular order; the inputs are where they were."""
    place, save = saved
    done = place.run("load", "--load-threads=4")
    restored(done, save)
    assert not any(name.startswith(("inputs.", "cache.")) for name in names(done))


@pytest.fixture(scope="module")
def saved_by_threads(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    other = Place(tmp_path_factory.mktemp("threads"), place.device)
    return other, other.save("--load-threads=4")


@pytest.mark.parametrize("threads", [1, 4])
def test_threads_on_save(saved_by_threads: Saved, threads: int) -> None:
    place, save = saved_by_threads
    restored(place.run("load", f"--load-threads={threads}"), save)


@pytest.fixture(scope="module")
def saved_with_more(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    other = Place(tmp_path_factory.mktemp("more"), place.device)
    extras = (engines.ExtraOutside, engines.ExtraBeforeWeights, engines.ExtraBeforeBuffers, engines.EarlyGenerator)
    return other, other.save(kinds=extras)


def test_missing_allocations_on_load_move_nothing(saved_with_more: Saved) -> None:
    place, save = saved_with_more
    done = place.run("load")
    restored(done, save)
    assert names(done) == set()


def test_missing_temporary_on_load(place: Place, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = Place(tmp_path_factory.mktemp("temporary"), place.device)
    save = other.save(kinds=(engines.TemporaryBeforeWeights,))
    done = other.run("load")
    restored(done, save)
    assert "embed.tokens" in names(done)


def test_a_second_save_replaces_the_first(saved: Saved) -> None:
    """One pass is enough; another one is as good."""
    place, save = saved
    again = place.save()
    restored(place.run("load"), again)
    assert again.results["outputs"] == save.results["outputs"]
