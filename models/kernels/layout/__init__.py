"""Steps of layouts: points in two or three dimensions that neighbours draw together and others push apart."""
