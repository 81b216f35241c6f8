#!/bin/sh
# Writes the login file from the environment, so that no password stands in an image or a compose file. It lies in the
# container's own /tmp, readable by the server alone, and goes with the container.
set -eu
umask 077
cat > /tmp/mlflow-auth.ini <<INI
[mlflow]
default_permission = READ
database_uri = ${MLFLOW_AUTH_DATABASE_URI:?must be set}
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
INI
export MLFLOW_AUTH_CONFIG_PATH=/tmp/mlflow-auth.ini
exec mlflow server --app-name basic-auth --host 0.0.0.0 --port 5000 --workers 2 \
    --backend-store-uri "${MLFLOW_BACKEND_STORE_URI:?must be set}" \
    --serve-artifacts --artifacts-destination s3://mlflow \
    --allowed-hosts "${MLFLOW_ALLOWED_HOSTS:?must be set}" \
    --cors-allowed-origins "${MLFLOW_ALLOWED_ORIGINS:?must be set}"
