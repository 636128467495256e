"""How texts become values: YAML, and users' files of code."""
