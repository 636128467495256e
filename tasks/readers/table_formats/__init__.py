"""Tables that keep their versions: Delta Lake and Apache Iceberg."""
