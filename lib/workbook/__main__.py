"""`python -m workbook run` executes the notebooks without a browser; `compare` puts two runs side by side."""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys

from workbook.errors import WorkbookError
from workbook.run_request import STOPPED, RunRequest
from workbook.runner import run_workbook


def main() -> int:
    """Parse the command line, run, and turn the reader's mistakes into one plain line."""
    parser = argparse.ArgumentParser(
        prog="workbook", description="Execute the workbook's notebooks and write one report."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="execute notebooks, print the headline table, write the HTML report")
    run.add_argument(
        "--profile", help="parameter file: smoke, cpu, gpu, full, or a path (default: gpu or cpu, as found)"
    )
    run.add_argument("--notebooks", nargs="*", default=[], metavar="NN", help="numbers of the notebooks (default: all)")
    run.add_argument("--corpus", help="sample, hub:ORG/NAME, or a path to CSV, Parquet or JSONL")
    run.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", dest="overrides", help="set any parameter")
    run.add_argument("--resume", metavar="RUN", help="go on with a run that was stopped: its name, or latest")
    compare = commands.add_parser("compare", help="two runs side by side: headline numbers, ratio, what changed")
    for letter in ("A", "B"):
        compare.add_argument(
            f"run_{letter.lower()}",
            metavar=f"RUN_{letter}",
            help="name of a run or the beginning of it, a path, latest or previous",
        )
    arguments = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)  # as Ctrl-C: the kernel and its server end before we do
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a path may hold what this terminal cannot show
    try:
        return _do(arguments)
    except WorkbookError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `make run | head`: nobody reads on, so there is nobody to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:  # a full disk, a folder that is not ours to write to
        print(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nStopped before anything was measured.", file=sys.stderr)
        return STOPPED


def _do(arguments: argparse.Namespace) -> int:
    if arguments.command == "compare":
        from workbook.display.comparison_page import print_comparison

        print_comparison(arguments.run_a, arguments.run_b)
        return 0
    request = RunRequest(
        arguments.profile, tuple(arguments.notebooks), arguments.corpus, tuple(arguments.overrides), arguments.resume
    )
    return run_workbook(request)


def _stop(number: int, frame: object) -> None:
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
