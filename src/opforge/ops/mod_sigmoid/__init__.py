"""ModSigmoid: a sigmoid shifted by a threshold tensor."""
