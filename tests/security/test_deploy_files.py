"""The files for servers keep their rules: loopback, logins, pinned images, health checks, no secret in them."""

import re
from pathlib import Path

import pytest
import yaml

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
ONCE = {"buckets", "deploy"}
MANIFESTS = [
    (path.name, item)
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for item in yaml.safe_load_all(path.read_text())
]
WORKLOADS = {
    f"{item['kind']}/{item['metadata']['name']}": item
    for _, item in MANIFESTS
    if item["kind"] in {"Deployment", "StatefulSet", "Job"}
}
PINNED = re.compile(r"[\w./-]+:(?=[^\s]*\d)(?!latest)[\w.-]+")
SECRET_NAME = re.compile(r"PASSWORD|SECRET|AUTH_STRING|API_KEY|DATABASE_U|CONNECTION_URL|BACKEND_STORE_URI")
NEEDED = {"postgres", "minio", "buckets", "prefect", "mlflow", "deploy", "worker", "vllm"}


def secrets(environment):
    """Give name and value of each variable that holds a secret."""
    return {name: value for name, value in environment.items() if SECRET_NAME.search(name)}


def containers(item):
    """Return the containers of a workload."""
    return item["spec"]["template"]["spec"]["containers"]


@pytest.fixture(params=sorted(SERVICES))
def service(request):
    """Give each service of the compose file, with its name."""
    return request.param, SERVICES[request.param]


@pytest.fixture(params=sorted(WORKLOADS))
def workload(request):
    """Give each workload of the cluster's manifests, with its name."""
    return request.param, WORKLOADS[request.param]


def test_the_services_are_all_there():
    """Databases, store, servers, deployer, worker and the model server each have a service."""
    assert set(SERVICES) == NEEDED
    assert SERVICES["vllm"]["profiles"] == ["gpu"]


def test_an_image_is_pinned_and_has_an_init_process(service):
    """No image floats, and signals reach children through an init process."""
    _, item = service
    assert PINNED.fullmatch(item["image"]), item["image"]
    assert item["init"] is True


def test_every_lasting_service_is_watched(service):
    """What stays has a health check; what runs once says that it has none."""
    name, item = service
    assert (name in ONCE) == ("disable" in item["healthcheck"])
    if name not in ONCE:
        assert item["healthcheck"]["test"][0] in {"CMD", "CMD-SHELL"}
        assert item["healthcheck"]["retries"] >= 8


def test_pages_listen_on_loopback(service):
    """A published port is bound to an address, which is loopback unless somebody says otherwise."""
    _, item = service
    for port in item.get("ports", ()):
        assert re.fullmatch(r"\$\{BIND_ADDRESS:-127\.0\.0\.1\}:\d+:\d+", port), port


def test_inside_services_publish_nothing():
    """Database, worker and model server are reached from the inner network alone, which leads nowhere else."""
    assert COMPOSE["networks"]["inside"]["internal"] is True
    for name in ("postgres", "worker", "deploy", "buckets", "vllm"):
        assert "ports" not in SERVICES[name]
        assert SERVICES[name]["networks"] == ["inside"]


def test_a_secret_comes_from_the_environment_or_nothing_starts(service):
    """Each secret names a variable that must be set; none is written down, and none has a default."""
    _, item = service
    found = secrets(item.get("environment", {}))
    assert all(re.search(r"\$\{[A-Z_]+:\?[^}]+\}", value) for value in found.values()), found


def test_logins_are_asked_for():
    """Prefect, MLflow, the store and the model server each get the secret that makes them ask for a login."""
    assert "PREFECT_SERVER_API_AUTH_STRING" in SERVICES["prefect"]["environment"]
    assert "VLLM_API_KEY" in SERVICES["vllm"]["environment"]
    assert "MINIO_ROOT_PASSWORD" in SERVICES["minio"]["environment"]
    assert {"MLFLOW_AUTH_ADMIN_PASSWORD", "MLFLOW_FLASK_SERVER_SECRET_KEY"} <= set(SERVICES["mlflow"]["environment"])
    assert "--app-name basic-auth" in (DEPLOY / "compose" / "mlflow.sh").read_text()


@pytest.mark.parametrize(
    "origin", ["PREFECT_SERVER_CORS_ALLOWED_ORIGINS", "MLFLOW_ALLOWED_ORIGINS", "MLFLOW_ALLOWED_HOSTS"]
)
def test_hosts_and_origins_are_named(origin):
    """Allowed hosts and origins are names, never a wildcard."""
    given = [item["environment"][origin] for item in SERVICES.values() if origin in item.get("environment", {})]
    assert given
    assert not any("*" in value for value in given)


def test_the_example_names_every_variable_and_holds_no_value():
    """The example has each variable that the compose file asks for; secrets and paths are empty."""
    text = (DEPLOY / "compose.yaml").read_text()
    example = dict(
        line.split("=", 1)
        for line in (DEPLOY / "compose" / ".env.example").read_text().splitlines()
        if line and not line.startswith("#")
    )
    assert set(re.findall(r"\$\{([A-Z_]+)[:?]", text)) == set(example)
    assert {"BIND_ADDRESS": "127.0.0.1"} == {name: value for name, value in example.items() if value}


def test_the_image_runs_as_nobody_in_particular_and_takes_no_secret_along():
    """The image is pinned, ends as a user without rights, and its context leaves out what may hold secrets."""
    text = (DEPLOY / "compose" / "Dockerfile").read_text()
    assert PINNED.fullmatch(re.search(r"^FROM (\S+)", text, re.MULTILINE)[1])
    assert "USER rangeline" == text.strip().splitlines()[-1]
    assert not re.search(r"^(ENV|ARG).*(PASSWORD|SECRET|KEY|TOKEN)", text, re.MULTILINE)
    ignored = (DEPLOY.parent / ".dockerignore").read_text().split()
    assert "*" in ignored
    assert "**/.env" in ignored


def test_the_image_copies_what_exists():
    """Each file that the image copies is in the project, and passes its list of what the context takes."""
    text = (DEPLOY / "compose" / "Dockerfile").read_text()
    for line in re.findall(r"^COPY (.+)$", text, re.MULTILINE):
        for name in line.split()[:-1]:
            assert (DEPLOY.parent / name).exists(), name


def test_server_versions_are_those_of_the_project():
    """Prefect and MLflow in the images are the versions that the project is tested with."""
    pinned = dict(line.split("==") for line in (DEPLOY.parent / "constraints.txt").read_text().split() if "==" in line)
    assert SERVICES["prefect"]["image"] == f"prefecthq/prefect:{pinned['prefect']}-python3.11"
    assert f"mlflow[auth]=={pinned['mlflow']}" in (DEPLOY / "compose" / "requirements.txt").read_text()


def test_cluster_images_are_those_of_compose(workload):
    """Every image of the cluster is pinned, and one that the compose file names too."""
    _, item = workload
    for container in containers(item):
        assert container["image"] in {service["image"] for service in SERVICES.values()}


def test_cluster_containers_have_no_rights(workload):
    """No container is root, gains rights, or talks to the cluster's own interface."""
    _, item = workload
    pod = item["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    for container in pod["containers"]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert ["ALL"] == container["securityContext"]["capabilities"]["drop"]
        assert "limits" in container["resources"]


def test_cluster_workloads_are_watched(workload):
    """What stays tells whether it is ready and alive."""
    name, item = workload
    if not name.startswith("Job/"):
        assert all({"readinessProbe", "livenessProbe"} <= set(container) for container in containers(item))


def test_cluster_secrets_come_from_the_secret(workload):
    """A variable that holds a secret refers to the Secret that is made by hand; no manifest holds one."""
    _, item = workload
    for container in containers(item):
        for variable in container["env"]:
            if SECRET_NAME.search(variable["name"]):
                assert "rangeline" == variable["valueFrom"]["secretKeyRef"]["name"]
    assert not any(found["kind"] == "Secret" for _, found in MANIFESTS)


def test_the_cluster_opens_nothing_to_the_outside():
    """Services have addresses of the cluster alone, and only pods of the namespace reach them."""
    kinds = {item["kind"] for _, item in MANIFESTS}
    assert not kinds & {"Ingress", "HTTPRoute"}
    services = [item["spec"]["type"] for _, item in MANIFESTS if item["kind"] == "Service"]
    assert {"ClusterIP"} == set(services)
    (policy,) = [item["spec"] for _, item in MANIFESTS if item["kind"] == "NetworkPolicy"]
    assert {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": {}}]}]} == policy


def test_every_manifest_is_applied():
    """The kustomization lists each manifest, and each file that it lists exists."""
    (listed,) = [item for _, item in MANIFESTS if item["kind"] == "Kustomization"]
    names = {path.name for path in (DEPLOY / "kubernetes").glob("*.yaml")} - {"kustomization.yaml"}
    assert names == set(listed["resources"])
    for generated in listed["configMapGenerator"]:
        assert all((DEPLOY / "kubernetes" / name).is_file() for name in generated["files"])
    assert (DEPLOY / "kubernetes" / "databases.sql").read_text() == (DEPLOY / "compose" / "databases.sql").read_text()


def test_the_worker_serves_the_pool_of_the_deployments():
    """Compose, cluster and `prefect.yaml` name the same work pool, of type process."""
    deployments = yaml.safe_load((DEPLOY.parent / "prefect.yaml").read_text())["deployments"]
    (pool,) = {item["work_pool"]["name"] for item in deployments}
    for command in (SERVICES["worker"]["command"], containers(WORKLOADS["Deployment/worker"])[0]["command"]):
        assert ["--pool", pool, "--type", "process"] == command[3:7]


def test_every_database_address_names_a_driver_that_is_installed():
    """Without its name SQLAlchemy takes whatever driver it likes best: each address says its own, which is pinned."""
    texts = [path.read_text() for path in (*DEPLOY.rglob("*.yaml"), DEPLOY.parent / "docs" / "servers.md")]
    found = {word for text in texts for word in re.findall(r"\bpostgresql(\+\w+)?://", text)}
    pinned = (DEPLOY / "compose" / "requirements.txt").read_text() + (DEPLOY.parent / "constraints.txt").read_text()
    assert {"+asyncpg", "+psycopg2"} == found
    assert all(driver.removeprefix("+") in pinned for driver in found)
