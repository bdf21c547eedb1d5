"""minibptt lessons: list the course's notebooks, copy them, make them from their sources, grade what comes back.

Read after ../lessons/grade.py.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from ..lessons.notebooks import INSTALL, copy, folder, lessons
from ..listing import columns
from .arguments import UsageError, natural, positive
from .output import check_file, say, shown


def add(subparsers: Any) -> None:
    sub = subparsers.add_parser(
        "lessons", help="the course: notebooks to copy, and grading", description="List the course's notebooks, copy "
        "them, make them from their sources, grade what comes back.",
    )  # fmt: skip
    sub.set_defaults(run=run_list)
    actions = sub.add_subparsers(dest="action", metavar="ACTION")
    actions.add_parser("list", help="the lessons in order (the default)").set_defaults(run=run_list)

    one = actions.add_parser(
        "copy", help="write the notebooks into a folder", description="Write the notebooks into a folder. A notebook "
        "that is there already is left as it is.",
    )  # fmt: skip
    one.add_argument("out", type=Path, metavar="DIR")
    one.add_argument("--solutions", action="store_true", help="the instructor's notebooks, with solutions")
    one.add_argument("--install", default=INSTALL, metavar="SPEC", help="what the first cell gives to pip on Colab "
                     f"(default: {INSTALL}), such as git+https://…")  # fmt: skip
    one.set_defaults(run=run_copy)

    one = actions.add_parser(
        "build", help="make the notebooks from their sources, in a clone", description="Make the notebooks from the "
        "sources in a clone's folder lessons/. Needs jupytext: pip install 'minibptt[lessons]'.",
    )  # fmt: skip
    one.add_argument("--check", action="store_true", help="only say which notebooks differ, and end with code 2")
    one.set_defaults(run=run_build)

    one = actions.add_parser(
        "grade", help="run and check students' notebooks", description="Run each notebook in a process of its own, "
        "with limits of time and memory, and check its exercises with the checks of this installation. THIS IS NO "
        "SANDBOX: a notebook can do whatever you can; for notebooks of people whom you do not trust, run it in a "
        "container or on a machine that has nothing to lose.",
    )  # fmt: skip
    one.add_argument("files", type=Path, nargs="+", metavar="FILE.ipynb")
    one.add_argument("--lesson", type=natural, metavar="N", help="which lesson it is, where the notebook does not say")
    one.add_argument("--cell-seconds", type=positive, default=60, metavar="S", help="for a cell or check (default: 60)")
    one.add_argument("--seconds", type=positive, default=300, metavar="S", help="for a notebook (default: 300)")
    one.add_argument("--megabytes", type=positive, default=4096, metavar="M",
                     help="memory (address space) of a notebook's process, where the system can limit it "
                     "(default: 4096)")  # fmt: skip
    one.add_argument("--json", type=Path, metavar="OUT", help="write what was found as JSON too; - for only that")
    one.add_argument("--gradescope", type=Path, metavar="OUT", help="write Gradescope's results.json, for one notebook")
    one.set_defaults(run=run_grade)


def run_list(options: argparse.Namespace) -> None:
    rows: list[tuple[str, ...]] = [("", "lesson", "minutes")]
    rows += [(f"{x.number:02d}", x.title + (" (GPU)" if x.gpu else ""), str(x.minutes or "")) for x in lessons()]
    say("\n".join(columns(rows, right=(2,))))
    say("\nminibptt lessons copy DIR writes the notebooks into a folder of your own.")


def run_copy(options: argparse.Namespace) -> None:
    written, left = copy(options.out, "instructor" if options.solutions else "student", options.install)
    say(f"Written to {shown(options.out)}: {', '.join(path.name for path in written) or 'nothing'}")
    if left:
        say(f"Left as they were: {', '.join(path.name for path in left)}")


def run_build(options: argparse.Namespace) -> None:
    from ..lessons import source

    home = folder()
    if not source.sources(home):
        raise UsageError("the sources of the lessons are in a clone of the project; here are only the notebooks")
    try:
        if options.check:
            differing = [f"{p.parent.name}/{p.name}" for paths in source.differing(home) for p in paths]
            if differing:
                raise UsageError(f"not as their sources say: {', '.join(differing)}. Run minibptt lessons build")
            return
        changed, stale = source.build(home)
    except ImportError as error:
        raise UsageError(str(error)) from None
    for path in changed:
        say(f"written {path.parent.name}/{path.name}")
    for path in stale:
        say(f"removed {path.parent.name}/{path.name}: it has no source")
    if not changed and not stale:
        say("All notebooks are as their sources say.")


def run_grade(options: argparse.Namespace) -> None:
    from ..lessons.grade import grade, table

    if options.gradescope and len(options.files) > 1:
        raise UsageError(f"--gradescope takes one notebook, found {len(options.files)}")
    only_json, found = str(options.json) == "-", []
    _check_outputs(options)
    for path in options.files:
        found.append(
            grade(path, lesson=options.lesson, cell_seconds=options.cell_seconds, seconds=options.seconds,
                  megabytes=options.megabytes)
        )  # fmt: skip
        if not only_json:
            say(table(found[-1:]))
    all_of_it = [one.as_dict() for one in found]
    if only_json:
        say(json.dumps(all_of_it, indent=2))  # in ASCII, which `say` leaves as it is: what follows reads it as JSON
    elif options.json:
        text = json.dumps(all_of_it, indent=2, ensure_ascii=False) + "\n"
        options.json.write_text(text, encoding="utf-8", errors="backslashreplace")  # half a character: \ud800
    if options.gradescope:
        options.gradescope.write_text(json.dumps(found[0].gradescope(), indent=2) + "\n", encoding="utf-8")
    unread = [one.file for one in found if not one.graded]
    if unread:
        raise UsageError(f"not graded: {', '.join(unread)}. What each lacks is said above")


def _check_outputs(options: argparse.Namespace) -> None:
    """UsageError, before any notebook runs, for a file that the results could not be written to."""
    outputs = {"--json": options.json if str(options.json) != "-" else None, "--gradescope": options.gradescope}
    given = {option: path for option, path in outputs.items() if path is not None}
    for option, path in given.items():
        if path.suffix == ".ipynb":
            raise UsageError(f"{option} {shown(path)} is a notebook; give the name of a file to write, as grades.json")
        check_file(option, path)
    if len({path.absolute() for path in given.values()}) < len(given):
        raise UsageError(f"--json and --gradescope are one file, {shown(options.json)}; give two")
