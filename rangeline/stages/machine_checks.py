"""Look at the machine before anything is run on it: Python, packages, GPU, memory, disk, ports, tools.

Each check gives findings: what was looked at, whether it stands in the way, and what to do about it.
"""

import shutil
import socket
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Literal

import psutil
import torch
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

GIB = 2**30
State = Literal["ok", "note", "broken"]
PROJECT = "rangeline"
EXTRAS = {
    "demo": "the demo's problems and packaged model",
    "evaluation": "BLEU and BERTScore",
    "hub": "benchmarks of the Hub",
}
"""Extras of the project that a run may ask for, and what they give."""
PORTS = {"Prefect page": 4200, "MLflow page": 5000, "vLLM server": 8000}
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_CGROUP_USED = Path("/sys/fs/cgroup/memory.current")
_CGROUP_FACTS = Path("/sys/fs/cgroup/memory.stat")
_LITTLE_MEMORY, _LITTLE_DISK, _NO_DISK = 4 * GIB, 10 * GIB, 1 * GIB
"""The demo's policy and judge need about 5 GiB in all; a checkpoint of 1.5 B float32 weights with optimiser 18."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    name: str
    state: State
    """broken: a run will fail here. note: it may matter. ok: nothing to do."""
    says: str
    """What was found, in words."""
    fix: str = ""
    """What to do; empty only where there is nothing to do."""


def check_machine(folder: Path) -> list[Finding]:
    """Return the findings about this machine.

    Parameters
    ----------
    folder
        Where runs will be written: its disk is the one that counts.
    """
    return [
        check_python(sys.version_info[:2]),
        *check_packages(),
        check_gpu(),
        check_memory(available_memory()),
        check_disk("disk", folder),
        *(check_port(name, port) for name, port in PORTS.items()),
        check_tools(("git", "make", "cc")),
    ]


def check_python(running: tuple[int, int]) -> Finding:
    """Return whether this interpreter is one that the project is tested with."""
    says = f"{running[0]}.{running[1]}"
    if running == (3, 11):
        return Finding(name="Python", state="ok", says=says)
    if running < (3, 11):
        return Finding(name="Python", state="broken", says=says, fix="Make the environment with python3.11.")
    return Finding(name="Python", state="note", says=f"{says}; tests run on 3.11", fix="Prefer python3.11.")


def check_packages() -> list[Finding]:
    """Return packages that are absent or of a version that another one refuses; one `ok` where there are none."""
    broken = [
        Finding(name=f"package {name}", state="broken", says=says, fix=_install(name))
        for name, says in conflicts(PROJECT)
    ]
    notes = []
    for extra, gives in EXTRAS.items():
        absent = [name for name, _ in _unmet(_requirements(PROJECT, extra))]
        if absent:
            fix = f"pip install -c constraints.txt -e '.[{extra}]'"
            says = f"without {', '.join(sorted(absent))}: no {gives}"
            notes.append(Finding(name=f"extra {extra}", state="note", says=says, fix=fix))
    if broken:
        return [*broken, *notes]
    shown = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "prefect", "mlflow", "dvc"))
    return [Finding(name="packages", state="ok", says=f"go together: {shown}"), *notes]


def _install(name: str) -> str:
    return f"pip install -c constraints.txt -e . (or: pip install -c constraints.txt '{name}')"


def conflicts(root: str) -> list[tuple[str, str]]:
    """Return what the dependencies of an installed package, and theirs, want otherwise: name, and what is wrong."""
    found = dict(_unmet([Requirement(root)]))
    seen: set[str] = set()
    todo = [canonicalize_name(root)]
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        wanted = list(_requirements(name))
        found.update((other, f"{says}, wanted by {name}") for other, says in _unmet(wanted))
        todo += [canonicalize_name(item.name) for item in wanted]
    return sorted(found.items())


def _requirements(name: str, extra: str = "") -> Iterator[Requirement]:
    """Give what a package asks for here, or what its extra alone adds; nothing where it is not installed."""
    try:
        lines = distribution(name).requires or []
    except PackageNotFoundError:
        return
    for line in lines:
        try:
            item = Requirement(line)
        except InvalidRequirement:
            continue  # of an old package; pip would not read it either
        always = item.marker is None or item.marker.evaluate({"extra": ""})
        if (not extra and always) or (extra and not always and item.marker and item.marker.evaluate({"extra": extra})):
            yield item


def _unmet(wanted: Iterable[Requirement]) -> Iterator[tuple[str, str]]:
    for item in wanted:
        name = canonicalize_name(item.name)
        try:
            got = version(name)
        except PackageNotFoundError:
            yield name, f"not installed, needs {item.specifier or 'any version'}"
            continue
        if not item.specifier.contains(got, prereleases=True):
            yield name, f"{got} is installed, needs {item.specifier}"


def check_gpu() -> Finding:
    """Return what torch computes on, and whether a GPU of the machine goes unused."""
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        says = f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}, "
        says += f"{free / GIB:.0f} of {total / GIB:.0f} GiB free"
        if free < total / 2:
            return Finding(name="GPU", state="note", says=says, fix="Look with nvidia-smi at who else uses it.")
        return Finding(name="GPU", state="ok", says=says)
    if shutil.which("nvidia-smi"):
        says = f"the machine has one, torch {torch.__version__} does not use it"
        return Finding(name="GPU", state="note", says=says, fix="Install a torch built for the driver's CUDA version.")
    return Finding(name="GPU", state="ok", says="none: torch computes on the CPU")


def available_memory() -> int:
    """Return the bytes that a new process may take: what is free, and no more than the container's limit leaves.

    Files that the system remembers count as free in both: it forgets them when memory is wanted.
    """
    free = int(psutil.virtual_memory().available)
    try:
        limit, used, facts = (
            path.read_text(encoding="ascii").strip() for path in (_CGROUP_LIMIT, _CGROUP_USED, _CGROUP_FACTS)
        )
    except OSError:
        return free
    remembered = sum(int(line.split()[1]) for line in facts.splitlines() if line.startswith("inactive_file "))
    return min(free, int(limit) - int(used) + remembered) if limit.isdigit() else free


def check_memory(available: int) -> Finding:
    """Return whether the memory that is left is enough for the smallest runs."""
    says = f"{available / GIB:.1f} GiB free"
    if available >= _LITTLE_MEMORY:
        return Finding(name="memory", state="ok", says=says)
    fix = "End what else runs; 'rangeline estimate' says what a run needs."
    return Finding(name="memory", state="note", says=says, fix=fix)


def check_disk(name: str, folder: Path) -> Finding:
    """Return how much room the disk of a folder, or of its nearest parent that exists, has."""
    place = next(path for path in (folder.resolve(), *folder.resolve().parents) if path.exists())
    free = shutil.disk_usage(place).free
    says = f"{free / GIB:.1f} GiB free at {place}"
    if free >= _LITTLE_DISK:
        return Finding(name=name, state="ok", says=says)
    fix = "Make room, or keep fewer checkpoints (train.keep_checkpoints); 'rangeline estimate' says what a run needs."
    return Finding(name=name, state="broken" if free < _NO_DISK else "note", says=says, fix=fix)


def check_port(name: str, port: int) -> Finding:
    """Return whether a port of this machine is free for a page or server."""
    with socket.socket() as probe:
        taken = probe.connect_ex(("127.0.0.1", port)) == 0
    if not taken:
        return Finding(name=f"port {port}", state="ok", says=f"free for the {name}")
    page = name.split()[0].lower()
    fix = f"If that is not the {name}: rangeline serve {page} --port {port + 10}."
    return Finding(name=f"port {port}", state="note", says=f"something listens; the {name} uses it", fix=fix)


def check_tools(names: Iterable[str]) -> Finding:
    """Return which programs, that setting up and versioning call, are not on the path."""
    names = tuple(names)
    absent = [name for name in names if shutil.which(name) is None]
    if not absent:
        return Finding(name="tools", state="ok", says=", ".join(names))
    fix = f"Install them with the system's package manager: {' '.join(absent)} (cc: a C compiler such as gcc)."
    return Finding(name="tools", state="note", says=f"not found: {', '.join(absent)}", fix=fix)
