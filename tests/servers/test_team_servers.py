"""What a team's servers do, from Debian's PostgreSQL and an S3 server: two flows at once, artifacts, data, a login."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from local_servers import ask, free_ports
from tiny import ROOT, cli, make_toy, write_settings

from rangeline.lineage import digest_file
from tasks.versioning import ensure_repository, push

INITDB = next(
    (path for path in (shutil.which("initdb"), *map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb"))) if path),
    None,
)
DRIVERS = ("moto", "boto3", "psycopg2", "dvc_s3", "asyncpg", "flask_wtf")
MISSING = [name for name in DRIVERS if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.ops,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(INITDB is None, reason="needs Debian's package postgresql"),
    pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}: pip install -r tests/requirements-ops.txt"),
]
NOBODY = 65534
START_S = 300
PASSWORD = "a-long-password"
LOGIN = f"admin:{PASSWORD}"
KEYS = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_DEFAULT_REGION": "us-east-1"}


def as_server(command, **options):
    """Start a program as a user without rights where this one is root: PostgreSQL refuses root."""
    user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
    return subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, **user, **options)


def wait_until(answers, process, what):
    """Wait until a server answers."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        assert process.poll() is None, f"{what} ended with {process.returncode}"
        try:
            if answers():
                return
        except OSError:
            pass
        time.sleep(0.3)
    pytest.fail(f"{what} did not answer")


@pytest.fixture(scope="module")
def running():
    """Give a function that keeps a server until the tests end."""
    started = []

    def keep(process):
        started.append(process)
        return process

    yield keep
    for process in reversed(started):
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="module")
def open_folder():
    """Give a folder that other users may enter, as those of pytest are not."""
    with tempfile.TemporaryDirectory(prefix="rangeline-postgres-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="module")
def postgres(open_folder, running):
    """Run PostgreSQL with a password and three databases; give the address before the database's name."""
    (port,) = free_ports(1)
    folder, password = open_folder / "data", open_folder / "password"
    password.write_text("secret")
    folder.mkdir()
    if os.getuid() == 0:
        for place in (folder, password):
            os.chown(place, NOBODY, NOBODY)
    initdb = as_server([INITDB, "-D", folder, "-U", "rangeline", "-A", "scram-sha-256", "--pwfile", password])
    assert 0 == initdb.wait(START_S)
    binary = Path(INITDB).resolve().with_name("postgres")
    server = running(as_server([binary, "-D", folder, "-p", port, "-k", folder, "-h", "127.0.0.1"]))
    address = f"rangeline:secret@127.0.0.1:{port}"

    def query(text, database="postgres"):
        import psycopg2

        connection = psycopg2.connect(f"postgresql://{address}/{database}")
        connection.autocommit = True
        try:
            with connection.cursor() as cursor:
                cursor.execute(text)
                return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()

    def answers():
        import psycopg2

        try:
            return query("SELECT 1") == [(1,)]
        except psycopg2.OperationalError:
            return False

    wait_until(answers, server, "PostgreSQL")
    for name in ("prefect", "mlflow", "mlflow_auth"):
        query(f"CREATE DATABASE {name}")
    return address, query


@pytest.fixture(scope="module")
def store(running):
    """Run an S3 server with two buckets; give its address and a client."""
    import boto3

    (port,) = free_ports(1)
    environ = {**os.environ, **KEYS}
    server = running(
        subprocess.Popen([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], env=environ)
    )
    url = f"http://127.0.0.1:{port}"
    wait_until(lambda: ask(f"{url}/moto-api/")[0] < 500, server, "the S3 server")
    client = boto3.client(
        "s3", endpoint_url=url, aws_access_key_id="k", aws_secret_access_key="s", region_name="us-east-1"
    )
    for name in ("mlflow", "dvc"):
        client.create_bucket(Bucket=name)
    return url, client


def script_at(port, folder):
    """Return the script by which the container starts MLflow, for loopback and a folder of the test's own."""
    text = (ROOT / "deploy" / "compose" / "mlflow.sh").read_text()
    for there, here in (("--host 0.0.0.0 --port 5000", f"--host 127.0.0.1 --port {port}"), ("/tmp/", f"{folder}/")):
        assert there in text
        text = text.replace(there, here)
    return text


@pytest.fixture(scope="module")
def servers(running, postgres, store, tmp_path_factory):
    """Run Prefect with a login and MLflow, both on PostgreSQL; give the environment that a client needs."""
    address, _ = postgres
    home = tmp_path_factory.mktemp("servers")
    prefect, mlflow = free_ports(2)
    environ = {
        **os.environ,
        **KEYS,
        "PREFECT_HOME": str(home),
        "PREFECT_API_DATABASE_CONNECTION_URL": f"postgresql+asyncpg://{address}/prefect",
        "PREFECT_SERVER_API_AUTH_STRING": LOGIN,
        "MLFLOW_S3_ENDPOINT_URL": store[0],
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(prefect)]
    first = running(subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL))
    script = home / "mlflow.sh"
    script.write_text(script_at(mlflow, home))
    environ |= {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "MLFLOW_BACKEND_STORE_URI": f"postgresql+psycopg2://{address}/mlflow",
        "MLFLOW_AUTH_DATABASE_URI": f"postgresql+psycopg2://{address}/mlflow_auth",
        "MLFLOW_AUTH_ADMIN_USERNAME": "admin",
        "MLFLOW_AUTH_ADMIN_PASSWORD": PASSWORD,
        "MLFLOW_FLASK_SERVER_SECRET_KEY": "no-secret-in-a-test",
        "MLFLOW_ALLOWED_HOSTS": f"127.0.0.1:{mlflow}",
        "MLFLOW_ALLOWED_ORIGINS": f"http://127.0.0.1:{mlflow}",
    }
    second = running(subprocess.Popen(["sh", str(script)], env=environ, stdout=subprocess.DEVNULL))
    wait_until(lambda: ask(f"http://127.0.0.1:{prefect}/api/health")[0] in (200, 401), first, "Prefect")
    wait_until(lambda: ask(f"http://127.0.0.1:{mlflow}/health")[0] == 200, second, "MLflow")
    return {
        "PREFECT_API_URL": f"http://127.0.0.1:{prefect}/api",
        "PREFECT_API_AUTH_STRING": LOGIN,
        "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{mlflow}",
        "MLFLOW_TRACKING_USERNAME": "admin",
        "MLFLOW_TRACKING_PASSWORD": PASSWORD,
    }


@pytest.mark.parametrize(
    ("server", "place", "body"),
    [
        ("PREFECT_API_URL", "/flows/filter", {}),
        ("MLFLOW_TRACKING_URI", "/api/2.0/mlflow/experiments/search", {"max_results": 1}),
    ],
)
def test_a_login_is_asked_for_and_taken(server, place, body, servers):
    """Without a login and with a wrong one a server answers 401, with the right one it answers."""
    import base64

    def with_login(text):
        login = f"Basic {base64.b64encode(text.encode()).decode()}"
        return ask(f"{servers[server]}{place}", body=body, authorization=login)[0]

    assert 401 == ask(f"{servers[server]}{place}", body=body)[0]
    assert 401 == with_login("admin:another-password")
    assert 200 == with_login(LOGIN)


def test_two_trainings_at_once_are_recorded_whole(servers, postgres, store, tmp_path):
    """Two commands in two workspaces at once both end; PostgreSQL has their flow runs, the S3 store their artifacts."""
    _, query = postgres
    _, client = store
    place, _ = make_toy(tmp_path / "a", train={"iterations": 3})
    other = shutil.copytree(place.root, tmp_path / "b")
    both = [
        cli("train", "-w", root, "--run", name, environ={**servers, "PREFECT_HOME": str(root / ".prefect")})
        for name, root in (("a", place.root), ("b", other))
    ]
    for process in both:
        text, _ = process.communicate(timeout=1200)
        assert 0 == process.returncode, text
    states = query("SELECT state_type, count(*) FROM flow_run GROUP BY state_type", "prefect")
    assert [("COMPLETED", 2)] == [(str(state), count) for state, count in states]
    runs = query("SELECT name FROM runs WHERE name LIKE 'iteration %'", "mlflow")
    assert 6 == len(runs)
    steps = query("SELECT step FROM metrics WHERE key = 'train/accuracy' AND step > 0", "mlflow")
    # Each iteration's run and its parent's history hold the number once.
    assert sorted([1, 2, 3] * 4) == sorted(step for (step,) in steps)
    names = [item["Key"] for item in client.list_objects_v2(Bucket="mlflow")["Contents"]]
    assert 6 == sum(name.endswith("/manifest.json") for name in names)
    assert not (place.root / "mlruns" / "mlflow.db").exists()


def test_data_go_to_the_store_and_come_back(store, tmp_path, monkeypatch):
    """What DVC pushed to the S3 store comes back with the same bytes after cache and file are gone."""
    url, client = store
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    root = tmp_path / "w"
    root.mkdir()
    write_settings(root)
    ensure_repository(root, tmp_path / "unused")
    dvc = [sys.executable, "-m", "dvc"]
    for words in (
        ["remote", "add", "--local", "--default", "store", "s3://dvc"],
        ["remote", "modify", "--local", "store", "endpointurl", url],
    ):
        subprocess.run([*dvc, *words], cwd=root, check=True)
    data = root / "rows.jsonl"
    data.write_text('{"a": 1}\n' * 100)
    before = digest_file(data)
    subprocess.run([*dvc, "add", "rows.jsonl"], cwd=root, check=True)
    push(root)
    assert client.list_objects_v2(Bucket="dvc")["KeyCount"] >= 1
    shutil.rmtree(root / ".dvc" / "cache")
    data.unlink()
    subprocess.run([*dvc, "pull"], cwd=root, check=True)
    assert before == digest_file(data)
