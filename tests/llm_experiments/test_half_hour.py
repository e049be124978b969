"""A queue of pieces keeps to its time and its memory, loses no more than a stretch, and goes on on another machine."""

import contextlib
import tarfile
import time
from pathlib import Path

import pytest
import yaml

from llm_experiments import half_hour
from llm_experiments.config import checked
from llm_experiments.half_hour import HalfHour, Queue, load_half_hour

SHIPPED = Path(half_hour.__file__).parent / "configs" / "queue" / "half_hour.yaml"
FAILS = ["timeit", "--no-such-option"]


def writes(name, seconds=0.0):
    """A command that waits, and notes its begin and its end, in a file of this name."""
    code = [
        "import time, pathlib",
        "begin = time.time()",
        f"time.sleep({seconds})",
        "place = pathlib.Path(r'{runs}')",
        "place.mkdir(parents=True, exist_ok=True)",
        f"print(begin, time.time(), file=(place / '{name}').open('w'))",
    ]
    return ["timeit", "-n", "1", "-r", "1", "; ".join(code)]


def queue(folder, pieces, **changes):
    said = []
    config = checked(HalfHour, "test", {"name": "test", "gib": 10, "pieces": pieces} | changes)
    return Queue(config, folder, said.append), said


def piece(command, gib=1.0, stretch=0.001, after=()):
    return {"command": command, "gib": gib, "stretch": stretch, "after": list(after)}


def times(folder, name):
    return [float(each) for each in (folder / "runs" / name).read_text().split()]


class Lost(Exception):
    """The machine is gone."""


def lost_after_one_piece(said):
    def say(line):
        said.append(line)
        if line.startswith("finished:") and sum(each.startswith("finished:") for each in said) == 1:
            raise Lost

    return say


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(half_hour, "LOOK", 0.02)
    monkeypatch.setattr(half_hour, "PATIENCE", 1.0)


def test_pieces_run_once_and_after_those_they_need(tmp_path):
    own, said = queue(tmp_path, {"one": piece(writes("one")), "two": piece(writes("two"), after=["one"])})
    assert own.run(1.0)
    assert times(tmp_path, "two")[0] >= times(tmp_path, "one")[1]
    first = times(tmp_path, "one")
    again, said = queue(tmp_path, {"one": piece(writes("one")), "two": piece(writes("two"), after=["one"])})
    assert again.run(1.0) and said == ["finished 2 of 2 pieces"]
    assert times(tmp_path, "one") == first


@pytest.mark.parametrize(("gib", "together"), [(5.0, True), (6.0, False)])
def test_no_more_run_side_by_side_than_the_memory_holds(tmp_path, gib, together):
    own, said = queue(tmp_path, {name: piece(writes(name), gib=gib) for name in ("one", "two")})
    assert own.run(1.0)
    assert (said[:2] == ["begun: one", "begun: two"]) == together
    if not together:
        assert said[:4] == ["begun: one", "finished: one", "begun: two", "finished: two"]


def test_a_failed_piece_is_told_of_and_holds_up_only_those_that_need_it(tmp_path):
    pieces = {"bad": piece(FAILS), "needs": piece(writes("needs"), after=["bad"]), "other": piece(writes("other"))}
    own, said = queue(tmp_path, pieces)
    assert not own.run(1.0)
    assert (tmp_path / "runs" / "other").exists() and not (tmp_path / "runs" / "needs").exists()
    (told,) = [line for line in said if line.startswith("failed")]
    assert "bad" in told and "no-such-option" in told
    assert said[-1] == "finished 1 of 3 pieces"


def test_at_the_end_of_the_time_what_runs_is_stopped(tmp_path):
    own, said = queue(tmp_path, {"long": piece(writes("long", 60.0))})
    begin = time.monotonic()
    assert not own.run(0.02)
    assert time.monotonic() - begin < 20
    assert "cut off: long" in said and not (tmp_path / "runs" / "long").exists()


def test_a_piece_is_not_begun_with_less_time_than_it_would_lose(tmp_path):
    own, said = queue(tmp_path, {"long": piece(writes("long"), stretch=2.0)})
    assert not own.run(1.0)
    assert said == ["finished 0 of 1 pieces"]


def test_an_archive_that_leads_out_of_the_folder_is_refused(tmp_path):
    secret = tmp_path / "outside.txt"
    secret.write_text("changed")
    with tarfile.open(tmp_path / "bad.tar.gz", "w:gz") as packed:
        packed.add(secret, "../outside.txt")
    secret.write_text("kept")
    own, _ = queue(tmp_path / "folder", {"one": piece(FAILS)})
    with pytest.raises(ValueError, match=r"holds '\.\./outside\.txt'"):
        own.unpack(tmp_path / "bad.tar.gz")
    assert secret.read_text() == "kept"


def test_another_machine_goes_on_from_the_archive(tmp_path):
    pieces = {"one": piece(writes("one")), "two": piece(FAILS, after=["one"])}
    first, _ = queue(tmp_path / "first", pieces)
    first.run(1.0)
    (tmp_path / "first" / "runs" / "models").mkdir()
    (tmp_path / "first" / "runs" / "models" / "weights").write_bytes(bytes(10))
    norms = tmp_path / "first" / "runs" / "law" / "name" / "cell" / "scores" / "hash"
    norms.mkdir(parents=True)
    (norms / "00000.scores").write_bytes(bytes(10))
    (norms.parents[1] / "prompts.csv").write_text("kept\n")
    archive = first.pack(tmp_path / "out")
    second, said = queue(tmp_path / "second", pieces | {"two": piece(writes("two"), after=["one"])})
    second.unpack(archive)
    assert not (tmp_path / "second" / "runs" / "models").exists()
    assert [path.name for path in (tmp_path / "second" / "runs" / "law").rglob("*") if path.is_file()] == [
        "prompts.csv"
    ]
    assert second.run(1.0)
    assert "begun: one" not in said
    assert times(tmp_path / "second", "one") == times(tmp_path / "first", "one")


def test_large_files_are_left_out_and_told_of(tmp_path, monkeypatch):
    monkeypatch.setattr(half_hour, "LARGEST", 5)
    own, said = queue(tmp_path / "work", {"one": piece(writes("one"))})
    own.run(1.0)
    own.pack(tmp_path)
    assert any("left out" in line and "one" in line for line in said)


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ({"one": piece(["a", "b"], after=["two"]), "two": piece(["a", "b"])}, "none of the pieces before it"),
        ({"one": piece(["a", "b"], gib=11.0)}, "takes 11 GiB, and the device has 10"),
    ],
)
def test_queues_that_can_not_be_run_are_refused(tmp_path, pieces, message):
    with pytest.raises(ValueError, match=message):
        queue(tmp_path, pieces)


def test_every_command_of_the_shipped_queue_is_one(monkeypatch):
    """Each names a module of the project, options that it has, and a configuration that can be read."""
    from typer.testing import CliRunner

    from llm_experiments import cli
    from llm_experiments.law.config import load_law
    from llm_experiments.study.config import load_study

    readers = {"study": load_study, "law": load_law}
    for name, one in load_half_hour(SHIPPED).pieces.items():
        module, *arguments = one.command
        assert module == "llm_experiments"
        result = CliRunner().invoke(cli.app, [*arguments, "--help"])
        assert result.exit_code == 0, (name, result.output)
        options = dict(zip(arguments[1::2], arguments[2::2], strict=True))
        read = readers[arguments[0]](SHIPPED.parents[3] / options["--config"])
        assert options.get("--cell", "taught") in getattr(read, "cells", ["taught"]), name
        assert options.get("--design", "grpo_8") in getattr(read, "designs", ["grpo_8"]), name


def test_the_shipped_law_is_measured_on_the_base_model_of_the_study_that_it_predicts():
    from llm_experiments.law.config import load_law
    from llm_experiments.study.config import load_study

    configs = SHIPPED.parents[1]
    taught = load_law(configs / "law" / "smollm2_gpu.yaml").cells["taught"]
    world = load_study(configs / "study" / "columns_smollm2.yaml").world
    assert taught.teaching == world.pretraining and taught.model.name == world.start and not taught.model.chat
    assert taught.task.options == {"world": world.bases[0], "split": "train"} and taught.task.name == world.task
    assert taught.sampling.max_new_tokens == world.max_new_tokens


@pytest.mark.slow
def test_a_rehearsal_on_machines_that_are_lost_ends_with_the_tables_of_one_that_is_not(tmp_path):
    """The law's inputs of two small cells, on a machine that is lost after each piece."""
    pretraining = {"steps": 60, "batch_size": 64, "learning_rate": 8e-3, "width": 16, "layers": 1}
    small = {
        "name": "rehearsal",
        "n_boot": 50,
        "model": {"name": "tiny", "chat": False, "pretraining": pretraining},
        "task": {"name": "arithmetic", "n_prompts": 4, "options": {"kinds": ["add-1"], "style": "bare"}},
        "sampling": {"max_new_tokens": 3},
        "completions": 6,
        "history": 20,
        "cells": {"one": {}, "two": {"seed": 7}},
    }
    (tmp_path / "law.yaml").write_text(yaml.safe_dump(small))
    base = ["llm_experiments", "law", "--config", str(tmp_path / "law.yaml"), "--runs", "{runs}"]
    base += ["--results", "{results}"]
    pieces = {
        "one": piece([*base, "--cell", "one"]),
        "two": piece([*base, "--cell", "two"], after=["one"]),
        "again": piece([*base, "--cell", "one"], after=["two"]),
    }
    whole, _ = queue(tmp_path / "whole", pieces)
    assert whole.run(20.0)
    archive, finished = None, False
    for loan in range(len(pieces)):
        lent, said = queue(tmp_path / f"lent{loan}", pieces)
        if archive is not None:
            lent.unpack(archive)
        lent.say = lost_after_one_piece(said)
        with contextlib.suppress(Lost):
            finished = lent.run(20.0)
        archive = lent.pack(tmp_path / "out")
    assert finished or (lent.folder / "done" / "again").exists()
    assert loan > 0 and not (tmp_path / "lent0" / "done" / "two").exists()
    for name in ("completions.csv.gz", "prompts.csv", "summary.csv", "predictions.csv"):
        one, other = (each / "results" / "law" / "rehearsal" / name for each in (whole.folder, lent.folder))
        assert one.read_bytes() == other.read_bytes(), name
