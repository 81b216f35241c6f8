"""The surface: what importing costs, what every module says of itself, and what occurs nowhere in the code."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
LIBRARY = sorted((PROJECT / "rangeline").rglob("*.py"))
CODE = [*LIBRARY, *sorted((PROJECT / "tasks").glob("*.py")), *sorted((PROJECT / "flows").glob("*.py"))]
WITHOUT_TENSORS = (
    "rangeline.prompts.contract",
    "rangeline.prompts.ingest",
    "rangeline.prompts.pools",
    "rangeline.suites.registry",
    "rangeline.conformal.scorer",
    "rangeline.conformal.density_ratio",
    "rangeline.conformal.intervals",
    "rangeline.conformal.coverage",
    "rangeline.advantages",
    "rangeline.evaluation.report",
    "rangeline.evaluation.comparison",
    "rangeline.judge.rubric",
    "rangeline.lineage",
    "rangeline.audit",
    "rangeline.config",
    "rangeline.stages.data",
    "rangeline.stages.workspace",
)
PICKLES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def _name(path):
    return path.relative_to(PROJECT).as_posix()


def _loaded_after(statement, *packages):
    code = f"import sys; {statement}; print([p for p in {packages!r} if p in sys.modules])"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def _nodes(path):
    return ast.walk(ast.parse(path.read_text(encoding="utf-8")))


def test_importing_the_library_loads_no_heavy_package():
    """`import rangeline` loads neither tensors nor pipeline tools."""
    assert "[]" == _loaded_after("import rangeline", "torch", "transformers", "prefect", "mlflow", "great_expectations")


def test_numeric_rooms_load_no_tensors():
    """Prompts, suites, statistics, reports and the data stages work without torch or transformers."""
    statement = f"import {', '.join(WITHOUT_TENSORS)}"
    assert "[]" == _loaded_after(statement, "torch", "transformers", "accelerate", "prefect", "mlflow", "dvc")


def test_library_names_its_version():
    """The package's version is the installed one."""
    from importlib.metadata import version

    import rangeline

    assert version("rangeline") == rangeline.__version__


@pytest.mark.parametrize("path", CODE, ids=_name)
def test_module_says_what_it_is_for(path):
    """Every module opens with a docstring."""
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", LIBRARY, ids=_name)
def test_public_names_have_docstrings(path):
    """Every public class, function and method of the library has a docstring; so have the classes around them."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    missing = []

    def visit(body):
        for node in body:
            if not isinstance(node, ast.ClassDef | ast.FunctionDef) or node.name.startswith("_"):
                continue
            if not ast.get_docstring(node):
                missing.append(node.name)
            if isinstance(node, ast.ClassDef):
                protocol = any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)
                visit([] if protocol else node.body)

    visit(tree.body)
    assert [] == missing


@pytest.mark.parametrize("path", CODE, ids=_name)
def test_nothing_is_printed(path):
    """No module calls print: progress and errors have their own ways."""
    calls = (node.func for node in _nodes(path) if isinstance(node, ast.Call))
    assert [] == [node.lineno for node in calls if isinstance(node, ast.Name) and node.id == "print"]


@pytest.mark.parametrize("path", CODE, ids=_name)
def test_no_error_is_swallowed_whole(path):
    """No handler is bare or catches Exception or BaseException."""
    found = []
    for node in _nodes(path):
        if isinstance(node, ast.ExceptHandler):
            kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            names = {kind.id for kind in kinds if isinstance(kind, ast.Name)}
            if node.type is None or names & {"Exception", "BaseException"}:
                found.append(node.lineno)
    assert [] == found


@pytest.mark.parametrize("path", CODE, ids=_name)
def test_no_pickles(path):
    """No module imports a pickling package, or loads tensors the way that unpickles."""
    found = []
    for node in _nodes(path):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch":
            names = ["pickle"] if node.attr in ("load", "save") else []
        found += [name for name in names if name.split(".")[0] in PICKLES]
    assert [] == found


@pytest.mark.parametrize("path", CODE, ids=_name)
def test_imports_are_absolute_and_named(path):
    """No module imports relatively or with a wildcard."""
    imports = [node for node in _nodes(path) if isinstance(node, ast.ImportFrom)]
    assert [] == [node.lineno for node in imports if node.level or node.names[0].name == "*"]
