"""What models are put together from: encoders, layers around a convolution, heads."""
