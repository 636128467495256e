"""What a home keeps beside its artifacts: signed pickles, digests, trust, templates, temporary files."""
