"""Run a notebook in a fresh kernel where warnings are errors; print its outputs as JSON: `execute.py NOTEBOOK`."""

import json
import sys

import nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], as_version=4)
notebook.cells.insert(0, nbformat.v4.new_code_cell("import warnings\nwarnings.simplefilter('error')"))
NotebookClient(notebook, kernel_name="python3", timeout=300).execute()
print(json.dumps([dict(output) for cell in notebook.cells for output in cell.get("outputs", [])]))
