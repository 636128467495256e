#!/usr/bin/env bash
# Make the secrets that compose.yaml and the Kubernetes manifests read, in docker/secrets. Those that are there stay.
set -euo pipefail
cd "$(dirname "$0")"
umask 077
mkdir -p secrets
chmod 700 secrets
for name in password database_password mlflow_secret; do
  [ -s "secrets/$name" ] || od -An -N24 -tx1 /dev/urandom | tr -d ' \n' >"secrets/$name"
done
rm -f secrets/prefect_auth
printf 'graphmill:%s' "$(cat secrets/password)" >secrets/prefect_auth
[ -e secrets/s3_credentials ] || : >secrets/s3_credentials # for artifacts in a bucket: an AWS credentials file
# Containers run as another user: the files must be readable there. Here the folder keeps everybody else out.
chmod 444 secrets/*
echo "secrets are in $PWD/secrets; user graphmill, password: $PWD/secrets/password"
