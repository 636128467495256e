"""Controls of pairs: what degrees, neighbourhoods, earlier edges and features of both ends say."""
