"""Bring files of the repository that pages link to into the site, and point the links at them."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
PAGES = {"data/README.md": "data_contract.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
"""Markdown outside docs/ that is a page of its own."""
RESULTS = "benchmarks/results"


def on_files(files: Any, config: Any) -> Any:
    """Add the pages from outside, and the results that measurements wrote."""
    outside = {name: ROOT / source for source, name in PAGES.items()}
    outside |= {f"results/{path.name}": path for path in sorted((ROOT / RESULTS).iterdir()) if path.is_file()}
    known = {file.src_uri for file in files}
    for name, path in outside.items():
        if name not in known:
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Point links that leave docs/ at the copies in the site."""
    for source, name in PAGES.items():
        markdown = re.sub(rf"\]\((?:\.\./)?{re.escape(source)}", f"]({name}", markdown)
    markdown = markdown.replace(f"](../{RESULTS}/", "](results/")
    return re.sub(r"\]\((?:\.\./)?docs/", "](", markdown)
