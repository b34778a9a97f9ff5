"""Archives that are not what they should be: one sentence each, nothing mapped, and the process goes on natively."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.story.support import GRAPHS, Done, Place, native, nothing_mapped, restored, same

DEVICE = "a100-40gb"
PLAIN_FILES = ("foundry.json", "rank_0/graphs.fdry", "rank_0/memory.fdry")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, Done]:
    place = Place(tmp_path_factory.mktemp("saved"), DEVICE)
    return place, place.save()


class Damaged:
    """A folder of copies of one archive."""

    def __init__(self, place: Place, folder: Path) -> None:
        self.place = place
        self.folder = folder / "archives"
        self.folder.mkdir()

    def add(self, label: str, change: Callable[[Path], object]) -> None:
        """A copy that `change` has changed; files are links to the same bytes until then."""
        copy = self.folder / label
        shutil.copytree(self.place.archive, copy, copy_function=os.link)
        change(copy)

    def enter(self) -> dict[str, Any]:
        """What became of a session for each of them."""
        results = self.folder.parent / "results.json"
        command = [sys.executable, "-m", "tests.integration.cases.refusals", str(self.folder), str(results)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=240, check=False, env=self.place.environment(False)
        )
        assert done.returncode == 0, f"{done.returncode}\n{done.stdout}{done.stderr}"
        found: dict[str, Any] = json.loads(results.read_text())
        return found


def write(path: Path, content: bytes) -> None:
    """Other bytes for one archive; the links that others have stay as they are."""
    path.unlink()
    path.write_bytes(content)


def replaced(path: Path) -> Path:
    """The path, with nothing there any more."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    return path


def flip(path: Path, at: int, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    write(path, bytes(content))


def refused(label: str, found: dict[str, dict[str, Any]], *words: str) -> None:
    """Both ways of refusing, in one sentence with these words, with nothing left behind."""
    fallback, fail = found["fallback"], found["fail"]
    assert fallback["outcome"] == "native" and not fallback["kept"], (label, fallback)
    assert fail["outcome"] == "raised", (label, fail)
    for each in (fallback, fail):
        assert each["left"] == {}, (label, each)
        assert each["reason"] and "\n" not in each["reason"].strip(), (label, each)
        assert all(word in each["reason"] for word in words), (label, each)


def test_an_archive_that_is_whole_is_loaded(saved: tuple[Place, Done], tmp_path: Path) -> None:
    """What the other tests of this file look for is not always so."""
    damaged = Damaged(saved[0], tmp_path)
    damaged.add("whole", lambda archive: None)
    found = damaged.enter()
    for how in ("fallback", "fail"):
        assert found["whole"][how]["outcome"] == "loading" and found["whole"][how]["kept"]
        left = found["whole"][how]["left"]
        assert set(left) <= {"zones", "reservation"} and not any(left.get("zones", {}).values()), left


def test_missing_and_half_archives(saved: tuple[Place, Done], tmp_path: Path) -> None:
    damaged = Damaged(saved[0], tmp_path)
    words = {}
    for name in PLAIN_FILES:
        label = f"without {name}".replace("/", " ")
        damaged.add(label, lambda archive, name=name: (archive / name).unlink())  # type: ignore[misc]
        words[label] = name.split("/")[-1]
    damaged.add("without rank_0", lambda archive: shutil.rmtree(archive / "rank_0"))
    damaged.add("without anything", lambda archive: replaced(archive).mkdir())
    damaged.add("a file", lambda archive: replaced(archive).write_text("{}"))
    damaged.add("a folder for a file", lambda archive: replaced(archive / "foundry.json").mkdir())
    damaged.add("not text", lambda archive: write(archive / "foundry.json", b'{"format_version": "\xf2"}'))
    damaged.add("a dangling link", lambda archive: replaced(archive).symlink_to("nowhere"))
    found = damaged.enter()
    assert found.pop("tokens") == saved[1].results["tokens_eager"]
    for label, each in found.items():
        refused(label, each, words.get(label, ""))


def test_missing_archive_in_an_engine(saved: tuple[Place, Done], tmp_path: Path) -> None:
    place, save = saved
    done = place.run("load", archive=tmp_path / "nowhere")
    native(done, save)
    nothing_mapped(done)
    assert str(tmp_path / "nowhere") in done.report["reason"]
    done = place.run("load", "--on-mismatch=fail", archive=tmp_path / "nowhere")
    assert done.results["error"]["kind"] == "io"
    nothing_mapped(done)
    same(done, save)


HOOKED = {"FOUNDRY_MODE": "auto"}  # as `foundry run --auto` starts what no archive has served yet


@pytest.mark.parametrize("name", PLAIN_FILES)
def test_auto_saves_a_damaged_archive_anew_where_the_hook_is(tmp_path: Path, name: str) -> None:
    """Without it that start is native; the one after it saves, and the next one loads."""
    place = Place(tmp_path, DEVICE)
    save = place.save()
    path = place.archive / name
    write(path, path.read_bytes()[:-9])
    native(place.run("auto"), save)
    again = place.run("auto", preload=True, **HOOKED)
    assert again.report["outcome"] == "saved" and again.report["saved"] == GRAPHS, again.output
    restored(place.run("auto", preload=True, **HOOKED), save)
    restored(place.run("auto"), save)


def test_auto_saves_an_archive_with_a_damaged_image_anew(tmp_path: Path) -> None:
    """Images are read while graphs are restored: without the hook those graphs are captured, and the report says damage."""
    place = Place(tmp_path, DEVICE)
    save = place.save()
    path = max((place.archive / "images").iterdir(), key=lambda file: file.stat().st_size)
    write(path, path.read_bytes()[:-9])
    load = place.run("auto")
    assert load.report["fell_back"] and load.report["damaged"], load.output
    same(load, save)
    again = place.run("auto", preload=True, **HOOKED)
    assert again.report["outcome"] == "saved" and again.report["saved"] == GRAPHS, again.output
    load = place.run("auto", preload=True, **HOOKED)
    restored(load, save)
    assert not load.report["damaged"]


@pytest.mark.parametrize("reaction", ["fallback", "fail"])
def test_the_launcher_has_an_archive_saved_anew_whose_damage_is_met_after_the_session(
    tmp_path: Path, reaction: str
) -> None:
    place = Place(tmp_path, DEVICE)
    launcher = [sys.executable, "-m", "foundry", "run", "--auto", "--archive", str(place.archive), "--"]

    def start() -> dict[str, Any]:
        command = [*launcher, *place.command("auto", f"--on-mismatch={reaction}")]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=240, check=False, env=place.environment(False)
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found: dict[str, Any] = json.loads((tmp_path / "auto.json").read_text())
        return found

    assert [start()["report"]["outcome"] for _ in range(2)] == ["saved", "restored"]
    path = max((place.archive / "images").iterdir(), key=lambda file: file.stat().st_size)
    write(path, path.read_bytes()[:-9])
    met = start()
    assert met["report"]["damaged"] and ("error" in met) == (reaction == "fail"), met["text"]
    reports = [start()["report"] for _ in range(2)]
    assert [report["outcome"] for report in reports] == ["saved", "restored"]
    assert reports[1]["restored"] == GRAPHS and not reports[1]["damaged"]


@pytest.mark.parametrize("version", [0, 2, 1 << 40, -1, 1.0, True, "1", None])
def test_other_format_versions(saved: tuple[Place, Done], tmp_path: Path, version: object) -> None:
    def change(archive: Path) -> None:
        document = json.loads((archive / "foundry.json").read_text())
        document["format_version"] = version
        write(archive / "foundry.json", json.dumps(document).encode())

    damaged = Damaged(saved[0], tmp_path)
    damaged.add("version", change)
    refused(str(version), damaged.enter()["version"], "format" if type(version) is int else "format_version")


def test_every_truncation(saved: tuple[Place, Done], tmp_path: Path) -> None:
    """Empty, half, one byte short, and at places of no meaning."""
    place, save = saved
    damaged = Damaged(place, tmp_path)
    numbers = random.Random(1)
    names = {}
    for name in PLAIN_FILES:
        whole = (place.archive / name).read_bytes()
        for length in (0, 1, len(whole) // 2, len(whole) - 1, *(numbers.randrange(len(whole)) for _ in range(6))):
            label = f"{name.split('/')[-1]} {length}"
            if name == "foundry.json" and length == len(whole) - 1:
                continue  # without its final newline the text is the same
            damaged.add(label, lambda a, n=name, w=whole, k=length: write(a / n, w[:k]))  # type: ignore[misc]
            names[label] = name.split("/")[-1]
        label = f"{name.split('/')[-1]} longer"
        damaged.add(label, lambda a, n=name, w=whole: write(a / n, w + b"\0" * 4096))  # type: ignore[misc]
        names[label] = name.split("/")[-1]
    found = damaged.enter()
    assert found.pop("tokens") == save.results["tokens_eager"]
    assert len(found) == len(names) > 30
    for label, each in found.items():
        refused(label, each, names[label])


@pytest.mark.parametrize("name", PLAIN_FILES[1:])
def test_one_flipped_bit(saved: tuple[Place, Done], tmp_path: Path, name: str) -> None:
    """In every byte of the header, and at places spread over the file."""
    place, save = saved
    size = (place.archive / name).stat().st_size
    damaged = Damaged(place, tmp_path)
    numbers = random.Random(2)
    places = [*range(64), *sorted(numbers.randrange(64, size) for _ in range(60)), size - 1]
    for at in places:
        damaged.add(f"{at}", lambda archive, at=at: flip(archive / name, at, numbers.randrange(8)))  # type: ignore[misc]
    found = damaged.enter()
    assert found.pop("tokens") == save.results["tokens_eager"]
    assert len(found) > 100
    for label, each in found.items():
        refused(label, each, name.split("/")[-1])


def test_one_flipped_bit_of_the_description(saved: tuple[Place, Done], tmp_path: Path) -> None:
    """foundry.json has no hash of its own: a flip is refused, or it is in a field that decides nothing."""
    place, save = saved
    text = (place.archive / "foundry.json").read_bytes()
    damaged = Damaged(place, tmp_path)
    numbers = random.Random(3)
    for at in sorted(numbers.sample(range(len(text)), 150)):
        damaged.add(f"{at}", lambda archive, at=at: flip(archive / "foundry.json", at, numbers.randrange(8)))  # type: ignore[misc]
    found = damaged.enter()
    assert found.pop("tokens") == save.results["tokens_eager"]
    number_refused = 0
    for label, each in found.items():
        if each["fallback"]["outcome"] == "loading":
            before = json.loads(text)
            after = json.loads((damaged.folder / label / "foundry.json").read_bytes())
            assert harmless(before, after), (label, each)
            continue
        number_refused += 1
        assert each["fallback"]["outcome"] == "native" and not each["fallback"]["kept"], (label, each)
        assert each["fail"]["outcome"] == "raised" and each["fail"]["left"] == {}, (label, each)
    assert number_refused > 100


def harmless(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether only what informs people differs."""
    known = {name for name, entry in before["fingerprint"].items() if entry["rule"] == "information"}
    for document in (before, after):
        # A flip in its name makes one that this version does not know, with the same rule.
        informs = {name for name, entry in document["fingerprint"].items() if entry["rule"] == "information"}
        for name in known | informs - before["fingerprint"].keys():
            document["fingerprint"].pop(name, None)
        # What is known of rules is this version's table; of graphs, the verified file's.
        for entry in document["fingerprint"].values():
            entry.pop("rule", None)
        for key in ("library_version", "graphs"):
            document.pop(key, None)
        # Images are known by their content, and that by graphs.fdry; LOAD needs no journal.
        listed = [file for file in document["inventory"] if file["name"] in PLAIN_FILES]
        document["inventory"] = listed
    return before == after


@pytest.mark.parametrize("where", ["first", "middle", "last"])
def test_flipped_byte_of_an_image(saved: tuple[Place, Done], tmp_path: Path, where: str) -> None:
    """Images are checked when they are loaded: their graphs are captured natively, all results are right."""
    place, save = saved
    for number, image in enumerate(sorted((place.archive / "images").iterdir())):
        archive = tmp_path / f"{number}"
        shutil.copytree(place.archive, archive)
        size = image.stat().st_size
        flip(archive / "images" / image.name, {"first": 0, "middle": size // 2, "last": size - 1}[where], 3)
        done = place.run("load", archive=archive)
        assert done.code == 0 and "error" not in done.results, done.output
        assert done.report["restored"] == [] and set(done.report["fell_back"]) == set(GRAPHS)
        assert (
            all(image.name in why for why in done.report["fell_back"].values()) or image.name in done.report["reason"]
        )
        same(done, save)
        done = place.run("load", "--on-mismatch=fail", archive=archive)
        assert done.code == 0 and image.name in done.error and done.results["error"]["kind"] == "corrupt"
        same(done, save)


def test_missing_and_truncated_image(saved: tuple[Place, Done], tmp_path: Path) -> None:
    place, save = saved
    image = min((place.archive / "images").iterdir()).name
    for label in ("missing", "truncated"):
        archive = tmp_path / label
        shutil.copytree(place.archive, archive)
        if label == "missing":
            (archive / "images" / image).unlink()
        else:
            write(archive / "images" / image, (place.archive / "images" / image).read_bytes()[:-1])
        done = place.run("load", archive=archive)
        assert done.code == 0 and "error" not in done.results, done.output
        assert done.report["restored"] == []
        assert image in done.report["reason"] + "".join(done.report["fell_back"].values())
        same(done, save)


NO_DRIVER = """
import ctypes, foundry
class Runtime:
    name = "mini_engine"
    def __getattr__(self, name): raise AssertionError(name)
session = foundry.session({archive!r}, "load", runtime=Runtime(), on_mismatch={reaction!r})
try:
    with session:
        print(session.report.outcome, session.report.reason, sep="|")
except foundry.FoundryError as problem:
    print("raised", problem, sep="|")
"""


@pytest.mark.parametrize("library", [None, b"", b"not a library\n" * 100], ids=["none", "empty", "text"])
@pytest.mark.parametrize("reaction", ["fallback", "fail"])
def test_no_libcuda(saved: tuple[Place, Done], tmp_path: Path, library: bytes | None, reaction: str) -> None:
    env = {key: value for key, value in saved[0].environment(False).items() if key != "LD_LIBRARY_PATH"}
    if library is not None:
        (tmp_path / "libcuda.so.1").write_bytes(library)
        env["LD_LIBRARY_PATH"] = str(tmp_path)
    elif subprocess.run([sys.executable, "-c", "import ctypes; ctypes.CDLL('libcuda.so.1')"], env=env,
                        capture_output=True, check=False).returncode == 0:  # fmt: skip
        pytest.skip("this machine has a libcuda")
    program = NO_DRIVER.format(archive=str(saved[0].archive), reaction=reaction)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False, env=env
    )
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.strip().splitlines()
    outcome, sentence = line.split("|")
    assert outcome == {"fallback": "native", "fail": "raised"}[reaction]
    assert "libcuda.so.1" in sentence
