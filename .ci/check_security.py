"""Hold every pinned package against the advisories of PyPI; say plainly what could not be looked up.

The audit tool calls a package that its service does not answer for "skipped", and ends as if all were well. Here such
a package is unchecked, and unchecked is not clean. Exit codes: 0 all clean, 1 something is vulnerable, 3 not checked.
"""

import json
import subprocess
import sys
from pathlib import Path

CLEAN, VULNERABLE, UNCHECKED = 0, 1, 3
_WAIT_S = 600


def verdict(report: dict[str, list[dict[str, object]]]) -> tuple[int, list[str]]:
    """Return the exit code of an audit's report, and what to say of it.

    Parameters
    ----------
    report
        What `pip-audit --format json` wrote: `dependencies` with `name`, and `vulns` or `skip_reason`.
    """
    listed = report["dependencies"]
    skipped = sorted(str(item["name"]) for item in listed if "skip_reason" in item)
    lines = [
        f"{item['name']} {item['version']}: {found['id']}, fixed in {', '.join(found['fix_versions']) or 'no version'}"
        for item in listed
        for found in item.get("vulns", ())  # type: ignore[attr-defined]
    ]
    if skipped:
        shown = ", ".join(skipped[:5])
        lines.append(f"NOT CHECKED: no advisories could be had for {len(skipped)} of {len(listed)} packages ({shown})")
    if not listed:
        lines.append("NOT CHECKED: the list of packages is empty")
    broken = any(item.get("vulns") for item in listed)
    code = VULNERABLE if broken else UNCHECKED if skipped or not listed else CLEAN
    return code, lines or [f"{len(listed)} packages, no known advisory"]


def main(tool: str, pins: Path) -> int:
    """Audit a list of pins with a tool, and say the outcome."""
    command = [tool, "--requirement", str(pins), "--no-deps", "--disable-pip", "--format", "json"]
    command += ["--progress-spinner", "off", "--timeout", "15"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_WAIT_S)
        code, lines = verdict(json.loads(done.stdout))
    except (subprocess.TimeoutExpired, ValueError) as error:
        # Without a network the tool ends with its own error and writes no report.
        code, lines = UNCHECKED, [f"NOT CHECKED: the advisory service could not be reached ({type(error).__name__})"]
    sys.stdout.write("\n".join(lines) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
