"""Rollout pools on disk: one Parquet file for each prompt and checkpoint, whole or absent."""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kaestat.core.storage import write_atomically
from llm_experiments.policies.base import Completion

MANIFEST = "manifest.json"
LONGEST = 400  # characters of settings in a message
SCHEMA = pa.schema(
    [
        ("token_ids", pa.list_(pa.int32())),
        ("log_probs", pa.list_(pa.float32())),
        ("text", pa.string()),
        ("finished", pa.bool_()),
        ("reward", pa.float64()),
    ]
)


@dataclass(frozen=True, eq=False)
class PromptPool:
    """All completions of one prompt at one checkpoint.

    checkpoint: Digest of the weights that sampled them.
    rewards: ndarray, shape (N,).
    """

    step: int
    checkpoint: str
    problem_id: str
    completions: tuple[Completion, ...]
    rewards: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each completion, shape (N,)."""
        return np.array([len(completion) for completion in self.completions])


class PoolStore:
    """The folder of a run's pools.

    ``manifest.json`` tells what the completions depend on; each file ``step-STEP/PROMPT.parquet`` holds the pool of one
    prompt, with page checksums. A pool made under other settings is refused.

    folder: Made if it does not exist.
    identity: Everything that the completions depend on, as plain data.
    problem_ids: Prompts in the order of the rows.
    Raises ValueError if the folder holds pools made with another identity; the message names the settings.
    """

    def __init__(
        self,
        folder: str | Path,
        identity: Mapping[str, Any],
        problem_ids: Sequence[str],
    ):
        self.folder = Path(folder)
        self.problem_ids = tuple(problem_ids)
        self._place = {problem_id: place for place, problem_id in enumerate(self.problem_ids)}
        identity = json.loads(json.dumps({**identity, "problem_ids": list(self.problem_ids)}))
        manifest = self.folder / MANIFEST
        if manifest.exists():
            _check_manifest(manifest, identity)
        else:
            write_atomically(manifest, json.dumps({"identity": identity}, indent=1))

    def path(self, step: int, problem_id: str) -> Path:
        """Where the pool of a prompt lies."""
        return self.folder / f"step-{step:06d}" / f"{self._place[problem_id]:05d}.parquet"

    def missing(self, step: int) -> list[str]:
        """Prompts that have no pool at this step, in order."""
        return [problem_id for problem_id in self.problem_ids if not self.path(step, problem_id).exists()]

    def write(self, pool: PromptPool) -> None:
        """Store the pool of one prompt: all of it, or nothing if this is interrupted."""
        rows = {
            "token_ids": [list(completion.token_ids) for completion in pool.completions],
            "log_probs": [list(completion.log_probs) for completion in pool.completions],
            "text": [completion.text for completion in pool.completions],
            "finished": [completion.finished for completion in pool.completions],
            "reward": pool.rewards,
        }
        about = _about(pool.step, pool.problem_id) | {"checkpoint": pool.checkpoint}
        table = pa.table(rows, schema=SCHEMA.with_metadata(about))
        buffer = io.BytesIO()
        pq.write_table(table, buffer, compression="zstd", write_page_checksum=True)
        write_atomically(self.path(pool.step, pool.problem_id), buffer.getvalue())

    def read(self, step: int, problem_id: str) -> PromptPool:
        """The pool of one prompt.

        Raises FileNotFoundError if it was not sampled yet.
        Raises ValueError if the file is damaged, or belongs to another prompt or step.
        """
        path = self.path(step, problem_id)
        try:
            table = pq.read_table(io.BytesIO(path.read_bytes()), page_checksum_verification=True)
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{path}: no pool of {problem_id} at step {step}; run the stage 'pools' first."
            ) from None
        except (pa.ArrowException, OSError) as error:
            raise ValueError(
                f"{path}: damaged ({error}); remove the file, and the stage 'pools' samples it again."
            ) from None
        about = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
        for key, value in _about(step, problem_id).items():
            if about.get(key) != value:
                raise ValueError(f"{path}: {key} is {about.get(key)!r}, not {value!r}; remove the file.")
        columns = table.to_pydict()
        completions = tuple(
            Completion(tuple(ids), tuple(log_probs), text, finished)
            for ids, log_probs, text, finished in zip(
                *(columns[name] for name in ("token_ids", "log_probs", "text", "finished")), strict=True
            )
        )
        return PromptPool(step, about["checkpoint"], problem_id, completions, np.array(columns["reward"], dtype=float))

    def rewards(self, step: int, size: int) -> np.ndarray:
        """The first ``size`` rewards of every prompt at a step, shape (P, size).

        Raises FileNotFoundError, ValueError: As `read`; also if a pool holds fewer.
        """
        found = {problem_id: self.read(step, problem_id).rewards for problem_id in self.problem_ids}
        for problem_id, own in found.items():
            if len(own) < size:
                raise ValueError(f"the pool of {problem_id} at step {step} has {len(own)} completions, not {size}.")
        return np.stack([own[:size] for own in found.values()])


def _about(step: int, problem_id: str) -> dict[str, str]:
    return {"step": str(step), "problem_id": problem_id}


def _check_manifest(path: Path, identity: Mapping[str, Any]) -> None:
    there = json.loads(path.read_text())["identity"]
    differing = sorted(key for key in identity.keys() | there.keys() if identity.get(key) != there.get(key))
    if differing:
        was, now = ({key: part.get(key) for key in differing} for part in (there, identity))
        raise ValueError(
            f"{path}: these pools were made with other settings ({', '.join(differing)}): {_short(was)} there, "
            f"{_short(now)} here. Name another folder, or remove this one."
        )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= LONGEST else text[:LONGEST] + "..."
