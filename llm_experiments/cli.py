"""Commands of ``python -m llm_experiments``."""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, get_args

import typer
from rich.console import Console

from llm_experiments.config import checked, load
from llm_experiments.console import print_table, say, timed_progress
from llm_experiments.diagnose.config import Config
from llm_experiments.evaluation.config import EvaluationConfig
from llm_experiments.paper.command import paper
from llm_experiments.training.config import Scale, Weights
from llm_experiments.training.diagnostics import Prompts, diagnostics_of, gather
from llm_experiments.training.verl.launch import launch_verl

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)

FAILED, USAGE, INTERRUPTED = 1, 2, 130  # exit codes
UsageError, Abort = typer.BadParameter.__base__, typer.Abort  # typer exports the first under no name of its own

Data = Annotated[Path | None, typer.Option(envvar="KAESTAT_DATA", help="Folder of local files, such as math500.jsonl.")]
STAGES = ("pools", "value", "gradient")  # of the diagnostic, each reading what those before it have written


@app.callback()
def _commands() -> None:
    """Diagnostics and evaluation of real language models."""


@app.command()
def diagnose(
    config: Annotated[Path | None, typer.Option(help="YAML file, such as llm_experiments/configs/tiny.yaml.")] = None,
    run: Annotated[Path | None, typer.Option(help="Folder of a training run with a section diagnose, instead.")] = None,
    stage: Annotated[
        Literal["pools", "value", "gradient", "all"], typer.Option(help="What to do; all does one after the other.")
    ] = "all",
    runs: Annotated[Path, typer.Option(help="Folder of models, checkpoints and pools.")] = Path("runs"),
    results: Annotated[Path, typer.Option(help="Folder of result tables, a run's in NAME below it.")] = Path("results"),
    data: Data = None,
    prompts: Annotated[
        Prompts | None, typer.Option(help="With --run: the minibatch before each step (default with reuse), or random.")
    ] = None,
) -> None:
    """How wrong each baseline's value is, and how noisy the gradient, at the checkpoints of a run.

    Interrupt it at any moment, and run it again: it goes on where it stopped.
    """
    from transformers.utils.logging import disable_progress_bar

    from llm_experiments.diagnose.diagnosis import Diagnosis

    if (config is None) == (run is None):
        raise typer.BadParameter("give either --config, a file of diagnostics, or --run, the folder of a training run.")
    if run is None:
        if prompts is not None:
            raise typer.BadParameter("--prompts goes with --run; a file of diagnostics names its task's own prompts.")
        asked = load(Config, config)
        name, parts = asked.name, {None: asked}
    else:
        name, parts = diagnostics_of(run, data=data, prompts=prompts)
    disable_progress_bar()  # those of loading and saving weights; ours tell what matters
    console = Console(stderr=True)
    done: dict[int, Path] = {}
    for step, part in parts.items():
        place = results if step is None else runs
        diagnosis = Diagnosis(part, runs=runs, results=place, progress=partial(timed_progress, console))
        for each in STAGES if stage == "all" else (stage,):
            getattr(diagnosis, each)()
        if step is not None:
            done[step] = diagnosis.results
    if done and stage != "pools":
        gather(done, results / name)
    say(console, f"Results: {results / name}")


@app.command()
def evaluate(
    model: Annotated[str, typer.Option(help="Model folder, hub id, or a preset such as qwen2.5-math-7b.")],
    suite: Annotated[str, typer.Option(help="paper, or sets with commas: math500,aime24:32 (answers each).")] = "paper",
    name: Annotated[str, typer.Option(help="Of the result; by default the last part of the model's.")] = "",
    engine: Annotated[Literal["transformers", "vllm"], typer.Option(help="What samples.")] = "transformers",
    temperature: Annotated[float, typer.Option(help="The paper's is 0.6.")] = 0.6,
    max_new_tokens: Annotated[int, typer.Option(help="Longest answer.")] = 2048,
    batch_size: Annotated[int, typer.Option(help="Answers generated at once.")] = 64,
    dtype: Annotated[
        Literal["float32", "bfloat16"] | None, typer.Option(help="By default bfloat16 on a GPU, float32 without.")
    ] = None,
    chat: Annotated[
        bool | None, typer.Option(help="Use the chat template; by default as the model's run did, or a preset.")
    ] = None,
    system: Annotated[str | None, typer.Option(help="System message; by default as in the model's run.")] = None,
    limit: Annotated[int | None, typer.Option(help="First problems of each set only.")] = None,
    data: Data = None,
    workers: Annotated[int | None, typer.Option(help="Processes that grade; by default one for each core.")] = None,
    seed: Annotated[int, typer.Option(help="Of the answers.")] = 0,
    regrade: Annotated[bool, typer.Option("--regrade", help="Grade stored answers anew; sample nothing.")] = False,
    runs: Annotated[Path, typer.Option(help="Folder of answers.")] = Path("runs"),
    results: Annotated[Path, typer.Option(help="Folder of result tables.")] = Path("results"),
) -> None:
    """Accuracy of a model on sets of problems, with errors that respect problems as clusters.

    Interrupt it at any moment, and run it again: it goes on where it stopped.
    """
    from transformers.utils.logging import disable_progress_bar

    from llm_experiments.evaluation.evaluate import Evaluation
    from llm_experiments.policies.loading import resolve_device
    from llm_experiments.training.identity import prompt_style_beside

    disable_progress_bar()
    console = Console(stderr=True)
    style = {} if chat is False else prompt_style_beside(Path(model))
    config = checked(
        EvaluationConfig,
        "options",
        {
            "name": name or Path(model).name,
            "seed": seed,
            "model": {
                "name": model,
                "dtype": dtype or ("float32" if resolve_device("auto") == "cpu" else "bfloat16"),
                **style,
                **({} if chat is None else {"chat": chat}),
                **({} if system is None else {"system": system}),
            },
            "sampling": {
                "engine": engine,
                "temperature": temperature,
                "max_new_tokens": max_new_tokens,
                "batch_size": batch_size,
            },
            "suite": suite,
            "limit": limit,
            "options": {"workers": workers},
        },
    )
    evaluation = Evaluation(config, data=data, runs=runs, results=results, progress=partial(timed_progress, console))
    table = evaluation.run(regrade=regrade)
    print_table(table)
    say(console, f"Results: {evaluation.results}")


@app.command()
def train(
    config: Annotated[Path, typer.Option(help="YAML file, such as those in llm_experiments/configs/training.")],
    method: Annotated[list[str] | None, typer.Option(help="In place of the file's; several run in turn.")] = None,
    seed: Annotated[list[int] | None, typer.Option(help="In place of the file's; several run in turn.")] = None,
    weights: Annotated[str | None, typer.Option(help=f"With --method: {', '.join(get_args(Weights))}.")] = None,
    scale: Annotated[str | None, typer.Option(help=f"With --method: {', '.join(get_args(Scale))}.")] = None,
    reuse: Annotated[int | None, typer.Option(help="With --method: steps in a row with the same minibatch.")] = None,
    data: Data = None,
    runs: Annotated[Path, typer.Option(help="Folder of models, checkpoints and records.")] = Path("runs"),
    results: Annotated[Path, typer.Option(help="Folder of result tables.")] = Path("results"),
) -> None:
    """Train policies with baselines, on TRL, testing them along the way: all runs of a file, or those asked for.

    Interrupt it at any moment, and run it again: it goes on from the last checkpoint, and skips runs that are done.
    """
    from transformers.utils.logging import disable_progress_bar

    from llm_experiments.training.experiment import Variant, load_experiment

    changes = {"weights": weights, "scale": scale, "reuse": reuse}
    if method is None and any(changes.values()):
        raise ValueError("--weights, --scale and --reuse go with --method: which baseline is to have them?")
    variants = [checked(Variant, "options", {"method": name} | changes) for name in method or []]
    wanted = load_experiment(config, variants, seed or ())
    from llm_experiments.training.collect import collect
    from llm_experiments.training.run import TrainingRun, is_main_process

    disable_progress_bar()
    console = Console(stderr=True)
    for each in wanted:
        talk = {"progress": partial(timed_progress, console), "say": partial(say, console)}
        TrainingRun(each, runs=runs, data=data, **talk).run()
        if not is_main_process():
            continue
        place = Path("training") / each.name
        collect(runs / place, results / place)
        say(console, f"Results: {results / place}")


@app.command()
def study(
    config: Annotated[Path, typer.Option(help="YAML file, such as those in llm_experiments/configs/study.")],
    design: Annotated[list[str] | None, typer.Option(help="Of the file's, instead of all; can be given again.")] = None,
    runs: Annotated[Path, typer.Option(help="Folder of models and single curves.")] = Path("runs"),
    results: Annotated[Path, typer.Option(help="Folder of result tables.")] = Path("results"),
    device: Annotated[
        str, typer.Option(help="cpu, or cuda for large models; auto takes a GPU if there is one.")
    ] = "cpu",
    stack: Annotated[
        int | None, typer.Option(help="Runs trained at once at most, where models fill the memory.", min=1)
    ] = None,
) -> None:
    """Which design learns more from the same number of completions, over many seeds and base models.

    Interrupt it at any moment, and run it again: it goes on where it stopped. Several at once may work on different
    designs.
    """
    import torch

    from llm_experiments.policies.loading import resolve_device
    from llm_experiments.study.config import StudyConfig
    from llm_experiments.study.run import Study

    place = resolve_device(device)
    torch.set_num_threads(1)  # the matrices are small: more threads cost more than they bring
    if place != "cpu":
        torch.set_float32_matmul_precision("high")
    console = Console(stderr=True)
    progress = partial(timed_progress, console)
    pieces = Study(load(StudyConfig, config), runs=runs, results=results, progress=progress, device=place, stack=stack)
    pieces.compare(design)
    say(console, f"Results: {pieces.results}")


@app.command()
def law(
    config: Annotated[Path, typer.Option(help="YAML file, such as those in llm_experiments/configs/law.")],
    cell: Annotated[list[str] | None, typer.Option(help="Of the file's, instead of all; can be given again.")] = None,
    data: Data = None,
    runs: Annotated[Path, typer.Option(help="Folder of models, completions and norms.")] = Path("runs"),
    results: Annotated[Path, typer.Option(help="Folder of result tables.")] = Path("results"),
) -> None:
    """How much right and wrong answers weigh in a policy's gradient, and which baselines that is best for.

    Interrupt it at any moment, and run it again: it goes on where it stopped.
    """
    from transformers.utils.logging import disable_progress_bar

    from llm_experiments.law.config import load_law
    from llm_experiments.law.measurement import LawMeasurement

    asked = load_law(config)
    disable_progress_bar()
    console = Console(stderr=True)
    measured = LawMeasurement(asked, runs=runs, results=results, data=data, progress=partial(timed_progress, console))
    _, predicted = measured.run(cell)
    print_table(predicted[predicted["rank"].notna()])
    say(console, f"Results: {measured.results}")


@app.command()
def compare(
    evaluation: Annotated[Path, typer.Argument(help="Results folder of an evaluation.")],
    reference: Annotated[Path, typer.Argument(help="Results folder of the one to compare with.")],
) -> None:
    """Difference of two models' accuracies, paired problem by problem, with 95 % intervals."""
    from llm_experiments.evaluation.tables import comparison_table

    print_table(comparison_table(evaluation, reference))


app.command("launch-verl")(launch_verl)
app.command()(paper)


def main() -> None:
    """Entry point: faults of the user's input are reported in one line, without a trace."""
    try:
        sys.exit(app(prog_name="python -m llm_experiments", standalone_mode=False) or 0)
    except UsageError as error:
        sys.exit(_fail(f"{error.format_message().rstrip('.')}. See python -m llm_experiments --help.", USAGE))
    except (ValueError, OSError, ImportError) as error:
        sys.exit(_fail(str(error), FAILED))
    except (KeyboardInterrupt, Abort):
        sys.exit(_fail("interrupted; run it again to go on.", INTERRUPTED))


def _fail(message: str, code: int) -> int:
    print(f"error: {message}", file=sys.stderr)
    return code
