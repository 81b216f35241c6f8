"""Names that people or parameters give must not lead out of their folders, and models bring no code along."""

import json

import pytest
from safetensors.torch import load_file, save_file

from rangeline.config import PipelineConfig
from rangeline.errors import ConfigError, ModelLoadError, RangelineError
from rangeline.rollout.pretrained import load_pretrained
from rangeline.stages.benchmark_source import read_problems
from rangeline.stages.data import ingest
from rangeline.stages.workspace import Workspace, open_workspace
from tasks.lineage import audit_target, require_run

OUT = ["../x", "../../x", "/etc/passwd", "..", "a/../../x", "a\\..\\x", "x\x00y", "~root"]


@pytest.fixture
def root(tmp_path):
    """Give a workspace beside a file that is none of its business."""
    folder = tmp_path / "home"
    (folder / "data" / "raw").mkdir(parents=True)
    (folder / "data" / "benchmarks").mkdir()
    (folder / "params.yaml").write_text("seed: 0\n")
    row = {"prompt_id": "a", "prompt": "1+1", "suite": "reasoning_gym", "reference": "2"}
    (tmp_path / "x.jsonl").write_text(json.dumps(row) + "\n")
    return folder


@pytest.mark.parametrize("name", [*OUT, "../../../x", ""])
def test_a_benchmark_name_is_no_path(root, name):
    """A benchmark's name with separators or dots first is refused before any file is looked at."""
    with pytest.raises(ConfigError, match="'benchmarks' must be names of letters"):
        read_problems(Workspace(root), PipelineConfig(), name)


@pytest.mark.parametrize("name", ["../x.jsonl", "data/raw/../../../x.jsonl", "/etc/passwd", "data/benchmarks/y.jsonl"])
def test_a_data_file_lies_below_the_raw_folder(root, name):
    """A data file elsewhere is refused, by whatever path it is named."""
    (root / "params.yaml").write_text(json.dumps({"data": {"files": [name]}}))
    with pytest.raises(ConfigError, match=r"'data\.files' must lie in"):
        ingest(*open_workspace(root))


def test_a_link_out_of_the_raw_folder_is_no_data_file(root, tmp_path):
    """A link that leads out of the folder is refused like the path that it stands for."""
    (root / "data" / "raw" / "rows.jsonl").symlink_to(tmp_path / "x.jsonl")
    (root / "params.yaml").write_text(json.dumps({"data": {"files": ["data/raw/rows.jsonl"]}}))
    with pytest.raises(ConfigError, match=r"'data\.files' must lie in"):
        ingest(*open_workspace(root))


@pytest.mark.parametrize("name", OUT)
def test_a_report_is_of_a_run_by_its_name(root, name):
    """A run to report is named, not reached by a path."""
    with pytest.raises(ConfigError, match="Run name must be letters, digits"):
        require_run(str(root), name)


@pytest.mark.parametrize("target", [name for name in OUT if "\x00" not in name])
def test_an_audit_stays_in_its_workspace(root, tmp_path, target):
    """An artifact outside the workspace is not audited: its bytes are not read, and no part of it is told."""
    (tmp_path / "x").mkdir()
    with pytest.raises(RangelineError, match="must be"):
        audit_target.fn(str(root), target)


@pytest.fixture
def model_with_code(tiny_model_folder, tmp_path):
    """Give a model whose folder names Python code that leaves a file behind when it is run."""
    folder, left = tmp_path / "model", tmp_path / "left"
    folder.mkdir()
    for path in tiny_model_folder.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Mine", "AutoModelForCausalLM": "mine.Mine"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "mine.py").write_text(f"open({str(left)!r}, 'w').write('ran')\nclass Mine: pass\n")
    return folder, left


def test_code_of_a_model_is_not_run_and_that_is_said(model_with_code, tmp_path):
    """Without `trust_remote_code` a model's Python file is not run; the error names the setting that would."""
    folder, left = model_with_code
    with pytest.raises(ModelLoadError, match=r"must bring no code of its own; .* set policy\.trust_remote_code=true"):
        load_pretrained(str(folder), cache_dir=tmp_path)
    assert not left.exists()
    assert PipelineConfig().policy.trust_remote_code is False


def test_pickled_weights_are_not_read(tiny_model_folder, tmp_path):
    """A folder whose only weights are a pickle is refused, and the pickle is not opened."""
    folder = tmp_path / "model"
    folder.mkdir()
    for path in tiny_model_folder.iterdir():
        if path.suffix != ".safetensors":
            (folder / path.name).write_bytes(path.read_bytes())
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch ran'\ntR.")
    with pytest.raises(ModelLoadError, match="must hold safetensors weights"):
        load_pretrained(str(folder), cache_dir=tmp_path)


def test_weights_that_lie_about_their_length_are_refused(tiny_model_folder, tmp_path):
    """A safetensors file that is cut short is an error of ours, not a model with holes."""
    folder = tmp_path / "model"
    folder.mkdir()
    for path in tiny_model_folder.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    weights = folder / "model.safetensors"
    save_file(load_file(weights), weights, metadata={"format": "pt"})
    weights.write_bytes(weights.read_bytes()[:-64])
    with pytest.raises(ModelLoadError, match="must be loadable"):
        load_pretrained(str(folder), cache_dir=tmp_path)
