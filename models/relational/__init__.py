"""Models of typed graphs: each type of nodes has an encoder of its own, each relation weights of its own."""
