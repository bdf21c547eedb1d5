"""The package as a whole: which file may import which, what import costs in modules, and what it says of itself."""

import ast
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import minibptt as mb

PACKAGE = Path(mb.__file__).parent
ROOT = PACKAGE.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
# From the bottom up: a file imports only files that stand before it.
ORDER = """
backend memory
standin.counting standin.memory standin.clock standin.arrays standin.ufuncs standin.kernel standin.library standin
listing nest gradients tensor parameters module
sweep asking tape why dispatch places reductions ops
check clipping optim
cells.base cells.buffers cells.explicit cells.kernels cells.fused cells.rnn cells.lstm cells.gru cells.many cells
parts states passes sequence layers cells.stack recurrent summary losses
students.by_hand students.mistakes students.contract students.expected students.first_place students.verdict
check_cell
archive streams saving layouts weights
plans truncation given objective pieces recomputing cutting updates
measures tables report compare history
timings benchmark drift
apart layerwise together gram contributions stored explore
derivations.expressions derivations.written derivations.rehearsal derivations.symbols derivations.backflow
derivations.formulas derivations.lines derivations.paper derivations.text derivations.latex derivations.html
derivations.derivation derive
unrolled wiring jacobians
plots.style plots.triangle plots.benchmark plots.compare plots.drift plots.lags plots.pairs plots.schemes plots.training
plots.network plots.planning plots.operations plots.steps plots.tape plots.adjoints plots.jacobians plots
data tasks progress evaluate sampling signals loop train
lessons.registry lessons.answers lessons.check
lessons.checks.lesson00 lessons.checks.lesson01 lessons.checks.lesson02 lessons.checks.lesson03
lessons.checks.lesson04 lessons.checks.lesson05 lessons.checks.lesson06 lessons.checks.lesson07
lessons.checks.lesson08 lessons.checks.lesson09 lessons.checks.lesson10 lessons.checks.lesson11
lessons.checks.clocks lessons.checks.lesson12 lessons.checks.lesson13 lessons.checks
lessons.notebooks lessons.source lessons.grade lessons.run_cells lessons
commands commands.output commands.arguments commands.trained
commands.benchmark commands.compare commands.derive commands.explore commands.lessons commands.doctor
commands.language commands.train commands.sample
cli __main__
""".split()  # noqa: SIM905


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        if name != "__init__":
            yield name, ast.parse(path.read_text(encoding="utf-8"))


def imported(name, tree):
    """The modules of the package that a module imports, at its top or anywhere inside; "" is the package itself."""
    package = ["minibptt", *name.split(".")]
    if not (PACKAGE.joinpath(*package[1:]) / "__init__.py").exists():  # else it is a folder's own file
        package.pop()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            home = ".".join([*start, *([node.module] if node.module else [])])
            inside = {f"{home}.{alias.name}" for alias in node.names}
            modules_inside = {one for one in inside if one.removeprefix("minibptt.") in ORDER}
            found = [*modules_inside, *([home] if inside - modules_inside else [])]
        else:
            continue
        yield from (one.removeprefix("minibptt").removeprefix(".") for one in found if one.split(".")[0] == "minibptt")


def test_imports_run_downwards_only():
    place = {name: i for i, name in enumerate([*ORDER, ""])}
    edges = [(name, other) for name, tree in modules() for other in imported(name, tree)]
    assert len(edges) > 50
    wrong = [(a, b) for a, b in edges if place[b] >= place[a]]
    assert not wrong, f"these import upwards: {wrong}"


def test_imports_are_seen_however_they_are_written():
    for name, code, expected in [
        ("tape", "from .sweep import pull", {"sweep"}),
        ("tape", "def later():\n    from .cells import rnn, Cell", {"cells.rnn", "cells"}),
        (
            "cells.rnn",
            "from ..ops import tanh\nfrom .base import Cell\nfrom .. import backend",
            {"ops", "cells.base", "backend"},
        ),
        ("commands", "from .output import say", {"commands.output"}),  # a folder's own file
        ("students", "from . import contract", {"students.contract"}),
        ("lessons.checks", "from ..registry import exercise", {"lessons.registry"}),
        ("lessons.run_cells", "from minibptt.lessons import check, registry", {"lessons.check", "lessons.registry"}),
        ("ops", "import minibptt.tape, numpy\nimport minibptt", {"tape", ""}),
        ("ops", "from minibptt import Tape\nfrom numpy import tape", {""}),
        ("ops", "from . import Tape", {""}),
    ]:
        assert set(imported(name, ast.parse(code))) == expected, code


def test_only_plots_knows_matplotlib_and_only_backend_knows_cupy():
    for name, tree in modules():
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module]
            for found in names:
                assert found.split(".")[0] != "matplotlib" or name.split(".")[0] == "plots", name
                assert found.split(".")[0] != "cupy", name


def test_every_module_and_every_public_name_says_what_it_is():
    for name, tree in modules():
        assert ast.get_docstring(tree), name
    for name in dir(mb):
        thing = getattr(mb, name)
        if not name.startswith("_") and callable(thing) and getattr(thing, "__module__", "").startswith("minibptt"):
            assert thing.__doc__, name


FIRST = re.compile(r"[Rr]ead (this file first|last|\S+\.py first)|needs no other")
AFTER = re.compile(r"[Rr]ead after\s+(\S+\.py)(?:\s+and\s+(\S+\.py))?")


def test_every_module_says_what_to_read_before_it_and_that_stands_below_it():
    place = {name: i for i, name in enumerate(ORDER)}
    for name, tree in modules():
        text = ast.get_docstring(tree)
        found = AFTER.search(text)
        assert found or FIRST.search(text), f"{name}: say which file to read before it (Read after x.py.)"
        for file in filter(None, found.groups() if found else ()):
            home = PACKAGE.joinpath(*name.split("."))
            home = home if home.is_dir() else home.parent
            there = [path for path in ((home / file).resolve(), PACKAGE / file) if path.exists()]
            assert there, f"{name}: there is no {file}"
            before = ".".join(there[0].relative_to(PACKAGE).with_suffix("").parts)
            assert place[before] < place[name], f"{name} is to be read after {before}, which stands above it"


def test_the_readme_lists_eight_files_in_the_order_of_imports_and_what_they_say_is_read_before():
    eight, more = README.split("## Reading order")[1].split("Then\n")[0].split("Three more")
    lists = [[one.replace("/", ".") for one in re.findall(r"\(minibptt/(\S+)\.py\)", text)] for text in (eight, more)]
    assert eight.strip().startswith("Eight files") and [len(names) for names in lists] == [8, 3]
    for names in lists:
        assert names == sorted(names, key=ORDER.index)
    docstrings = {name: ast.get_docstring(tree) for name, tree in modules()}
    for name in lists[0][1 : lists[0].index("ops") + 1]:
        assert AFTER.search(docstrings[name])[1].removesuffix(".py") in [*lists[0], *lists[1]], name


def test_import_loads_neither_matplotlib_nor_cupy_and_starts_no_thread_or_process():
    code = (
        "import sys, threading, minibptt\n"
        "bad = {'matplotlib', 'cupy', 'subprocess', 'multiprocessing', 'scipy'} & set(sys.modules)\n"
        "assert not bad, bad\n"
        "assert threading.active_count() == 1\n"
        "assert 'minibptt.plots' not in sys.modules\n"
        "minibptt.plots\n"
        "assert 'minibptt.plots' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


SELDOM = """archive derivations history layouts plots report sampling saving standin stored students tables timings
weights commands lessons""".split()  # noqa: SIM905


def test_import_leaves_what_few_programs_need_until_it_is_asked_for():
    code = (
        "import sys, minibptt as mb, numpy as np\n"
        "def loaded():\n"
        "    return {name.split('.')[1] for name in sys.modules if name.startswith('minibptt.')}\n"
        f"seldom = set({SELDOM})\n"
        "assert not loaded() & seldom, loaded() & seldom\n"
        "assert 'zipfile' not in sys.modules\n"
        "model = mb.LSTM(2, 3, engine='tape', rng=0)\n"
        "with mb.Tape() as tape:\n"
        "    loss = mb.mse(model(np.ones((2, 1, 2)))[0], np.ones((2, 1, 3)))\n"
        "mb.Adam(model).step(tape.gradient(loss, model))\n"
        "assert not loaded() & seldom, loaded() & seldom\n"  # nor does a step of training need it
        "assert 'i₁ = sigmoid(z_i₁)' in str(tape)\n"  # though nobody derived anything
        "assert loaded() & seldom == {'derivations'}\n"
    )
    subprocess.run([sys.executable, "-X", "utf8", "-c", code], check=True)


def test_every_public_name_can_be_got_and_no_module_hides_one():
    code = (
        "import importlib, pkgutil, types, minibptt as mb\n"
        "first = {name: getattr(mb, name) for name in dir(mb)}\n"
        "for module in pkgutil.iter_modules(mb.__path__, 'minibptt.'):\n"
        "    if module.name != 'minibptt.__main__':\n"
        "        importlib.import_module(module.name)\n"
        "for name, thing in first.items():\n"
        "    assert getattr(mb, name) is thing, name\n"
        "modules = {name for name in mb.__all__ if isinstance(first[name], types.ModuleType)}\n"
        "assert modules == {'weights'}, modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_type_checkers_find_every_name_that_is_loaded_later():
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    found = {alias.name: node.module for node in block.body for alias in node.names}
    assert {name: module or name for name, module in found.items()} == mb._LATER


def test_all_holds_every_public_name_and_star_gives_them_without_matplotlib():
    own = {name for name in dir(mb) if not name.startswith("_") and not isinstance(getattr(mb, name), ModuleType)}
    assert own | {"weights"} == set(mb.__all__) and len(mb.__all__) == len(set(mb.__all__))
    code = (
        "import sys\n"
        "from minibptt import *\n"
        "import minibptt\n"
        "assert all(globals()[name] is getattr(minibptt, name) for name in minibptt.__all__)\n"
        "assert 'matplotlib' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'tnah'"):
        _ = mb.tnah


def test_the_changelog_knows_this_version():
    assert f"## {mb.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


BLOCKS = re.findall(r"```python\n(.*?)```(?:\s*```text\n(.*?)```)?", README, re.DOTALL)


def test_the_readme_has_code_and_its_figure():
    assert len(BLOCKS) >= 3
    for image in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README):
        assert (ROOT / image).is_file(), image


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_code_in_the_readme_prints_what_it_says(number, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shared = {}
    for code, _ in BLOCKS[:number]:  # later blocks may use what earlier ones made
        exec(compile(code, "README.md", "exec"), shared)
    capsys.readouterr()
    code, expected = BLOCKS[number]
    exec(compile(code, "README.md", "exec"), shared)
    printed = capsys.readouterr().out
    if expected:
        assert printed.strip() == expected.strip()
