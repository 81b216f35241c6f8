"""What the code may not do at all: every file is read as a syntax tree, and no rule has an exception list."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(path for room in ("rangeline", "tasks", "flows", "benchmarks") for path in (ROOT / room).rglob("*.py"))
PICKLERS = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "skops"}
PICKLE_CALLS = {
    "torch.load",
    "torch.save",
    "torch.jit.load",
    "torch.hub.load",
    "pd.read_pickle",
    "pandas.read_pickle",
    "to_pickle",
    "numpy.load_pickle",
    "accelerator.save_state",
    "accelerator.load_state",
    "mlflow.sklearn",
    "mlflow.pyfunc",
    "mlflow.pytorch",
}
SAFE_LOADERS = {"SafeLoader", "BaseLoader", "CSafeLoader", "CBaseLoader"}
CSV_WRITERS = {"to_csv", "csv.writer", "csv.DictWriter", "savetxt", "to_excel"}


def trees():
    """Give each file's name and syntax tree."""
    for path in FILES:
        yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def dotted(node):
    """Return the dotted name of an expression; what is no name is left out."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    # What is called or looked up first has no name of its own: `model(...).eval` is not `eval`.
    return node.id if isinstance(node, ast.Name) else "?"


def calls(tree):
    """Give the dotted name, keywords and node of every call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield dotted(node.func), {word.arg: word.value for word in node.keywords}, node


def ends_with(name, wanted):
    """Tell whether a dotted name ends with one of the wanted ones."""
    return any(name == one or name.endswith(f".{one}") for one in wanted)


def safe_loaders(tree):
    """Return the names of loaders that a file derives from a safe one."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return {
        node.name for node in classes if any(dotted(base).rpartition(".")[2] in SAFE_LOADERS for base in node.bases)
    }


def is_true(value):
    """Tell whether a keyword's value is the word True."""
    return isinstance(value, ast.Constant) and value.value is True


def findings(rule):
    """Return file and line of everything that breaks a rule, which gives the broken nodes of a tree."""
    return [f"{name}:{node.lineno}" for name, tree in trees() for node in rule(tree)]


def pickles(tree):
    """Give what imports or calls a reader of pickles."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(item.name.partition(".")[0] in PICKLERS for item in node.names):
            yield node
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in PICKLERS:
            yield node
    for name, words, node in calls(tree):
        if ends_with(name, PICKLE_CALLS) or is_true(words.get("allow_pickle")):
            yield node


def unsafe_yaml(tree):
    """Give YAML that is loaded by anything but a safe loader."""
    allowed = safe_loaders(tree)
    for name, words, node in calls(tree):
        if ends_with(name, {"yaml.unsafe_load", "yaml.full_load", "yaml.load_all", "yaml.unsafe_load_all"}):
            yield node
        if ends_with(name, {"yaml.load"}):
            loader = dotted(words.get("Loader", ast.Constant(None))).rpartition(".")[2]
            if loader not in allowed | SAFE_LOADERS | {"StrictLoader"}:
                yield node


def foreign_code(tree):
    """Give calls that run a shell, evaluate text, or trust a model's code whoever asks."""
    for name, words, node in calls(tree):
        if name in {"eval", "exec", "os.system", "os.popen", "compile", "builtins.eval"} or is_true(words.get("shell")):
            yield node
        if is_true(words.get("trust_remote_code")):
            yield node


def loose_weights(tree):
    """Give models that are read without asking for safetensors, where the class reads weights."""
    for name, words, node in calls(tree):
        reads = name.rpartition(".")[2] == "from_pretrained" and "AutoModel" in name
        # A GGUF file is a table of numbers too.
        if reads and "gguf_file" not in words and not is_true(words.get("use_safetensors")):
            yield node


def spreadsheets(tree):
    """Give writers of tables that a spreadsheet would run formulas of."""
    return [node for name, _, node in calls(tree) if ends_with(name, CSV_WRITERS)]


def plain_templates(tree):
    """Give page templates that do not escape what is put into them."""
    for name, words, node in calls(tree):
        if ends_with(name, {"jinja2.Environment", "jinja2.Template"}) and not is_true(words.get("autoescape")):
            yield node


@pytest.mark.parametrize(
    "rule", [pickles, unsafe_yaml, foreign_code, spreadsheets, plain_templates], ids=lambda rule: rule.__name__
)
def test_no_file_breaks_the_rule(rule):
    """No file of library, tasks, flows or benchmarks does it."""
    assert [] == findings(rule)


def test_weights_of_models_are_safetensors():
    """Library, tasks and flows ask for safetensors wherever they read a model by its class of transformers."""
    assert [] == [found for found in findings(loose_weights) if not found.startswith("benchmarks/")]


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (pickles, "import pickle"),
        (pickles, "from joblib import load"),
        (pickles, "torch.load(path, weights_only=True)"),
        (pickles, "np.load(path, allow_pickle=True)"),
        (pickles, "frame.to_pickle(path)"),
        (unsafe_yaml, "yaml.load(text, Loader=yaml.Loader)"),
        (unsafe_yaml, "yaml.load(text)"),
        (unsafe_yaml, "yaml.unsafe_load(text)"),
        (foreign_code, "eval(text)"),
        (foreign_code, "subprocess.run(text, shell=True)"),
        (foreign_code, "AutoModel.from_pretrained(name, trust_remote_code=True)"),
        (loose_weights, "AutoModelForCausalLM.from_pretrained(name)"),
        (spreadsheets, "frame.to_csv(path)"),
        (plain_templates, "jinja2.Environment(loader=loader)"),
    ],
)
def test_each_rule_sees_what_it_forbids(rule, code):
    """The walk finds a planted example of everything that it forbids."""
    assert len(list(rule(ast.parse(code)))) == 1
