"""Keep the bytes that a lineage rests on, by their digest, when the stage that made them runs again.

Data stages write over what they made before. What the lineage of a serving model needs is kept in
`.rangeline/kept`: files that stages made as hard links, which cost no space since stages replace files and never
write into them; files that a person may write into as copies.
"""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from rangeline.lineage import atomic_path, digest_file

_PREFIX = 2


def kept_folder(root: Path) -> Path:
    """Return where a workspace keeps bytes by digest."""
    return root / ".rangeline" / "kept"


def _place(root: Path, sha256: str) -> Path:
    return kept_folder(root) / sha256[:_PREFIX] / sha256[_PREFIX:]


def keep(root: Path, path: Path, sha256: str, *, link: bool) -> bool:
    """Keep a file under its digest; False where its bytes are not of that digest, which is then not kept.

    Parameters
    ----------
    root
        Workspace.
    path
        The file.
    sha256
        The digest that it should have.
    link
        True for files that are only ever replaced; False copies, for files that may be written into.
    """
    target = _place(root, sha256)
    if target.is_file():
        return True
    if not path.is_file() or digest_file(path) != sha256:
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    if link:
        try:
            os.link(path, target)
        except OSError:  # another file system, or one without links
            pass
        else:
            return True
    with atomic_path(target) as partial:
        shutil.copyfile(path, partial)
    return True


def find_kept(root: Path, sha256: str) -> Path | None:
    """Return the kept file of a digest; None where there is none, or where it is itself damaged."""
    target = _place(root, sha256)
    return target if target.is_file() and digest_file(target) == sha256 else None


def kept_digests(root: Path) -> dict[str, Path]:
    """Return every kept file by its digest."""
    return {f"{path.parent.name}{path.name}": path for path in kept_folder(root).glob("[0-9a-f]*/[0-9a-f]*")}


def keep_only(root: Path, needed: Iterable[str]) -> int:
    """Delete kept files that nothing needs any more; return the bytes that they held."""
    wanted, freed = set(needed), 0
    for sha256, path in kept_digests(root).items():
        if sha256 not in wanted:
            freed += path.stat().st_size
            path.unlink()
    return freed
