"""How texts become values, and values texts: YAML, users' files of code, what a recipe changes."""
