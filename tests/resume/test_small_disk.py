"""The real command on a real disk that is too small: one error, and once there is room, equal bytes."""

import os
import shutil
import subprocess
import sys

import pytest
from tiny import copy_code

SCRIPT = """
set -u
mount -t tmpfs -o size="$SIZE"k none "$DISK" || exit 90
cp -a "$SOURCE/." "$DISK/"
"$PYTHON" -m flows.cli train -w "$DISK" --run r > "$LOG" 2>&1
echo $? > "$LOG.status"
ls "$DISK/runs/r/checkpoints" > "$LOG.checkpoints" 2>/dev/null
mount -o remount,size=900000k "$DISK"
"$PYTHON" -m flows.cli train -w "$DISK" --run r >> "$LOG.later" 2>&1 || exit 91
cp -a "$DISK/runs/r" "$RESULT"
"""
"""In a mount namespace of its own, so that the disk is nobody else's and goes with the test."""


@pytest.mark.slow
def test_a_command_whose_disk_is_full_says_so_once_and_goes_on(copied_workspace, prefect_server, digests, tmp_path):
    """Out of room amid training, the command ends with 7 and one line; with room it ends as if nothing had been."""
    source, disk = copied_workspace(tmp_path / "source"), tmp_path / "disk"
    disk.mkdir()
    home = copy_code(tmp_path / "code")
    environ = {**os.environ, "PREFECT_API_URL": prefect_server, "PYTHON": sys.executable, "COLUMNS": "200"}
    used = int(subprocess.run(["du", "-sk", source], capture_output=True, check=True).stdout.split()[0])
    names = {
        "SIZE": used + 1500,
        "DISK": disk,
        "SOURCE": source,
        "LOG": tmp_path / "log",
        "RESULT": tmp_path / "result",
    }
    rights = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
    subprocess.run(
        ["unshare", "--mount", *rights, "sh", "-c", SCRIPT],
        cwd=home,
        env={**environ, **{name: str(value) for name, value in names.items()}},
        check=True,
    )
    text = (tmp_path / "log").read_text()
    assert "7\n" == (tmp_path / "log.status").read_text(), text
    assert 1 == text.count("error: The disk must have room for"), text
    assert "Traceback" not in text
    shutil.copytree(source, tmp_path / "calm")
    command = [sys.executable, "-m", "flows.cli", "train", "-w", tmp_path / "calm", "--run", "r"]
    subprocess.run(command, cwd=home, env=environ, check=True, capture_output=True)
    # The gate's pages tell when they were made.
    calm, resumed = (
        {name: digest for name, digest in digests(run).items() if "/expectations/" not in name}
        for run in (tmp_path / "calm" / "runs" / "r", tmp_path / "result")
    )
    assert len(calm) > 50
    assert calm == resumed
