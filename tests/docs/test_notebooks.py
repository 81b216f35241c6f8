"""Every notebook runs from top to bottom in a kernel of its own, and is stored without what it printed."""

import json

import pytest
from tiny import ROOT

NOTEBOOKS = sorted(ROOT.glob("notebooks/*.ipynb"))
NAMES = [path.stem for path in NOTEBOOKS]


def test_the_page_of_the_notebooks_names_each():
    """A notebook that no page tells of is read by nobody."""
    page = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    assert NAMES
    assert [] == [name for name in NAMES if f"notebooks/{name}.ipynb" not in page]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_a_notebook_is_stored_without_outputs(path):
    """What it printed once is no part of it, and cannot grow old."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert [] == [cell["id"] for cell in cells if cell.get("outputs") or cell.get("execution_count")]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_a_notebook_runs(path, trained):
    """In a workspace of a finished run every cell runs, its assertions included."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if "parameters" in cell.metadata.get("tags", []):
            cell.source = f"workspace = {str(trained.workspace.root)!r}"
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": ROOT}}).execute()
    printed = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert printed
