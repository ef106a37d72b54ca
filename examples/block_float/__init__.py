"""BlockFloat: block floating point, numbers of few bits that share an exponent."""
