# What the entry point of PostgreSQL's image does, as far as compose.yaml needs it.
set -e
chown postgres "$PGDATA"
as="setpriv --reuid=postgres --regid=postgres --init-groups"
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  $as initdb -U "$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" $POSTGRES_INITDB_ARGS
  echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
  echo "CREATE DATABASE $POSTGRES_DB" | $as postgres --single postgres
fi
command=$1; shift
exec $as "$command" -c "listen_addresses=*" "$@"
