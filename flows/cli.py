"""The `rangeline` command: every flow as a command, run in this process with no server needed.

Exit codes: 0 done, 1 unexpected failure, 2 bad input or settings, 3 a model, judge or update failed, 4 coverage or
overlap alarm, 5 a checkpoint or artifact does not match its hash, 6 an outside tool failed, 7 the disk is full,
130 interrupted, 143 stopped by SIGTERM.
"""

import logging
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from flows import cli_start, judge_cli
from flows.cli_manners import friendly as friendly
from flows.cli_manners import manner, require_answerable, say, say_object, say_result, say_table, take_manner
from rangeline.config import PipelineConfig
from rangeline.errors import ConfigError
from rangeline.full_disk import FullDiskTold, require_writable
from rangeline.stages.workspace import PROJECT_HOME, Workspace, choose_workspace
from tasks.processes import TELEMETRY_OFF
from tasks.server import prefect_server

ENVIRONMENT = {
    **TELEMETRY_OFF,
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    # Spinning threads starve each other as soon as anything else runs on these cores.
    "OMP_WAIT_POLICY": "PASSIVE",
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
    "TRANSFORMERS_VERBOSITY": "error",
}
"""No telemetry, no chatter of tools, threads that wait politely; whoever sets one of these keeps it."""

_EXAMPLES = {"reach": "calibration:1", "export": "openlineage"}

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help=__doc__,
)
app.add_typer(cli_start.app)
app.add_typer(judge_cli.app, name="judge")

WorkspaceOption = Annotated[Path, typer.Option("--workspace", "-w", help="Folder with params.yaml")]
ConfigOption = Annotated[Path | None, typer.Option("--config", "-c", help="Settings laid over params.yaml")]
SetOption = Annotated[list[str] | None, typer.Option("--set", "-s", help="One setting, such as train.iterations=3")]
RunOption = Annotated[str | None, typer.Option("--run", help="Name of the run; by default made from the settings")]
RewardOption = Annotated[str | None, typer.Option("--reward", help="Reward source, such as verifier or majority")]
EngineOption = Annotated[str | None, typer.Option("--engine", help="What samples: transformers or vllm")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Only warnings and results")]


@app.callback()
def options(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="More log lines, and those of the tools")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON objects on standard output, one a line")] = False,
    quiet: QuietOption = False,
) -> None:
    """Take the options that stand before a command."""
    take_manner(verbose=verbose, as_json=as_json, quiet=quiet)


def prepare_environment(root: Path) -> None:
    """Set what the tools read from the environment, before any of them is imported."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("PREFECT_HOME", str(root.resolve() / ".prefect"))


def open_console(*, quiet: bool) -> None:
    """Let the project's own log lines appear on standard error."""
    from rich.logging import RichHandler

    from tasks.reporting import console

    logger = logging.getLogger("rangeline")
    logger.handlers[:] = [RichHandler(console=console, show_path=False, show_level=False, markup=False)]
    logger.setLevel(logging.WARNING if quiet or manner().quiet else logging.DEBUG if manner().verbose else logging.INFO)
    logger.propagate = False
    # Prefect's connection for events says on its own when a server was started again, with a traceback.
    logging.getLogger("websockets").setLevel(logging.CRITICAL)
    # What MLflow's store logs with a traceback, it raises too, and that is told in one line.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)


def in_workspace(  # noqa: PLR0913 - one argument an option
    work: Callable[[Workspace, PipelineConfig], None],
    workspace: Path,
    *,
    config: Path | None = None,
    assignments: list[str] | None = None,
    quiet: bool = False,
    debug: bool = False,
    flows: bool = True,
    trains: bool = False,
) -> None:
    """Choose the workspace and settings, then do the work there, with a Prefect server and errors made friendly."""
    with friendly(debug=debug):
        place, settings = choose_workspace(workspace, config_file=config, assignments=assignments or [])
        if trains:
            require_answerable(settings.train.on_alarm)
        prepare_environment(workspace)
        if flows:
            require_writable(place.root)
        with prefect_server() if flows else nullcontext():
            open_console(quiet=quiet)  # imports prefect, which reads the server's address then
            if place.root != workspace.resolve():
                logging.getLogger("rangeline").info("settings differ from params.yaml: working in %s", place.root)
            remedy = "What is whole stays whole: make room, and give the same command again."
            with FullDiskTold(place.root, "this command", remedy):
                work(place, settings)


def say_pages(place: Workspace, page: Path, run: str) -> None:
    """Print where the results lie and how to open the pages of Prefect and MLflow."""
    from rangeline.stages.run import RunFolder, last_complete

    folder = RunFolder(place.run(run))
    done, _ = last_complete(folder)
    here = Path.cwd().resolve()

    def short(path: Path) -> str:
        return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)

    option = "" if place.root == here else f" --workspace {short(place.root)}"
    command = short(Path(sys.executable).with_name("rangeline").absolute())
    say_table(
        [
            ("report page", short(page)),
            ("manifest", short(folder.iteration(done) / "manifest.json")),
            ("audit it", f"{command} audit {run}{option}"),
            ("Prefect page", f"{command} serve prefect"),
            ("MLflow page", f"{command} serve mlflow{option}"),
        ]
    )


@app.command()
def demo(
    workspace: WorkspaceOption = Path(),
    config: ConfigOption = None,
    assignments: SetOption = None,
    run: RunOption = None,
    quiet: QuietOption = False,
    debug: DebugOption = False,
) -> None:
    """Run everything in order: prepare, warmup, calibrate, train, evaluate, report, audit.

    With RANGELINE_POLICY=<Hub name or folder> and --config FILE it runs on your own model and data.
    """

    def work(place: Workspace, settings: PipelineConfig) -> None:
        from flows.audit_lineage import AuditRequest, audit
        from flows.run_nightly import run_pipeline

        result = run_pipeline(str(place.root), settings, run)
        name = str(result["run"])
        matching = audit(AuditRequest(workspace=str(place.root), target=name))
        say(f"\nRun {name}: policy version {result['version']} is {result['alias']}; {matching} files verified.")
        say_table(list(result["table"]))  # type: ignore[call-overload]
        say_pages(place, Path(str(result["page"])), name)

    in_workspace(work, workspace, config=config, assignments=assignments, quiet=quiet, debug=debug, trains=True)


@app.command()
def prepare(
    workspace: WorkspaceOption = Path(),
    config: ConfigOption = None,
    assignments: SetOption = None,
    force: Annotated[bool, typer.Option("--force", help="Make everything again")] = False,
    quiet: QuietOption = False,
    debug: DebugOption = False,
) -> None:
    """Check prompts and split them into disjoint pools; version them in DVC."""

    def work(place: Workspace, settings: PipelineConfig) -> None:
        from flows.prepare_data import PrepareRequest
        from flows.prepare_data import prepare as flow

        counts = flow(PrepareRequest(workspace=str(place.root), force=force))
        if manner().as_json:
            say_object({"prompts": counts})
        else:
            say_table([(name, f"{count} prompts") for name, count in counts.items()])

    in_workspace(work, workspace, config=config, assignments=assignments, quiet=quiet, debug=debug)


@app.command()
def warmup(
    workspace: WorkspaceOption = Path(),
    config: ConfigOption = None,
    assignments: SetOption = None,
    quiet: QuietOption = False,
    debug: DebugOption = False,
) -> None:
    """Train the starting policy on the labelled warm-up pool."""

    def work(place: Workspace, settings: PipelineConfig) -> None:
        from flows.common import DataRequest
        from flows.warm_up_policy import warmup as flow

        flow(DataRequest(workspace=str(place.root)))

    in_workspace(work, workspace, config=config, assignments=assignments, quiet=quiet, debug=debug)


@app.command()
def calibrate(
    workspace: WorkspaceOption = Path(),
    config: ConfigOption = None,
    assignments: SetOption = None,
    quiet: QuietOption = False,
    debug: DebugOption = False,
) -> None:
    """Judge the source and calibration pools, fit the scorer, freeze the calibration set."""

    def work(place: Workspace, settings: PipelineConfig) -> None:
        from flows.calibrate_judge import CalibrateRequest
        from flows.calibrate_judge import calibrate as flow

        flow(CalibrateRequest(workspace=str(place.root), alpha=settings.intervals.alpha))

    in_workspace(work, workspace, config=config, assignments=assignments, quiet=quiet, debug=debug)


@app.command()
def anchors(
    workspace: WorkspaceOption = Path(),
    config: ConfigOption = None,
    assignments: SetOption = None,
    quiet: QuietOption = False,
    debug: DebugOption = False,
) -> None:
    """Make the anchors and the metric head of reward source anchor_contrast."""

    def work(place: Workspace, settings: PipelineConfig) -> None:
        from flows.common import DataRequest
        from flows.make_anchors import anchors as flow

        flow(DataRequest(workspace=str(place.root)))

    in_workspace(work, workspace, config=config, assignments=assignments, quiet=quiet, debug=debug)


@app.command()
def train(  # noqa: PLR0913 - one argument an option
    workspace: WorkspaceOption = Path(),
    config: ConfigOption = None,
    assignments: SetOption = None,
    run: RunOption = None,
    reward: RewardOption = None,
    engine: EngineOption = None,
    processes: Annotated[
        int | None, typer.Option("--processes", "-p", min=1, help="One a GPU; processes.count")
    ] = None,
    quiet: QuietOption = False,
    debug: DebugOption = False,
) -> None:
    """Train the policy; the same command resumes a run that was interrupted."""
    named = {"reward.source": reward, "rollout.engine": engine, "processes.count": processes}
    assignments = [*(assignments or []), *(f"{name}={value}" for name, value in named.items() if value)]

    def work(place: Workspace, settings: PipelineConfig) -> None:
        from flows.run_nightly import request_of
        from flows.train_policy import train as flow

        result = flow(request_of(str(place.root), settings, run))
        if manner().as_json:
            say_object(result)
        else:
            say_table([(name, str(value)) for name, value in result.items()])

    in_workspace(work, workspace, config=config, assignments=assignments, quiet=quiet, debug=debug, trains=True)


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


@app.command()
def nightly(
    workspace: WorkspaceOption = Path(),
    inbox: Annotated[str, typer.Option("--inbox", help="Folder in which new prompts arrive")] = "data/inbox",
    quiet: QuietOption = False,
    debug: DebugOption = False,
) -> None:
    """Do the night's work now: new data, calibration, training, evaluation, promotion through the gates."""

    def work(place: Workspace, settings: PipelineConfig) -> None:
        from flows.run_nightly import NightlyRequest
        from flows.run_nightly import nightly as flow

        outcome = str(flow(NightlyRequest(workspace=str(place.root), inbox=inbox)))
        say_result({"outcome": outcome}, outcome)

    in_workspace(work, workspace, quiet=quiet, debug=debug, trains=True)


@app.command()
def audit(
    target: Annotated[str, typer.Argument(help="A run, folder or model version; or all, reach or export")],
    what: Annotated[
        str | None,
        typer.Argument(help="Of reach: a prompt id, calibration:N, judge digest or file; of export: openlineage, ..."),
    ] = None,
    drawing: Annotated[str, typer.Option("--as", help="Of reach: tree, json, mermaid or html")] = "tree",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write in place of printing")] = None,
    workspace: WorkspaceOption = Path(),
    debug: DebugOption = False,
) -> None:
    """Verify by hash what a model came from (exit 5 when a byte differs), or tell what `reach WHAT` went into.

    `audit all` verifies the whole workspace; `audit export openlineage|prov|croissant` writes it for other tools.
    """

    def work(place: Workspace, settings: PipelineConfig) -> None:
        from flows.cli_lineage import audit_backwards, say_export, say_reach

        if target in ("reach", "export") and what is None:
            msg = f"'audit {target}' must be told what; got nothing. Give such as: audit {target} {_EXAMPLES[target]}."
            raise ConfigError(msg)
        if target == "reach":
            say_reach(place.root, str(what), drawing, output)
        elif target == "export":
            say_export(place.root, str(what), output)
        else:
            audit_backwards(place.root, target)

    in_workspace(work, workspace, quiet=True, debug=debug, flows=False)


@app.command()
def rollback(
    reason: Annotated[str, typer.Option("--reason", help="Why; it is written into the ledger")],
    workspace: WorkspaceOption = Path(),
    debug: DebugOption = False,
) -> None:
    """Put the policy version back that was champion before, after verifying its checkpoint."""

    def work(place: Workspace, settings: PipelineConfig) -> None:
        from flows.cli_lineage import say_rollback

        say_rollback(place.root, reason)

    in_workspace(work, workspace, debug=debug, flows=False)


@app.command()
def deploy(debug: DebugOption = False) -> None:
    """Put the flows and their automations on the Prefect server that PREFECT_API_URL names."""
    with friendly(debug=debug):
        prepare_environment(Path())
        from tasks.automations import deploy_all

        lines = deploy_all(PROJECT_HOME)
        say_result({"deployed": lines}, "\n".join(lines))


@app.command()
def report(
    run: Annotated[str, typer.Argument(help="Name of the run")],
    workspace: WorkspaceOption = Path(),
    quiet: QuietOption = False,
    debug: DebugOption = False,
) -> None:
    """Write a run's report page, with evaluations before and after."""

    def work(place: Workspace, settings: PipelineConfig) -> None:
        from flows.report_run import ReportRequest
        from flows.report_run import report as flow

        page, table, _ = flow(ReportRequest(workspace=str(place.root), run=run, evaluate=settings.evaluate))
        say_table(table)
        say_pages(place, page, run)

    in_workspace(work, workspace, quiet=quiet, debug=debug)


@app.command()
def serve(
    page: Annotated[str | None, typer.Argument(help="Only one: prefect, mlflow or vllm")] = None,
    model: Annotated[Path | None, typer.Argument(help="vllm: folder of the model it begins with")] = None,
    workspace: WorkspaceOption = Path(),
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port; 4200 for Prefect, 5000 for MLflow, 8000 for vLLM")
    ] = None,
    mlflow_port: Annotated[int, typer.Option(min=1, max=65535, help="Port of MLflow beside Prefect")] = 5000,
    sync_root: Annotated[
        Path | None, typer.Option("--sync-root", help="vllm: the only folder that new weights are loaded from")
    ] = None,
    lora: Annotated[bool, typer.Option("--lora", help="vllm: adapters can be loaded while it runs")] = False,
) -> None:
    """Start Prefect, MLflow, every deployment and a worker, or only one of them, on this machine; Ctrl-C ends them."""
    if page == "vllm":
        from flows.cli_vllm import serve_vllm

        with friendly(debug=False):
            serve_vllm(workspace, model, port=port or 8000, sync_root=sync_root, lora=lora)
        return
    from flows.cli_serve import serve_parts

    with friendly(debug=False):
        prepare_environment(workspace)
        serve_parts(workspace, PROJECT_HOME, page, port, mlflow_port)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
