"""ClipSigmoid: a sigmoid kept inside bounds."""
