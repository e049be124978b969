"""The runs of the paper on verl and Ray: the command, checked by verl itself, and the data it reads."""

import contextlib
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

import llm_experiments
from kaestat.core.storage import write_atomically
from llm_experiments.config import checked, read_yaml
from llm_experiments.training.config import RunConfig, run_label
from llm_experiments.training.disk import check_disk, disk_use
from llm_experiments.training.experiment import Variant, load_experiment
from llm_experiments.training.identity import IDENTITY, identity, refuse_others
from llm_experiments.training.shapes import shape_of
from llm_experiments.training.verl.command import ADAPTER, ROLLOUTS, VALIDATION, Machines, Places, verl_overrides
from llm_experiments.training.verl.data import prepare_data
from llm_experiments.training.verl.end_tokens import FILE, write_generation_config

MAIN = "verl.trainer.main_ppo"
ROOT = Path(llm_experiments.__file__).resolve().parents[1]
CONFIGS = Path(__file__).parents[2] / "configs" / "training"
SCRIPT = "launch.sh"


def launch_verl(
    config: Annotated[str, typer.Argument(help="One of llm_experiments/configs/training by name, or a YAML file.")],
    method: Annotated[str | None, typer.Option(help="In place of the file's.")] = None,
    seed: Annotated[int | None, typer.Option(help="In place of the file's.")] = None,
    reuse: Annotated[
        int | None, typer.Option(help="J in place of the file's: 1 for a method without the paper's schedule.")
    ] = None,
    weights: Annotated[str | None, typer.Option(help="none, length or score_norm, in place of the file's.")] = None,
    scale: Annotated[str | None, typer.Option(help="none, group_std or batch_std, in place of the file's.")] = None,
    gpus: Annotated[int, typer.Option(help="GPUs of each machine.")] = 4,
    nodes: Annotated[int, typer.Option(help="Machines of the Ray cluster.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="Folder of data, checkpoints and logs, shared by all machines.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(envvar="KAESTAT_DATA", help="Folder of local files of the tasks, such as gsm8k_train.jsonl."),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="A further option of verl, key=value; may be given several times.")
    ] = None,
    runs: Annotated[Path, typer.Option(help="Folder of runs, without --out.")] = Path("runs"),
    results: Annotated[Path, typer.Option(help="Folder of result tables.")] = Path("results"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and write everything; train nothing.")] = False,
) -> int:
    """Train on verl and Ray: write the data and the whole command, check it against verl, and run it.

    Interrupt it at any moment, and run it again: verl goes on from its last checkpoint.
    """
    run = verl_run_config(config, method=method, seed=seed, reuse=reuse, weights=weights, scale=scale)
    machines = Machines(gpus, nodes)
    folder = (out or runs / "verl" / run.name / run_label(run)).absolute()
    overrides = [*verl_overrides(run, machines, places_in(folder)), *(option or [])]
    if not dry_run and find_spec("verl") is None:
        raise ModuleNotFoundError(
            "verl is not installed in this environment: pip install -e . -r llm_experiments/requirements/verl-gpu.txt, "
            "or write the command alone with --dry-run."
        )
    run.opening_estimator()
    verdict = check_with_verl(overrides)
    shape = shape_of(run.model)
    disk = [] if shape is None else [check_disk(disk_use(run, shape, backend="verl"), folder)]
    _claim(folder, run, machines)
    files = prepare_data(run, folder / "data", data=data)
    write_atomically(folder / SCRIPT, script(overrides))
    ends = _end_tokens(run, folder, dry_run=dry_run)
    tested = f"{files.n_test} to test on" if files.n_test else "no test along the run"
    print(
        f"{files.n_train} problems to train on, {tested}: {files.train.parent}\n{verdict}\nCommand: {folder / SCRIPT}",
        ends,
        *disk,
        sep="\n",
    )
    if dry_run:
        return 0
    code = run_command([sys.executable, "-m", MAIN, *overrides])
    if code == 0:
        from llm_experiments.training.collect import collect
        from llm_experiments.training.verl.records import write_tables

        write_tables(folder)
        place = folder
        if out is None:  # beside the experiment's other runs
            place = results / "training" / run.name
            collect(folder.parent, place)
        print(f"Results: {place}")
    return code


def verl_run_config(
    config: str | Path,
    *,
    method: str | None = None,
    seed: int | None = None,
    reuse: int | None = None,
    weights: str | None = None,
    scale: str | None = None,
) -> RunConfig:
    """The configuration of a run by name or path, with settings in place of the file's.

    Raises FileNotFoundError if there is no such configuration.
    Raises ValueError if a setting is wrong; see `load_experiment`.
    """
    path = CONFIGS / f"{config}.yaml" if (CONFIGS / f"{config}.yaml").is_file() else Path(config)
    if not path.is_file():
        known = ", ".join(sorted(each.stem for each in CONFIGS.glob("*.yaml")))
        raise FileNotFoundError(f"{config}: neither a YAML file nor one of the configurations {known}.")
    content = read_yaml(path)
    own = content.get("method", RunConfig.model_fields["method"].default)
    variant = {"method": method or own, "weights": weights, "scale": scale, "reuse": reuse}
    (run,) = load_experiment(
        path, [checked(Variant, str(path), variant)], [content.get("seed", 0) if seed is None else seed]
    )
    folder = Path(run.model.name).expanduser()
    if folder.is_dir():  # workers run elsewhere
        run = run.model_copy(update={"model": run.model.model_copy(update={"name": str(folder.resolve())})})
    return run


def places_in(folder: Path) -> Places:
    """Where a run's files lie in its folder."""
    path = dict.fromkeys([str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])
    modules = dict.fromkeys([*filter(None, os.environ.get("VERL_USE_EXTERNAL_MODULES", "").split(",")), ADAPTER])
    return Places(
        train=folder / "data" / "train.parquet",
        test=folder / "data" / "test.parquet",
        checkpoints=folder / "checkpoints",
        tensorboard=folder / "tensorboard",
        rollouts=folder / ROLLOUTS,
        validation=folder / VALIDATION,
        generation=folder / "generation",
        hydra=folder / "hydra",
        python_path=tuple(path),
        modules=tuple(modules),
    )


def check_with_verl(overrides: list[str]) -> str:
    """Compose the options with verl's own configuration and put them through its checks and ours.

    Returns: What was checked, in a sentence.
    Raises ValueError if verl, or our estimator in it, refuses them.
    """
    if find_spec("verl") is None:
        return "Not checked against verl: it is not installed here."
    import verl
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    from kaestat.integrations.verl.options import Options

    try:
        config = composed(overrides)
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that no critic is used
            validate_config(config, need_reference_policy(config), need_critic(config))
        options = Options.read(config.algorithm.adv_estimator.removeprefix("kaestat_"), config.algorithm)
        replace(options, prior=None).estimator()  # the file with the prior is written afterwards
    except (HydraException, OmegaConfBaseException, AssertionError, ValueError) as error:
        raise ValueError(f"verl {verl.__version__} refuses these options: {error}") from error
    return f"Checked by verl {verl.__version__}."


def composed(overrides: list[str]) -> Any:
    """verl's own configuration with the options of a command, every reference resolved."""
    import verl
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    with initialize_config_dir(str(Path(verl.__file__).parent / "trainer" / "config"), version_base=None):
        config = compose("ppo_trainer", overrides=overrides)
    OmegaConf.resolve(config)
    return config


def script(overrides: list[str]) -> str:
    """The command as a shell script."""
    lines = [f"exec python -m {MAIN}", *(shlex.quote(each) for each in overrides)]
    return "#!/usr/bin/env bash\n" + " \\\n  ".join(lines) + "\n"


def _end_tokens(config: RunConfig, folder: Path, *, dry_run: bool) -> str:
    """Write the file of the tokens that end a completion; a dry run goes on without the tokenizer, and says so."""
    path = places_in(folder).generation
    try:
        ends = write_generation_config(config.model, path, fetch=not dry_run)
    except OSError:
        if not dry_run:
            raise
        return f"End tokens: {path / FILE} is written at launch; the tokenizer of {config.model.name} is not here."
    return f"Completions end at the tokens {', '.join(map(str, ends))}: {path / FILE}"


def _claim(folder: Path, config: RunConfig, machines: Machines) -> None:
    """Refuse to go on with the checkpoints of another run: their history would be another one's."""
    path = folder / IDENTITY
    # verl's checkpoints are cut into as many parts as there are GPUs.
    mine = identity(config) | {"processes": machines.processes}
    started = (folder / "checkpoints" / "latest_checkpointed_iteration.txt").exists()
    if started and path.exists():
        refuse_others(folder, mine, "Give another --out, or remove the folder.")
    write_atomically(path, json.dumps(mine, indent=1))


def run_command(command: Sequence[str]) -> int:
    """Run a command to its end. Interrupts from the keyboard reach it by themselves, and it is given time to end."""
    with subprocess.Popen(command) as process:
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        while True:
            try:
                code = process.wait()
            except KeyboardInterrupt:
                continue
            return code if code >= 0 else 128 - code  # ended by a signal, as shells tell it
