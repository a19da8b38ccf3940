"""Training: steps, epochs, checkpoints, samples, derivatives."""
