-- Beside `prefect`, which the image makes: one database a server, so that neither can read the other's.
CREATE DATABASE mlflow;
CREATE DATABASE mlflow_auth;
