"""What a training learns from: weights of classes, units of numbers, predicted labels."""
