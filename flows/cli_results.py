"""Commands that measure: policies on prompts and benchmarks, rewards against the truth, methods side by side."""

from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli_manners import manner, say, say_object, say_table
from flows.cli_session import (
    ConfigOption,
    DebugOption,
    QuietOption,
    SetOption,
    WorkspaceOption,
    in_workspace,
)
from rangeline.config import PipelineConfig
from rangeline.errors import ConfigError
from rangeline.stages.workspace import Workspace

app = typer.Typer()


@app.command()
def evaluate(  # noqa: PLR0913 - one argument an option
    policies: Annotated[list[str] | None, typer.Argument(help="'warmup', run names or checkpoint folders")] = None,
    workspace: WorkspaceOption = Path(),
    config: ConfigOption = None,
    assignments: SetOption = None,
    policy: Annotated[
        list[str] | None, typer.Option("--policy", help="A policy or model: folder, package:<name> or Hub name")
    ] = None,
    benchmarks: Annotated[str | None, typer.Option("--benchmarks", help="Names such as gsm8k,mmlu")] = None,
    preset: Annotated[str | None, typer.Option("--preset", help="A paper's table: range-grpo, rlpr or rrpo")] = None,
    samples: Annotated[int | None, typer.Option("--n", help="Completions of each problem")] = None,
    ks: Annotated[str | None, typer.Option("--k", help="Values of k for pass@k, such as 1,2,4")] = None,
    max_problems: Annotated[int | None, typer.Option("--max-problems", help="Only the first problems of each")] = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", help="Longest completion in tokens")] = None,
    temperature: Annotated[float | None, typer.Option("--temperature", help="Of sampling; 0 is greedy")] = None,
    quiet: QuietOption = False,
    debug: DebugOption = False,
) -> None:
    """Evaluate policies on held-out prompts, on benchmarks or on a paper's table; compare the first with the last."""
    names = (*(policies or ()), *(policy or ()))
    options = {"samples": samples, "max_problems": max_problems, "max_tokens": max_tokens, "temperature": temperature}

    def on_benchmarks(place: Workspace, settings: PipelineConfig) -> None:
        from flows.cli_benchmarks import counts, evaluate_on_benchmarks, words

        asked = {**options, "benchmarks": words(benchmarks), "preset": preset, "pass_at": counts(ks)}
        evaluate_on_benchmarks(place.root, names, asked)

    def on_pool(place: Workspace, settings: PipelineConfig) -> None:
        from flows.evaluate_policy import EvaluateRequest
        from flows.evaluate_policy import evaluate as flow

        given = [name for name, value in {**options, "k": ks}.items() if value is not None]
        if given:
            msg = f"'{given[0]}' must go with --benchmarks or --preset; got neither. Use --set evaluate.{given[0]}=..."
            raise ConfigError(msg)
        asked = EvaluateRequest(workspace=str(place.root), policies=names or ("warmup",), evaluate=settings.evaluate)
        for name, result in flow(asked)["results"].items():
            if manner().as_json:
                say_object({"policy": name, "folder": result.folder, "domains": result.metrics})
                continue
            say(f"{name}: {result.folder}")
            say_table([(domain, _accuracy(values)) for domain, values in result.metrics.items()])

    work = on_benchmarks if benchmarks or preset else on_pool
    in_workspace(work, workspace, config=config, assignments=assignments, quiet=quiet, debug=debug)


@app.command()
def rescore(
    folder: Annotated[Path, typer.Argument(help="Folder of a finished benchmark, as evaluate prints it")],
    workspace: WorkspaceOption = Path(),
    debug: DebugOption = False,
) -> None:
    """Score old completions with the present checkers, without sampling, and say what changed."""

    def work(place: Workspace, settings: PipelineConfig) -> None:
        from flows.cli_benchmarks import say_rescored
        from tasks.evaluation import rescore_benchmark

        say_rescored(rescore_benchmark.fn(str(place.root), str(folder)))

    in_workspace(work, workspace, quiet=True, debug=debug, flows=False)


def _accuracy(values: dict[str, Any]) -> str:
    mean = values["average"]
    if mean["value"] is None:
        return "-"
    return f"{mean['value']:.3f} [{mean['lower']:.3f}, {mean['upper']:.3f}] over {mean['num_prompts']} prompts"


@app.command("reward-quality")
def reward_quality(
    policy: Annotated[str, typer.Argument(help="'warmup', a run's name or a checkpoint folder")] = "warmup",
    sources: Annotated[str, typer.Option("--sources", help="Reward sources, parted by commas")] = (
        "verifier,reference_probability,majority,self_certainty"
    ),
    workspace: WorkspaceOption = Path(),
    config: ConfigOption = None,
    assignments: SetOption = None,
    quiet: QuietOption = False,
    debug: DebugOption = False,
) -> None:
    """Tell how well rewards rank right answers above wrong ones, and whether they follow length or entropy."""

    def work(place: Workspace, settings: PipelineConfig) -> None:
        from tasks.evaluation import measure_reward_quality

        names = tuple(name.strip() for name in sources.split(",") if name.strip())
        result = measure_reward_quality.fn(str(place.root), settings, policy, names)
        if manner().as_json:
            say_object(result)
            return
        say(f"{'suite':<20} {'source':<24} {'AUC':>6} {'right':>6} {'wrong':>6} {'missing':>8} length entropy")
        for row in result.rows:
            numbers = (row["auc"], row["length_correlation"], row["entropy_correlation"])
            auc, length, entropy = ("-" if value is None else f"{value:.3f}" for value in numbers)
            say(
                f"{row['suite']:<20} {row['source']:<24} {auc:>6} {row['num_right']:>6} {row['num_wrong']:>6} "
                f"{row['missing_share']:>8.1%} {length:>6} {entropy:>7}"
            )
        say(f"length, entropy: mean Spearman coefficient inside a prompt; all numbers in {result.folder}")

    in_workspace(work, workspace, config=config, assignments=assignments, quiet=quiet, debug=debug, flows=False)


@app.command()
def compare(  # noqa: PLR0913 - one argument an option
    plan: Annotated[
        Path | None, typer.Argument(help="Plan file, such as configs/compare/table1.yaml", exists=True)
    ] = None,
    rewards: Annotated[
        str | None, typer.Option("--rewards", help="In place of a plan: reward sources parted by commas, or all")
    ] = None,
    iterations: Annotated[
        int | None, typer.Option("--iterations", min=1, help="Of each run of the named sources")
    ] = None,
    workspace: WorkspaceOption = Path(),
    config: ConfigOption = None,
    assignments: SetOption = None,
    processes: Annotated[int, typer.Option("--processes", "-p", min=0, help="Runs at once; 0: one a core")] = 0,
    copy_to: Annotated[Path | None, typer.Option("--copy-to", help="Folder that also gets table and curves")] = None,
    quiet: QuietOption = False,
    debug: DebugOption = False,
) -> None:
    """Compare methods over seeds on the same data, start and sampling streams; the same command resumes."""

    def work(place: Workspace, settings: PipelineConfig) -> None:
        from flows.compare_runs import CompareRequest
        from flows.compare_runs import compare as flow
        from tasks.comparison import plan_comparison

        over, given = tuple(assignments or ()), str(plan.resolve()) if plan else None
        chosen = plan_comparison(
            str(place.root), given, rewards, iterations=iterations, assignments=over, config=settings
        )
        asked = CompareRequest(
            workspace=str(place.root),
            plan=chosen,
            processes=processes,
            copy_to=str(copy_to.resolve()) if copy_to else None,
            settings=over if given else (),
        )
        results = flow(asked)
        page = Path(results["page"])
        if rewards:
            say(page.with_name("table.md").read_text(encoding="utf-8"))
        say("\n".join(results["findings"]))
        if manner().as_json:
            say_object({**results, "table": page.with_name("table.json")})
        else:
            say_table([("page", str(page)), ("table", str(page.with_name("table.md")))])
        if failures := results["failures"]:
            typer.secho(f"{len(failures)} failed: {'; '.join(sorted(failures))}", err=True)
            if rewards != "all":  # of all sources, those that suit the data are asked for
                raise typer.Exit(3)

    in_workspace(work, workspace, config=config, quiet=quiet, debug=debug)
