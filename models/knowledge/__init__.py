"""What models of knowledge graphs share; the scorers stand in `models.scorers`."""
