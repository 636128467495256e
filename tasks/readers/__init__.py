"""Users' files, opened and read within bounds: what ingest, predictions and exports share."""
