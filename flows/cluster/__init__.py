"""`graphmill cluster`: this machine's Ray, begun, joined to a cluster and ended, thin over `ray start`."""
