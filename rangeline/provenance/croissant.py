"""Describe a data stage as a Croissant data set: its files with their digests, and the columns of its tables."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rangeline.lineage import MANIFEST_NAME, digest_file, read_manifest
from rangeline.records import ArtifactRef

CONFORMS_TO = "http://mlcommons.org/croissant/1.0"
_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileProperty": "cr:fileProperty",
    "fileObject": "cr:fileObject",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
_FORMATS = {
    ".parquet": "application/vnd.apache.parquet",
    ".json": "application/json",
    ".jsonl": "application/jsonlines",
    ".csv": "text/csv",
}


def croissant_dataset(root: Path, folder: Path) -> dict[str, Any]:
    """Return the Croissant description of a stage's folder, such as `data/pools`.

    Parameters
    ----------
    root
        Workspace; file addresses are relative to it.
    folder
        Folder with a manifest.

    Raises
    ------
    LineageError
        When the folder has no manifest.

    Notes
    -----
    Croissant 1.0 of MLCommons. Licence and citation are the data owner's to add: none is made up here.
    """
    manifest = read_manifest(folder / MANIFEST_NAME)
    version = digest_file(folder / MANIFEST_NAME)[:12]
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "name": f"rangeline-{manifest.kind}",
        "description": f"Outputs of stage '{manifest.kind}', made by rangeline {manifest.code.get('version', '')}.",
        "conformsTo": CONFORMS_TO,
        "version": f"0.0.0+{version}",
        "distribution": [_file_object(ref) for ref in manifest.outputs],
        "recordSet": [_record_set(ref, root / ref.path) for ref in manifest.outputs if ref.path.endswith(".parquet")],
    }


def _file_object(ref: ArtifactRef) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": ref.path,
        "name": ref.path,
        "contentUrl": ref.path,
        "contentSize": f"{ref.size} B",
        "encodingFormat": _FORMATS.get(Path(ref.path).suffix, "application/octet-stream"),
        "sha256": ref.sha256,
    }


def _record_set(ref: ArtifactRef, path: Path) -> dict[str, Any]:
    name = Path(ref.path).stem
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{name}/{column.name}",
                "name": column.name,
                "dataType": _data_type(column.type),
                "source": {"fileObject": {"@id": ref.path}, "extract": {"column": column.name}},
            }
            for column in pq.read_schema(path)
        ],
    }


def _data_type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _data_type(kind.value_type)
    if pa.types.is_boolean(kind):
        return "sc:Boolean"
    if pa.types.is_integer(kind):
        return "sc:Integer"
    return "sc:Float" if pa.types.is_floating(kind) else "sc:Text"
