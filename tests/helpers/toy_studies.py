"""Small studies for the tests of the harness; at the top level of a module, so that workers can import them."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from simulations.harness import Cell, Estimate, RunSettings, Samples, Streams, Study, average, grid, run

POISON = (1.0, 17)  # factor and replicate that fail in `fragile`


def simulate(cell: Cell, streams: Streams) -> Samples:
    """The mean and a matrix product of normal samples; wider where ``scale`` is larger, from the same numbers."""
    sample = cell["mean"] + cell["scale"] * streams.normal("sample", 20, 6)
    gram = np.einsum("rki,rkj->rij", sample, sample)
    return {"mean|estimate": sample.mean(axis=(1, 2)), "mean|trace": np.trace(gram, axis1=1, axis2=2)}


def fragile(cell: Cell, streams: Streams) -> Samples:
    """Fails in one replicate, unless the environment repairs it."""
    if "KAESTAT_TOY_REPAIRED" not in os.environ and cell["mean"] == POISON[0] and POISON[1] in streams.replicates:
        raise ArithmeticError("replicate [17] went wrong")
    return simulate(cell, streams)


def not_finite(cell: Cell, streams: Streams) -> Samples:
    estimate = streams.normal("sample")
    return {"estimate": np.where(np.array(streams.replicates) == 13, np.nan, estimate)}


def deadly(cell: Cell, streams: Streams) -> Samples:
    """Kills the worker, as the system does when memory runs out."""
    if 5 in streams.replicates:
        os.kill(os.getpid(), 9)
    return simulate(cell, streams)


def big_product(cell: Cell, streams: Streams) -> Samples:
    """Matrix products so large that BLAS would split them over threads, and round differently."""
    left, right = streams.normal("left", 300, 300), streams.normal("right", 300, 300)
    return {"corner": (left @ right)[:, -1, -1], "sum": (left @ right).sum(axis=(1, 2))}


def summarise(cell: Cell, samples: Samples) -> list[Estimate]:
    error = samples["mean|estimate"] - cell["mean"]
    return [average("mean|bias", error), average("mean|trace", samples["mean|trace"])]


TOY = Study(
    name="toy",
    aims="Test the harness.",
    mechanisms="Normal samples.",
    estimands="Their mean.",
    cells=grid(mean=(0.0, 1.0, 2.0), scale=(1.0, 2.0)),
    replicates=40,
    shard=8,
    simulate=simulate,
    summarise=summarise,
)
FRAGILE = replace(TOY, name="fragile", simulate=fragile)
NOT_FINITE = replace(TOY, name="not_finite", simulate=not_finite, cells=grid(mean=(0.0,), scale=(1.0,)))
DEADLY = replace(TOY, name="deadly", simulate=deadly)
BIG_PRODUCT = replace(TOY, name="big_product", simulate=big_product, cells=grid(mean=(0.0,)), replicates=6, shard=2)
BIG_PRODUCT = replace(BIG_PRODUCT, summarise=lambda cell, samples: [average(*column) for column in samples.items()])


def run_quietly(study: Study, out: Path, **settings) -> object:
    """A run in this process, unless ``settings`` say otherwise."""
    return run(study, RunSettings(out=out, **({"jobs": 1} | settings)))


def shard_bytes(folder: Path) -> dict[str, bytes]:
    """Every shard of a run, byte by byte."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*.shard"))}
