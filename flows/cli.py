"""The `rangeline` command: every flow as a command, run in this process with no server needed.

Exit codes: 0 done, 1 unexpected failure, 2 bad input or settings, 3 a model, judge or update failed, 4 coverage or
overlap alarm, 5 a checkpoint or artifact does not match its hash, 6 an outside tool failed, 7 the disk is full,
130 interrupted, 143 stopped by SIGTERM.
"""

from typing import Annotated

import typer

from flows import cli_operations, cli_results, cli_stages, cli_start, judge_cli
from flows.cli_manners import take_manner
from flows.cli_session import QuietOption

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help=__doc__,
)
app.add_typer(cli_stages.app)
app.add_typer(cli_results.app)
app.add_typer(cli_operations.app)
app.add_typer(cli_start.app)
app.add_typer(judge_cli.app, name="judge")


@app.callback()
def options(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="More log lines, and those of the tools")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON objects on standard output, one a line")] = False,
    quiet: QuietOption = False,
) -> None:
    """Take the options that stand before a command."""
    take_manner(verbose=verbose, as_json=as_json, quiet=quiet)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
