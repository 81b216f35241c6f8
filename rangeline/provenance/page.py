"""One HTML page of a graph that one can click through: what a node was made from, what it is, what it became.

The page needs nothing else: its script and style stand in it and are named by digest in its own content policy, so
that nothing in a title or path can run. Names reach the page as JSON data and become text nodes only.
"""

import base64
import hashlib
import json
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from rangeline.provenance.drawings import summary
from rangeline.provenance.graph import Graph
from rangeline.provenance.reach import Reach

_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;margin:1.5rem;color:#1c2430;background:#fff}
h1{font-size:1.3rem}h2{font-size:.95rem;color:#5a6675}
main{display:grid;grid-template-columns:1fr 1.4fr 1fr;gap:1.2rem;align-items:start}
button,input{font:inherit}
.node{display:block;width:100%;text-align:left;margin:.25rem 0;padding:.4rem .6rem;border:1px solid #c5ccd6;
border-radius:.4rem;background:#f6f8fa;cursor:pointer;overflow-wrap:anywhere}
.node:focus-visible{outline:3px solid #1f6feb}.reached{border-left:.4rem solid #b35900}
.how{color:#5a6675;font-size:.85em}
dt{color:#5a6675;margin-top:.5rem}dd{margin:0;overflow-wrap:anywhere}
"""
_SCRIPT = """
'use strict';
const graph = JSON.parse(document.getElementById('graph').textContent);
const into = graph.nodes.map(() => []), out = graph.nodes.map(() => []);
for (const [a, b, how] of graph.edges) { out[a].push([b, how]); into[b].push([a, how]); }
const trail = [];
function add(parent, tag, text, name) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (name) made.className = name;
  parent.appendChild(made);
  return made;
}
function list(place, links) {
  const box = document.getElementById(place);
  box.replaceChildren();
  if (!links.length) add(box, 'p', 'nothing', 'how');
  for (const [i, how] of links.slice(0, 500)) {
    const node = graph.nodes[i];
    const button = add(box, 'button', node.t, 'node' + (node.r ? ' reached' : ''));
    button.type = 'button';
    add(button, 'div', how, 'how');
    button.addEventListener('click', () => show(i));
  }
  if (links.length > 500) add(box, 'p', (links.length - 500) + ' more: use Find', 'how');
}
function show(i, isBack) {
  if (!isBack) trail.push(i);
  const node = graph.nodes[i], box = document.getElementById('here');
  box.replaceChildren();
  add(box, 'h3', node.t);
  if (node.r) add(box, 'p', 'Reached.', 'node reached');
  const facts = add(box, 'dl');
  for (const [name, value] of node.f) { add(facts, 'dt', name); add(facts, 'dd', value); }
  list('from', into[i]);
  list('to', out[i]);
}
const index = new Map(graph.nodes.map((node, i) => [node.t + '  ' + node.p, i]));
const names = document.getElementById('names');
for (const name of [...index.keys()].slice(0, 2000)) add(names, 'option').value = name;
document.getElementById('find').addEventListener('input', (event) => {
  const text = event.target.value.trim().toLowerCase();
  if (!text) return;
  for (const [name, i] of index) if (name.toLowerCase().includes(text)) { show(i); return; }
});
document.getElementById('back').addEventListener('click', () => {
  if (trail.length > 1) { trail.pop(); show(trail[trail.length - 1], true); }
});
if (graph.nodes.length) show(graph.start);
"""


def draw_page(reach: Reach) -> str:
    """Return the page of a reach: the whole graph of stages, models and promotions, what was reached marked."""
    source = (files("rangeline.provenance") / "graph_page.html").read_text(encoding="utf-8")
    page = Environment(autoescape=True, undefined=StrictUndefined).from_string(source)
    return page.render(
        title=reach.target.title,
        summary=f"Reached {summary(reach)}.",
        data=Markup(_script_data(_graph_data(reach))),
        style=Markup(_STYLE),
        script=Markup(_SCRIPT),
        style_hash=Markup(_policy_hash(_STYLE)),
        script_hash=Markup(_policy_hash(_SCRIPT)),
    )


def _policy_hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _script_data(value: Any) -> str:
    """Return JSON that can close no script element and begin no comment."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _graph_data(reach: Reach) -> dict[str, Any]:
    graph = reach.graph
    keys = [key for key, node in graph.nodes.items() if node.kind != "file"]
    number = {key: i for i, key in enumerate(keys)}
    nodes = [
        {
            "t": graph.nodes[key].title,
            "p": graph.nodes[key].path,
            "r": int(key in reach.steps),
            "f": _facts(graph, key),
        }
        for key in keys
    ]
    edges = {(number[a], number[b]): how for a, b, how in _stage_edges(graph)}
    start = next((number[key] for key in reach.steps if key in number), 0)
    return {"nodes": nodes, "edges": [[a, b, how] for (a, b), how in edges.items()], "start": start}


def _facts(graph: Graph, key: str) -> list[tuple[str, str]]:
    node, stage = graph.nodes[key], graph.stages.get(key)
    facts = [("path", node.path), ("sha256", node.sha256)] if node.path else []
    if stage is None:
        return facts
    manifest, entry = stage.manifest, stage.entry
    code = manifest.code
    facts.append(("code", f"{code.get('commit')}{', with uncommitted changes' if code.get('dirty') else ''}"))
    facts.append(("environment", str(manifest.environment.get("packages_sha256", ""))[:12]))
    if entry is not None:
        facts.append(("time", f"{entry.started or '?'} to {entry.ended}"))
        facts += [(f"Prefect {name}", value) for name, value in entry.prefect.items()]
        facts += [(f"MLflow {name}", value) for name, value in entry.mlflow.items()]
    facts += [("made", f"{ref.path}  {ref.sha256[:12]}") for ref in manifest.outputs]
    facts += [("read", f"{ref.path}  {ref.sha256[:12]}") for ref in manifest.inputs]
    return facts


def _stage_edges(graph: Graph) -> list[tuple[str, str, str]]:
    """Return the edges between what is no file: through the files that one made and another read."""
    edges = []
    for key, node in graph.nodes.items():
        if node.kind != "file":
            edges += [(key, target, how) for target, how in graph.readers[key] if graph.nodes[target].kind != "file"]
            continue
        makers = [source for source, how in graph.sources[key] if how == "made"]
        edges += [(maker, target, how) for maker in makers for target, how in graph.readers[key]]
    return edges
