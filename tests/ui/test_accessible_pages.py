"""Every page the project writes, in a real browser: read by axe, on a phone and on a desk, in light and in dark."""

import os
from pathlib import Path

import pytest
import yaml
from tiny import ROOT, cli, make_toy

playwright = pytest.importorskip(
    "playwright.sync_api", reason="needs Playwright: pip install -r tests/requirements-ops.txt"
)
axe = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="needs axe: pip install -r tests/requirements-ops.txt"
)
CHROMIUM = next(
    (name for name in (os.environ.get("CHROMIUM"), "/usr/bin/chromium") if name and Path(name).exists()), None
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.ops,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        CHROMIUM is None, reason="needs Debian's Chromium at /usr/bin/chromium, or CHROMIUM to name one"
    ),
]
SHOTS = ROOT / "dist" / "screenshots"
PAGES = {
    "report": "runs/r/report.html",
    "gate": "runs/r/iterations/000001/expectations/index.html",
    "completions": "runs/r/iterations/000001/completions.html",
    "graph": "graph.html",
    "comparison": "comparisons/two/report/index.html",
}
SERIOUS = ("serious", "critical")
PHONE, DESK = 390, 1280


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Train, report, draw what a calibration row reached, and compare two methods; give the workspace."""
    place, _ = make_toy(tmp_path_factory.mktemp("pages") / "w", train={"iterations": 3, "completions": True})
    plan = place.root / "two.yaml"
    plan.write_text(
        yaml.safe_dump(
            {"methods": ["range", "mid-dr_grpo"], "reference": "range", "seeds": [1, 2], "evaluate_every": 2}
        )
    )
    graph = place.root / "graph.html"
    for words in (
        ("train", "--run", "r"),
        ("report", "r"),
        ("audit", "reach", "calibration:1", "--as", "html", "-o", graph),
        ("compare", plan, "-p", "1"),
    ):
        process = cli(*words, "-w", place.root, environ={"PREFECT_API_URL": ""})
        text, _ = process.communicate(timeout=600)
        assert 0 == process.returncode, text
    return place.root


@pytest.fixture(scope="module")
def browser():
    """Run Chromium without a window."""
    with playwright.sync_playwright() as started:
        shown = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield shown
        shown.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK])
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_serious_and_nothing_leaves_the_screen(name, width, scheme, written, browser):
    """Names, roles, order and contrast hold; the page itself never scrolls sideways; nothing comes from outside."""
    shown = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme, bypass_csp=True)
    page = shown.new_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((written / PAGES[name]).as_uri())
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"page-{name}-{width}-{scheme}.png", full_page=name != "graph")
    outside = [url for url in asked if not url.startswith(("file:", "data:"))]
    wide = page.evaluate("document.documentElement.scrollWidth")
    found = axe.Axe().run(page).response["violations"]
    shown.close()
    bad = [(item["id"], [node["target"] for node in item["nodes"][:3]]) for item in found if item["impact"] in SERIOUS]
    assert [] == bad
    assert wide <= width
    assert [] == outside
